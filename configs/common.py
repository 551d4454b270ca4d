"""How a command's ConfigDict is made of the settings that `engine.settings` declares."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict, config_dict

from engine.settings import LoadingSettings, SourceSettings, SweepSettings

# What every command that scores rows takes.
SCORING = (SweepSettings, LoadingSettings)
# Of commands that take a folder or a hub id as well as a checkpoint.
SCORING_ANY = (*SCORING, SourceSettings)


# Any: values are of several types.
def config_of(
    *classes: type, only: Sequence[str] = (), without: Sequence[str] = (), **changed: Any
) -> ConfigDict:
    """The fields of some settings classes with the values that they have on the command line.

    Args:
      *classes: of `engine.settings`; of two fields of one name the first counts.
      only: names of the fields; empty: all.
      without: names of fields that are left out.
      **changed: values other than the declared ones; of a section, its values that differ.
    """
    config = ConfigDict()
    for field in (field for each in classes for field in dataclasses.fields(each)):
        wanted = field.name in only if only else field.name not in without
        if wanted and field.name not in config:
            config[field.name] = _value(field)
    config.update(changed)
    return config


def _value(field: dataclasses.Field[Any]) -> Any:
    if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
        return config_of(field.type)
    value = field.metadata["command"]
    if value is None:
        return config_dict.placeholder(field.type)
    if isinstance(value, str) and value and field.type is not str:  # a word in place of a number
        return config_dict.FieldReference(value, field_type=object)
    return value
