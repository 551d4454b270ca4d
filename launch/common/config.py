"""`--config`: a Python file whose get_config() declares every setting, and the values set over it.

The file is chosen by `--config=<file>[:<selection>]`; `--config.<key>=<value>` sets one value.
"""

import dataclasses
import re
import runpy
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from absl.flags import FlagValues
from ml_collections import ConfigDict, config_flags

from engine.errors import AssayError
from launch.common.text import nearest

# As ml_collections recognises an override; a boolean may be turned off as `--noconfig.key`.
_OVERRIDE = re.compile(r"--?(?:no)?config\.(?P<key>[^=]*)")


def define(given: FlagValues, chosen: str, arguments: Sequence[str]) -> None:
    """Replaces the text flag `--config` by the config that it names, overrides applied on parsing.

    `chosen` is `<file>` or `<file>:<selection>`. `arguments` are the command line that `given` will
    parse next; it names no config file.

    Raises:
      AssayError: the file cannot be read, or an override names a key that the config lacks.
    """
    config = load(chosen)
    for argument in arguments:
        if override := _OVERRIDE.match(argument):
            check_key(config, override["key"])
    del given.config
    config_flags.DEFINE_config_dict("config", config, flag_values=given, sys_argv=["", *arguments])


def load(chosen: str) -> ConfigDict:
    """The config that `<file>` or `<file>:<selection>` names.

    Raises:
      AssayError: no such file, no valid Python, no get_config(), or a selection that it refuses.
    """
    return _read(chosen)[0]


def help_text(chosen: str) -> str:
    """What each key of a config means, with its value there, for `--help`."""
    config, classes = _read(chosen)
    lines = ["", "", "settings of --config:"]
    for key, value, meaning in _described(config, classes, ""):
        lines += textwrap.wrap(f"  --config.{key}: {meaning}", 80, subsequent_indent="    ")
        if value is not None:
            lines.append(f"    (default: {value!r})")
    return "\n".join(lines)


def as_flags(config: ConfigDict, above: str = "") -> str:
    """The settings as flags that set them, one a line."""
    lines = []
    for name, value in config.items():
        if isinstance(value, ConfigDict):
            lines.append(as_flags(value, f"{above}{name}."))
        elif value is not None:
            lines.append(f"--config.{above}{name}={shlex.quote(str(value))}")
    return "\n".join(lines)


# Any: values of several types.
def _described(
    config: ConfigDict, classes: Sequence[type], above: str
) -> Iterator[tuple[str, Any, str]]:
    """Key, value and meaning of every setting; a section that is another command's is one entry."""
    fields = {f.name: f for each in reversed(classes) for f in dataclasses.fields(each)}
    for name, value in config.items():
        field = fields.get(name)
        meaning, like = (field.metadata[key] if field else "" for key in ("help", "like"))
        if not isinstance(value, ConfigDict):
            yield f"{above}{name}", value, meaning
        elif field is None or not isinstance(field.type, type) or like:
            yield f"{above}{name}.<key>", None, meaning
        else:
            yield from _described(value, (field.type,), f"{above}{name}.")


def _read(chosen: str) -> tuple[ConfigDict, Sequence[type]]:
    """The config that a file declares, and the classes in `SETTINGS` that say what keys mean."""
    path, colon, selection = chosen.partition(":")
    if re.fullmatch(r"(configs/)?\w+(\.py)?", path) and not Path(path).is_file():
        path = default_file(Path(path).stem)  # of an installed package, by its name
    if not Path(path).is_file():
        raise AssayError(f"--config: No such file or directory: {chosen.partition(':')[0]!r}")
    try:
        declared = runpy.run_path(path)
        get_config = declared.get("get_config", lambda *_: None)
        config = get_config(selection) if colon else get_config()
    except Exception as error:  # whatever the user's file raises
        raise AssayError(f"--config: {error}") from error
    if not isinstance(config, ConfigDict):
        raise AssayError(f"--config: {path}: no function get_config() that returns a ConfigDict")
    return config, declared.get("SETTINGS", ())


def default_file(name: str) -> str:
    """Path of configs/<name>.py, wherever the command is started."""
    import configs

    return str(Path(configs.__file__).with_name(f"{name}.py"))


def check_key(config: ConfigDict, key: str) -> None:
    """Refuses a key, as `mesh.model`, that the config does not declare."""
    section = config
    for name in key.split("."):
        known = list(section) if isinstance(section, ConfigDict) else []
        if name not in known:
            raise AssayError(f"--config has no key {name!r}{nearest(name, known)}")
        section = section[name]
