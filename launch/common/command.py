"""How every command runs: flags and config are parsed, one function is called, one line printed.

Flags belong to a call, not to the process: `main(argv)` of a command may be called many times.
"""

import contextlib
import functools
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from absl.flags import FlagValues

from engine import processes
from engine.errors import AssayError
from launch.common import config as config_files
from launch.common import joining
from launch.common.text import escape_unencodable, nearest, show

Given = Any  # parsed FlagValues: flags are attributes of several types

_CONFIG_HELP = "File that declares the settings below; --config.<key>=<value> sets one."


def run(
    name: str,
    argv: Sequence[str],
    body: Callable[[Given], str],
    *,
    doc: str | None,
    define: Sequence[Callable[[FlagValues], None]] = (),
    config: str = "",
    positional: str = "",
) -> int:
    """Runs a command; bad input becomes one line on standard error.

    Args:
      name: name of the command, with which error lines begin.
      argv: its arguments, without the program's name.
      body: what the command does with its parsed flags; returns the line to print at the end.
      doc: what `--help` prints before the flags.
      define: functions that define the command's flags.
      config: name of the file in configs/ that `--config` reads by default; "" for a command
        without settings.
      positional: the flag, a list, to which arguments without a flag are added; "": there are none.

    Returns:
      Exit status (docs/several-processes.md): 0, 1 where some of several models failed, 2 for bad
      input, 130 where the user interrupted it. Where there are several processes, an error ends
      this one instead.
    """
    escape_unencodable()
    given = FlagValues()
    given.set_gnu_getopt(True)
    try:
        with _quiet(), processes.on_signal(functools.partial(processes.end_by, name)):
            _define_common(given, config)
            for define_flags in define:
                define_flags(given)
            _parse(given, name, argv, has_config=bool(config), positional=positional)
            if given.help:
                flags_help = given.get_help(include_special_flags=False)
                settings_help = config_files.help_text(given.config) if config else ""
                show(f"{(doc or '').strip()}\n{flags_help}{settings_help}")
                return 0
            if "multihost" in given:
                joining.join(name, given)
            last_line = body(given)
            processes.finish()
    except (AssayError, flags.Error) as error:
        message = str(error) if isinstance(error, AssayError) else " ".join(str(error).split())
        code = getattr(error, "exit_status", processes.REFUSED)
        return _failed(name, message, code)
    except KeyboardInterrupt:
        return _failed(name, processes.INTERRUPTION, processes.INTERRUPTED)
    except Exception as error:  # an unexpected one must end the other processes too
        if processes.count() == 1:
            raise
        _wait_for_the_cause(error)
        return _failed(name, _described(error), 1)
    if processes.writes():
        show(last_line)
    return 0


def _failed(name: str, message: str, code: int) -> int:
    """Prints the one line; with several processes, ends all of them."""
    if processes.count() > 1:
        processes.fail(name, message, code)
    print(f"{name}: {message}", file=sys.stderr)
    return code


def _wait_for_the_cause(error: Exception) -> None:
    """Gives jax the time to notice a process that is gone, of which this error may be an effect.

    Collective operations with a process that was killed fail at once, long before its heartbeat is
    missed. This process is then aborted while it sleeps here.
    """
    status = re.match("([A-Z_]+): ", str(error))  # of XLA, in errors of several types
    if status and status[1] != "RESOURCE_EXHAUSTED":
        time.sleep(processes.HEARTBEAT_S + 5)


def _described(error: Exception) -> str:
    """An unexpected error in one line, with its place; `python -X dev` prints the traceback."""
    if sys.flags.dev_mode:
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "site-packages" not in frame.filename]
    last = (ours or frames)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    return f"{type(error).__name__} ({where}): {error}"


def paths(given: Given, flag: str, *, none: bool = False) -> list[str]:
    """The paths of a flag; raises AssayError if one is empty or, unless `none`, there is none."""
    value = given[flag].value
    named = value if isinstance(value, list) else [value]
    if none and not named:
        return []
    if not named or not all(named):
        allowed = given[flag].help.split(". ")[0].rstrip(".")
        raise AssayError(f"--{flag} is missing; allowed: {allowed[0].lower()}{allowed[1:]}")
    return named


def _define_common(given: FlagValues, config: str) -> None:
    flags.DEFINE_bool("help", False, "Print this text.", short_name="h", flag_values=given)
    if config:
        default = config_files.default_file(config)
        flags.DEFINE_string("config", default, _CONFIG_HELP, flag_values=given)


def _parse(
    given: FlagValues, name: str, argv: Sequence[str], *, has_config: bool, positional: str
) -> None:
    """Parses the flags that are known, then the overrides of the config that they name."""
    for argument in argv:
        if re.search("[\ud800-\udfff]", argument):  # what Python makes of other bytes
            encoding = sys.getfilesystemencoding().upper()  # ASCII in a locale that has no other
            raise AssayError(f"argument {argument!r}: not {encoding}; allowed: {encoding} text")
    _, *rest = given([name, *argv], known_only=True)
    if given.help:
        return
    if has_config:
        config_files.define(given, given.config, rest)
    try:
        _, *rest = given([name, *rest])
    except flags.UnrecognizedFlagError as error:
        near = nearest(error.flagname, list(given))
        raise AssayError(f"--{error.flagname} is no flag{near}; see --help") from error
    except (ValueError, TypeError, LookupError) as error:  # of ml_collections, about a value
        raise AssayError(" ".join(str(error).split())) from error
    if positional:
        given[positional].value = [*paths(given, positional, none=True), *rest]
    elif rest:
        raise AssayError(f"argument {rest[0]!r}; allowed: flags only, as --name=value")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides the progress notes of libraries; their errors stay."""
    loggers = [logging.getLogger(n) for n in ("absl", "jax", "orbax", "transformers", "etils")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
