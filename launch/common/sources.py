"""The models of a command line -> checkpoints."""

from collections.abc import Sequence

from ml_collections import ConfigDict

from configs import known_models
from engine.checkpoint.card import Checkpoint
from engine.settings import ConvertSettings, SourceSettings
from engine.sources import resolve


def checkpoints(names: Sequence[str], config: ConfigDict, verify: bool = True) -> list[Checkpoint]:
    """`opened` checkpoints; different models of one name are renamed."""
    opened_ = opened(names, config, verify)
    return resolve.with_distinct_names(names, opened_, known_models.find)


def opened(
    names: Sequence[str], config: ConfigDict, verify: bool = True, *, plain: bool = False
) -> list[Checkpoint]:
    """`resolve_all` of a config with the fields of `SourceSettings`.

    The settings of conversion do not apply to `plain` models.
    """
    chosen = {} if plain else config.convert.to_dict()
    settings = SourceSettings(
        cache=config.cache, base="" if plain else config.base, convert=ConvertSettings(**chosen)
    )
    return resolve.resolve_all(names, settings, known_models.find, verify)
