"""A command's settings: fields of classes in `engine.settings`, and the values set over them.

`--config=<file>[:<selection>]` names a Python file whose get_config() returns the values that
differ, as a dict; `--config.<key>=<value>` sets one value.
"""

import dataclasses
import re
import runpy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from absl.flags import FlagValues
from ml_collections import ConfigDict, config_dict, config_flags

from engine.errors import AssayError
from engine.settings import LoadingSettings, SourceSettings, SweepSettings
from launch.common.text import nearest

# What every command that scores rows takes.
SCORING = (SweepSettings, LoadingSettings)
# Of commands that take a folder or a hub id as well as a checkpoint.
SCORING_ANY = (*SCORING, SourceSettings)

_Made = TypeVar("_Made")
# As ml_collections recognises an override; a boolean may be turned off as `--noconfig.key`.
_OVERRIDE = re.compile(r"--?(?:no)?config\.(?P<key>[^=]*)")


class CommandSettings:
    """The settings of a command.

    Args:
      *classes: of `engine.settings`; of two fields of one name the first counts.
      without: names of fields that are left out.
      **changed: values other than the declared ones; of a section, its values that differ.
    """

    # Any: values are of several types.
    def __init__(self, *classes: type, without: Sequence[str] = (), **changed: Any):
        self.classes, self._without, self._changed = classes, without, changed

    def defaults(self) -> ConfigDict:
        """The values that they have without a file and overrides."""
        config = ConfigDict()
        for field in (field for cls in self.classes for field in dataclasses.fields(cls)):
            if field.name not in (*self._without, *config):
                config[field.name] = _default(field)
        config.update(self._changed)
        return config

    def read(self, chosen: str | None) -> tuple[ConfigDict, list[str]]:
        """The values under a file, and the keys that the file sets; None is no file.

        Raises:
          AssayError: no such file, no valid Python, no get_config(), a selection that it refuses,
            or a key or value that the command does not take.
        """
        config = self.defaults()
        changes = {} if chosen is None else _values(chosen)
        keys = list(_keys(changes))
        for key in keys:
            check_key(config, key)
        for key, value in changes.items():
            if isinstance(config[key], ConfigDict) and not isinstance(value, Mapping):
                raise AssayError(f"--config={chosen}: {key}={value!r}; allowed: a dict")
            if value is None and config[key] is not None:
                raise AssayError(f"--config={chosen}: {key}=None; allowed: a value")
        try:
            config.update(changes)
        except (TypeError, ValueError) as error:
            raise AssayError(f"--config={chosen}: {' '.join(str(error).split())}") from error
        return config, keys

    # Any: values of several types.
    def described(self, chosen: str | None) -> Iterator[tuple[str, Any, str]]:
        """Key, value under a file, and meaning of every setting, for `--help`."""
        return _described(self.read(chosen)[0], self.classes, "")


def define(given: FlagValues, settings: CommandSettings, arguments: Sequence[str]) -> None:
    """Replaces the text flag `--config` by the settings, overrides applied on parsing.

    `arguments` are the command line that `given` will parse next; it names no config file.

    Raises:
      AssayError: as `CommandSettings.read`, or an override of a key that the command does not take.
    """
    config, keys = settings.read(given.config)
    for argument in arguments:
        if override := _OVERRIDE.match(argument):
            check_key(config, override["key"])
    del given.config
    config_flags.DEFINE_config_dict("config", config, flag_values=given, sys_argv=["", *arguments])
    flag: Any = given["config"]
    flag.keys_of_file = keys  # beside those that absl notes of the command line


def keys_set(given: Any) -> list[str]:  # parsed FlagValues
    """The keys, as `mesh.model`, that a file or the command line sets."""
    return [*given["config"].keys_of_file, *keys_typed(given)]


def keys_typed(given: Any) -> list[str]:  # parsed FlagValues
    """The keys that the command line sets."""
    return list(config_flags.get_override_values(given["config"]))


def made(settings: type[_Made], config: ConfigDict) -> _Made:
    """An instance of a settings class: of its fields those in a config, the others by default."""
    return settings(**given_fields(settings, config))


# Any: settings are of several types.
def given_fields(settings: Any, config: ConfigDict) -> dict[str, Any]:
    """The fields of a settings class that a config has, by name; a section as an instance."""
    fields = {}
    for field in dataclasses.fields(settings):
        if field.name in config:
            value = config[field.name]
            is_section = isinstance(value, ConfigDict)
            fields[field.name] = made(cast(type, field.type), value) if is_section else value
    return fields


def check_key(config: ConfigDict, key: str) -> None:
    """Refuses a key, as `mesh.model`, that the command does not take."""
    section = config
    for name in key.split("."):
        known = list(section) if isinstance(section, ConfigDict) else []
        if name not in known:
            raise AssayError(f"--config has no key {name!r}{nearest(name, known)}")
        section = section[name]


# Any: values of several types.
def _default(field: dataclasses.Field[Any]) -> Any:
    if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
        return CommandSettings(field.type).defaults()
    value = field.metadata["command"]
    if value is None:
        return config_dict.placeholder(field.type)
    if isinstance(value, str) and value and field.type is not str:  # a word in place of a number
        return config_dict.FieldReference(value, field_type=object)
    return value


# Any: values of several types.
def _described(
    config: ConfigDict, classes: Sequence[type], above: str
) -> Iterator[tuple[str, Any, str]]:
    """Key, value and meaning of every setting; a section that is another command's is one entry."""
    fields = {f.name: f for cls in reversed(classes) for f in dataclasses.fields(cls)}
    for name, value in config.items():
        field = fields[name]
        if not isinstance(value, ConfigDict):
            yield f"{above}{name}", value, field.metadata["help"]
        elif field.metadata["like"]:
            yield f"{above}{name}.<key>", None, field.metadata["help"]
        else:
            yield from _described(value, (cast(type, field.type),), f"{above}{name}.")


# Any: values of several types.
def _values(chosen: str) -> Mapping[str, Any]:
    """What get_config() of `<file>` or `<file>:<selection>` returns."""
    path, colon, selection = chosen.partition(":")
    if re.fullmatch(r"(configs/)?\w+(\.py)?", path) and not Path(path).is_file():
        import configs  # of an installed package, by its name

        path = str(Path(configs.__file__).with_name(f"{Path(path).stem}.py"))
    if not Path(path).is_file():
        raise AssayError(f"--config: No such file or directory: {chosen.partition(':')[0]!r}")
    try:
        get_config = runpy.run_path(path).get("get_config", lambda *_: None)
        values = get_config(selection) if colon else get_config()
    except Exception as error:  # whatever the user's file raises
        raise AssayError(f"--config: {error}") from error
    if not isinstance(values, Mapping | ConfigDict):
        raise AssayError(f"--config: {path}: no function get_config() that returns a dict")
    return values


def _keys(values: Mapping[str, Any], above: str = "") -> Iterator[str]:  # Any: of several types
    for name, value in values.items():
        if isinstance(value, Mapping | ConfigDict):
            yield from _keys(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"
