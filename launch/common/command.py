"""How every command runs: flags and config are parsed, one function is called, one line printed.

Flags belong to a call, not to the process: `main(argv)` of a command may be called many times.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import flags
from absl.flags import FlagValues

from engine import processes
from engine.errors import AssayError
from launch.common import config as config_files
from launch.common import joining
from launch.common.text import escape_unencodable, folder_gone, nearest, one_line, show

Given = Any  # parsed FlagValues: flags are attributes of several types
# Name of a flag -> its default, its meaning and, of an integer, its least and its largest value.
# Otherwise the default says the type: a list is comma-separated, a tuple is of a flag that may
# be repeated, a boolean needs no value; else it is a text. Any: of these types.
Flags = Mapping[str, tuple[Any, ...]]

_CONFIG_HELP = (
    "File that declares the settings below, as configs/search.py:paper; --config.<key>=<value> "
    "sets one."
)
_PATHS = ("run", "report", "out", "root", "checkpoint")  # flags whose values --json repeats
_OF_SHELLS = ("help", "json", "print-config", *joining.FLAGS)  # flags that Python cannot set


@dataclasses.dataclass(frozen=True)
class CommandResult:
    """What a command says at its end."""

    text: str  # its last lines
    # What they say, as JSON has it; called only with --json.
    facts: Callable[[], Mapping[str, Any]] = dict  # Any: what JSON holds
    exit_status: int = 0  # 1 where a check has found something


@dataclasses.dataclass(frozen=True)
class Command:
    """A command: `main` runs it for a shell, `call` for Python.

    Attributes:
      name: its name, with which error lines begin.
      body: what it does with its parsed flags; returns the lines to print at the end.
      doc: what `--help` prints before the flags.
      define: its flags, or functions that define them.
      positional: the flag of a list to which arguments without a flag are added; "": none may be.
      config: whether it has settings, those that the file of its name in configs/ declares.
    """

    name: str
    body: Callable[[Given], str | CommandResult]
    doc: str | None
    define: Sequence[Flags | Callable[[FlagValues], None]] = ()
    positional: str = ""
    config: bool = True

    def main(self, argv: Sequence[str]) -> int:
        """Runs it with its arguments; bad input becomes one line on standard error.

        Returns:
          Exit status (docs/several-processes.md): that of the result, 1 where some of several
          models failed, 2 for bad input, 130 where the user interrupted it. Where there are several
          processes, an error ends all of them instead.
        """
        escape_unencodable()
        as_json = "--json" in argv  # also of an error before flags are parsed
        try:
            stop = functools.partial(processes.end_by, self.name)
            with _quiet(), processes.on_signal(stop):
                given = self._flags()
                self._parse(given, argv)
                if given.help:
                    from launch.common import help as help_text  # of which most calls need nothing

                    config = given.config if self.config else ""
                    show(help_text.text(self.name, self.doc or "", given, config))
                    return 0
                if self.config and given["print-config"].value:
                    show(config_files.as_flags(given.config))
                    return 0
                if "multihost" in given:
                    joining.join(self.name, given)
                began = time.monotonic()
                # With --json what a command prints on its way is no part of the one object.
                with contextlib.redirect_stdout(sys.stderr if given.json else sys.stdout):
                    result = self._result(given)
                last = result.text
                if given.json and processes.writes():
                    last = json.dumps(self._said(given, result, began), default=str)
                processes.finish()
                if processes.writes():
                    show(last)
        except (AssayError, flags.Error) as error:
            message = str(error) if isinstance(error, AssayError) else " ".join(str(error).split())
            code = getattr(error, "exit_status", processes.REFUSED)
            return _failed(self.name, message, code, as_json)
        except KeyboardInterrupt:
            stopped = processes.stopped(self.name)
            return _failed(self.name, stopped, processes.INTERRUPTED, as_json)
        except Exception as error:  # an unexpected one must end the other processes too
            if gone := folder_gone(error):
                return _failed(self.name, gone, processes.REFUSED, as_json)
            if processes.count() == 1:
                raise
            _wait_for_the_cause(error)
            return _failed(self.name, one_line(error), 1, as_json)
        return result.exit_status

    # Any: values of flags and settings, and what JSON holds.
    def call(self, *named: Any, config: Mapping[str, Any], **given: Any) -> dict[str, Any]:
        """Runs it in this process.

        Args:
          *named: its arguments without a flag.
          config: its settings, by name; one of a section is `"mesh.model"`.
          **given: its flags, with `_` for `-`; a list is of several values, None as if left out.

        Returns:
          What it prints with --json; `exit_status` is 1 where a check has found something.

        Raises:
          AssayError: what the command would refuse.
        """
        began, values = time.monotonic(), self._flags()
        argv = _command_line(values, named, config, given)
        try:
            with _quiet():
                self._parse(values, argv)
                result = self._result(values)
                said = self._said(values, result, began)
        except flags.Error as error:
            raise AssayError(" ".join(str(error).split())) from error
        return {**said, "exit_status": result.exit_status}

    def _result(self, given: Given) -> CommandResult:
        result = self.body(given)
        return CommandResult(result) if isinstance(result, str) else result

    def _flags(self) -> FlagValues:
        given = FlagValues()
        given.set_gnu_getopt(True)
        for each in self.define:
            _define(given, each)
        _define_common(given, self.name if self.config else "")
        return given

    def _parse(self, given: FlagValues, argv: Sequence[str]) -> None:
        _parse(given, self.name, argv, has_config=self.config, positional=self.positional)

    # Any: what JSON holds.
    def _said(self, given: Given, result: CommandResult, began: float) -> dict[str, Any]:
        """The one object that --json prints: the command, its paths, its facts and its seconds."""
        paths = {flag: given[flag].value for flag in _PATHS if flag in given and given[flag].value}
        facts = {"command": self.name, "said": result.text, "paths": paths, **result.facts()}
        return {**facts, "seconds": round(time.monotonic() - began, 3)}


# Any: values of flags and settings.
def _command_line(
    flags_: FlagValues, named: Sequence[Any], config: Mapping[str, Any], given: Mapping[str, Any]
) -> list[str]:
    """What a shell would pass for the arguments of `Command.call`."""
    if wrong := [value for value in named if not isinstance(value, str | os.PathLike)]:
        raise AssayError(f"{wrong[0]!r}; allowed: a text or a path; several stand side by side")
    if not isinstance(config, Mapping):
        raise AssayError(f"config={config!r}; allowed: settings by name, as {{'dtype': 'float32'}}")
    argv = [*map(os.fspath, named)]
    for key, value in given.items():
        name = key if key in flags_ else key.replace("_", "-")
        if name in _OF_SHELLS:
            raise AssayError(f"{key}={value!r}: only the command in a shell has this flag")
        if isinstance(value, Mapping):
            raise AssayError(f"{key}={value!r}; allowed: a text, or a list of several")
        repeated = name in flags_ and isinstance(flags_[name], flags.MultiFlag)
        each = value if repeated and isinstance(value, list | tuple) else [value]
        argv += [f"--{name}={_as_text(one)}" for one in each if one is not None]
    return argv + [f"--config.{key}={_as_text(value)}" for key, value in config.items()]


def _as_text(value: object) -> str:
    """A value of a flag or a setting as a command line has it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def _failed(name: str, message: str, code: int, as_json: bool) -> int:
    """Prints the one line, as --json an object too; with several processes, ends all of them."""
    if as_json and processes.writes():
        with contextlib.suppress(AssayError):  # nothing is printed where the output is full
            show(json.dumps({"command": name, "error": message}))
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


def _define(given: FlagValues, stated: Flags | Callable[[FlagValues], None]) -> None:
    if not isinstance(stated, Mapping):
        stated(given)
        return
    kinds: dict[type, Any] = {  # Any: overloaded functions
        list: flags.DEFINE_list,
        tuple: flags.DEFINE_multi_string,
        bool: flags.DEFINE_bool,
    }
    integer: Any = flags.DEFINE_integer
    for name, (default, meaning, *bounds) in stated.items():
        define = integer if bounds else kinds.get(type(default), flags.DEFINE_string)
        define(name, default, meaning, *bounds, flag_values=given)


def _define_common(given: FlagValues, config: str) -> None:
    flags.DEFINE_bool("help", False, "Print this text.", short_name="h", flag_values=given)
    text = "Print one JSON object in place of the last lines: paths, what was computed, seconds."
    _define(given, {"json": (False, text)})
    if config:
        _define(given, {"print-config": (False, "Print the settings, and do nothing.")})
        _define(given, {"config": (config_files.default_file(config), _CONFIG_HELP)})


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
        if has_config and error.flagname in given.config:
            near = f" (did you mean --config.{error.flagname}?)"
        raise AssayError(f"--{error.flagname} is no flag{near}; see --help") from error
    except (ValueError, TypeError, LookupError) as error:  # of ml_collections, about a value
        raise AssayError(" ".join(str(error).split())) from error
    if positional:
        given[positional].value = [*paths(given, positional, none=True), *rest]
    elif rest:
        raise AssayError(f"argument {rest[0]!r}; allowed: flags only, as --name=value")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what libraries log below errors."""
    loggers = [logging.getLogger(n) for n in ("absl", "jax", "orbax", "transformers", "etils")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
