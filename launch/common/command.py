"""How every command runs: flags and config are parsed, one function is called, one line printed.

Flags belong to a call, not to the process: `main(argv)` of a command may be called many times.
"""

import contextlib
import dataclasses
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
from engine.runs import lock, storage
from launch.common import config as config_files
from launch.common import joining
from launch.common.text import escape_unencodable, nearest, one_line, show

Given = Any  # parsed FlagValues: flags are attributes of several types
# Name of a flag -> its default, its meaning and, of an integer, its least and its largest value.
# Otherwise the default says the type: a list is comma-separated, a tuple is of a flag that may
# be repeated, a boolean needs no value; else it is a text. Any: of these types.
Flags = Mapping[str, tuple[Any, ...]]

WAIT: Flags = {"wait": (False, "Wait while another command writes the run, instead of refusing.")}
_JSON: Flags = {
    "json": (
        False,
        "End with one JSON object (paths, what was computed, seconds), not with text.",
    )
}
_CONFIG: Flags = {
    "config": (
        None,
        "File of settings, such as configs/search.py:paper. --config.<key>=<value> sets a single "
        "one, over the file.",
    ),
}
_PATHS = ("run", "report", "out", "root", "checkpoint")  # flags whose values --json repeats
_OF_SHELLS = ("help", "json", *joining.FLAGS)  # flags that Python cannot set


@dataclasses.dataclass(frozen=True)
class CommandResult:
    """What a command says at its end."""

    text: str  # its last lines
    # What they say, as JSON has it; called only with --json.
    facts: Callable[[], Mapping[str, Any]] = dict  # Any: what JSON holds
    exit_status: int = 0  # 1 where a check has found something
    wait: Callable[[], object] = lambda: None  # what a shell waits for after them; Python does not


@dataclasses.dataclass(frozen=True)
class Command:
    """A command: `main` runs it for a shell, `call` for Python.

    Attributes:
      name: its name, with which error lines begin.
      body: what it does with its parsed flags; returns the lines to print at the end.
      doc: what `--help` prints before the flags.
      define: its flags.
      positional: the flag of a list to which arguments without a flag are added; "": none may be.
      settings: what `--config` sets; None: nothing.
    """

    name: str
    body: Callable[[Given], str | CommandResult]
    doc: str | None
    define: Sequence[Flags] = ()
    positional: str = ""
    settings: config_files.CommandSettings | None = None

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
            with _quiet():
                given = self._flags()
                self._parse(given, argv)
                if given.help:
                    from launch.common import help as help_text  # of which most calls need nothing

                    shown = self.name, self.doc or "", given, self.settings, self.positional
                    show(help_text.text(*shown))
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
                result.wait()
        except (AssayError, flags.Error) as error:
            message = str(error) if isinstance(error, AssayError) else " ".join(str(error).split())
            code = getattr(error, "exit_status", processes.REFUSED)
            return _failed(self.name, message, code, as_json)
        except KeyboardInterrupt:
            stopped = processes.stopped(self.name)
            return _failed(self.name, stopped, processes.INTERRUPTED, as_json)
        except Exception as error:  # an unexpected one must end the other processes too
            if processes.count() == 1:
                raise
            _wait_for_the_cause(error)
            return _failed(self.name, one_line(error), 1, as_json)
        return result.exit_status

    # Any: values of flags and settings, and what JSON holds.
    def call(
        self, *arguments: Any, config: str | os.PathLike[str] | Mapping[str, Any], **given: Any
    ) -> dict[str, Any]:
        """Runs it in this process.

        Args:
          *arguments: its arguments without a flag.
          config: its settings, by name, one of a section as `"mesh.model"`; or a file with them,
            as `--config` names it.
          **given: its flags, with `_` for `-`; a list is of several values, None as if left out.

        Returns:
          What it prints with --json; `exit_status` is 1 where a check has found something.

        Raises:
          AssayError: what the command would refuse.
        """
        began, values = time.monotonic(), self._flags()
        argv = _command_line(values, arguments, config, given)
        try:
            with _quiet():
                self._parse(values, argv)
                result = self._result(values)
                printed = self._said(values, result, began)
        except flags.Error as error:
            raise AssayError(" ".join(str(error).split())) from error
        return {**printed, "exit_status": result.exit_status}

    def _result(self, given: Given) -> CommandResult:
        result = self.body(given)
        return CommandResult(result) if isinstance(result, str) else result

    def _flags(self) -> FlagValues:
        given = FlagValues()
        given.set_gnu_getopt(True)
        for stated in self.define:
            _define(given, stated)
        flags.DEFINE_bool("help", False, "Print this text.", short_name="h", flag_values=given)
        _define(given, _JSON if self.settings is None else {**_JSON, **_CONFIG})
        return given

    def _parse(self, given: FlagValues, argv: Sequence[str]) -> None:
        """Parses the flags that are known, then the overrides of the settings that they name."""
        for argument in argv:
            if re.search("[\ud800-\udfff]", argument):  # what Python makes of other bytes
                encoding = sys.getfilesystemencoding().upper()  # ASCII in a locale without another
                raise AssayError(f"argument {argument!r}: not {encoding}; allowed: {encoding} text")
        _, *rest = given([self.name, *argv], known_only=True)
        if given.help:
            return
        if self.settings is not None:
            config_files.define(given, self.settings, rest)
        try:
            _, *rest = given([self.name, *rest])
        except flags.UnrecognizedFlagError as error:
            near = nearest(error.flagname, list(given))
            if self.settings is not None and error.flagname in given.config:
                near = f" (did you mean --config.{error.flagname}?)"
            raise AssayError(f"--{error.flagname} is no flag{near}; see --help") from error
        except (ValueError, TypeError, LookupError) as error:  # of ml_collections, about a value
            raise AssayError(" ".join(str(error).split())) from error
        if self.positional:
            given[self.positional].value = [*paths(given, self.positional, none=True), *rest]
        elif rest:
            raise AssayError(f"argument {rest[0]!r}; allowed: flags only, as --name=value")

    # Any: what JSON holds.
    def _said(self, given: Given, result: CommandResult, began: float) -> dict[str, Any]:
        """The one object that --json prints: the command, its paths, its facts and its seconds."""
        paths = {flag: given[flag].value for flag in _PATHS if flag in given and given[flag].value}
        facts = {"command": self.name, "said": result.text, "paths": paths, **result.facts()}
        return {**facts, "seconds": round(time.monotonic() - began, 3)}


# Any: values of flags and settings.
def _command_line(
    flags_: FlagValues, arguments: Sequence[Any], config: Any, given: Mapping[str, Any]
) -> list[str]:
    """What a shell would pass for the arguments of `Command.call`."""
    if wrong := [value for value in arguments if not isinstance(value, str | os.PathLike)]:
        raise AssayError(f"{wrong[0]!r}; allowed: texts or paths, as separate arguments")
    argv = [*map(os.fspath, arguments)]
    if isinstance(config, str | os.PathLike):
        argv.append(f"--config={os.fspath(config)}")
    elif isinstance(config, Mapping):
        argv += [f"--config.{key}={_as_text(value)}" for key, value in config.items()]
    else:
        raise AssayError(f"config={config!r}; allowed: a file, or settings as {{'seed': 1}}")
    for key, value in given.items():
        name = key if key in flags_ else key.replace("_", "-")
        if name in _OF_SHELLS:
            raise AssayError(f"{key}={value!r}: this flag is only for a shell")
        if isinstance(value, Mapping):
            raise AssayError(f"{key}={value!r}; allowed: a text, or a list of several")
        repeated = name in flags_ and isinstance(flags_[name], flags.MultiFlag)
        values = value if repeated and isinstance(value, list | tuple) else [value]
        argv += [f"--{name}={_as_text(element)}" for element in values if element is not None]
    return argv


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


@contextlib.contextmanager
def run_lock(name: str, run: str, *, wait: bool = False) -> Iterator[None]:
    """Holds the lock of a run while a command writes it, on process 0 only.

    What killed commands left in the run is removed.
    """
    if not processes.writes():
        yield
        return
    with lock.hold(run, name, wait=wait):
        storage.remove_leftovers(storage.path_of(run))
        yield


def paths(given: Given, flag: str, *, none: bool = False) -> list[str]:
    """The paths of a flag; raises AssayError if one is empty or, unless `none`, there is none."""
    value = given[flag].value
    listed = value if isinstance(value, list) else [value]
    if none and not listed:
        return []
    if not listed or not all(listed):
        allowed = given[flag].help.split(". ")[0].rstrip(".")
        raise AssayError(f"--{flag} is missing; allowed: {allowed[0].lower()}{allowed[1:]}")
    return listed


def _define(given: FlagValues, stated: Flags) -> None:
    kinds: dict[type, Any] = {  # Any: overloaded functions
        list: flags.DEFINE_list,
        tuple: flags.DEFINE_multi_string,
        bool: flags.DEFINE_bool,
    }
    integer: Any = flags.DEFINE_integer
    for name, (default, meaning, *bounds) in stated.items():
        define = integer if bounds else kinds.get(type(default), flags.DEFINE_string)
        define(name, default, meaning, *bounds, flag_values=given)


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
