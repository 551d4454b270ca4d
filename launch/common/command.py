"""How every command runs: flags and config are parsed, one function is called, one line printed.

Flags belong to a call, not to the process: `main(argv)` of a command may be called many times.
"""

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import flags
from absl.flags import FlagValues

from engine.errors import AssayError
from launch.common import config as config_files
from launch.common import output
from launch.common.spelling import nearest

Given = Any  # parsed FlagValues: every flag is an attribute with a type of its own

_CONFIG_HELP = (
    "Settings: the file says what each key means and takes; --config.<key>=<value> sets one."
)


def run(
    name: str,
    argv: Sequence[str],
    body: Callable[[Given], str],
    *,
    doc: str | None,
    define: Sequence[Callable[[FlagValues], None]] = (),
    config: str = "",
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

    Returns:
      Exit status: 0, 1 where some of several models failed, 2 for bad input, 130 where the user
      interrupted it.
    """
    given = FlagValues()
    given.set_gnu_getopt(True)
    try:
        with _quiet():
            _define_common(given, config)
            for define_flags in define:
                define_flags(given)
            _parse(given, name, argv, has_config=bool(config))
            if given.help:
                output.show(f"{(doc or '').strip()}\n{given.get_help(include_special_flags=False)}")
                return 0
            if given.multihost:
                import jax

                jax.distributed.initialize()
            last_line = body(given)
    except (AssayError, flags.Error) as error:
        message = str(error) if isinstance(error, AssayError) else " ".join(str(error).split())
        print(f"{name}: {message}", file=sys.stderr)
        return getattr(error, "exit_status", 2)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run it again to go on", file=sys.stderr)
        return 130
    output.show(last_line)
    return 0


def paths(given: Given, flag: str) -> list[str]:
    """The paths of a flag that must name at least one.

    Raises:
      AssayError: the flag is missing, or one of its paths is empty.
    """
    value = given[flag].value
    named = value if isinstance(value, list) else [value]
    if not named or not all(named):
        allowed = given[flag].help.split(". ")[0].rstrip(".")
        raise AssayError(f"--{flag} is missing; allowed: {allowed[0].lower()}{allowed[1:]}")
    return named


def _define_common(given: FlagValues, config: str) -> None:
    flags.DEFINE_bool("help", False, "Print this text.", short_name="h", flag_values=given)
    flags.DEFINE_bool(
        "multihost",
        False,
        "Start jax.distributed (TPU pod or SLURM). The run folder must be shared by all processes.",
        flag_values=given,
    )
    if config:
        default = config_files.default_file(config)
        flags.DEFINE_string("config", default, _CONFIG_HELP, flag_values=given)


def _parse(given: FlagValues, name: str, argv: Sequence[str], *, has_config: bool) -> None:
    """Parses the flags that are known, then the overrides of the config that they name."""
    for argument in argv:
        if re.search("[\ud800-\udfff]", argument):  # what Python makes of other bytes
            raise AssayError(f"argument {argument!r}: not UTF-8; allowed: UTF-8 text")
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
    if rest:
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
