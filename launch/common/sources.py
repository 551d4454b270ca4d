"""Turns what a command line calls a model (a checkpoint, a folder, a hub id) into its checkpoint.

A model that is no checkpoint is converted into the cache (`launch/common/model_cache.py`), unless
the cache holds it. What is no folder is looked up on the hub only where it can be nothing else.
"""

import collections
import dataclasses
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from engine.checkpoint.card import CARD, Checkpoint
from engine.errors import AssayError
from engine.runs import schema, storage
from engine.settings import ConvertSettings

_PLAIN = {field.name: field.default for field in dataclasses.fields(ConvertSettings)}
_HUB_ID = re.compile(r"(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)
_MODEL_FILES = (CARD, "config.json", "adapter_config.json")
# Names that trainers give to every model: the folder above says which one it is.
_ANY_MODEL = re.compile(
    r"(final|best|last|latest|merged|model|(checkpoint|step|epoch)[-_]?\d*)"
    r"([-_]?(model|checkpoint|merged))?"
)
RULE = (
    "allowed: a checkpoint, a model's folder, or a hub id owner/name, which is looked up where no "
    "folder `owner` is here, and as owner/name@<revision>"
)


def checkpoints(
    names: Sequence[str], config: ConfigDict, verify: bool | None = None
) -> list[Checkpoint]:
    """`opened` checkpoints; different models of one name are renamed."""
    return with_distinct_names(names, opened(names, config, verify))


def opened(
    names: Sequence[str], config: ConfigDict, verify: bool | None = None
) -> list[Checkpoint]:
    """The checkpoints of models, those converted that are none yet.

    Args:
      names: checkpoints, folders in Hugging Face format, or hub ids.
      config: settings with `check_memory` and the fields of `engine.settings.SourceSettings`;
        `base` is that of the adapters among the models.
      verify: as for `Checkpoint.open`.

    Raises:
      AssayError: a name that stands for nothing, before the first model is fetched or converted; a
        model that cannot be converted; or settings of conversion where nothing is converted.
    """
    others = {name: split(name) for name in names if not is_checkpoint(name)}
    for name in others:
        if Path(name).is_dir() and not is_model(name):
            raise AssayError(
                f"{name}: no checkpoint ({CARD} is missing) and no model's folder (config.json is)"
            )
    adapters = _check_settings(config, others)
    models = []
    for name in names:
        if name in others:
            from launch.common import model_cache  # what a sweep of checkpoints does not need

            base = config.base if name in adapters else ""
            own = ConfigDict({**config, "base": base})
            models.append(model_cache.checkpoint(*others[name], own, verify))
        else:
            models.append(Checkpoint.open(name, verify=verify))
    return models


def plain_checkpoints(
    names: Sequence[str], config: ConfigDict, verify: bool | None = None
) -> list[Checkpoint]:
    """The checkpoints of models to which the settings of conversion do not apply."""
    return checkpoints(names, ConfigDict({**config, "base": "", "convert": _PLAIN}), verify)


# Any: settings are of several types.
def of_notebook(
    models: Sequence[str | os.PathLike[str]],
    how: Mapping[str, Any],
    convert: Mapping[str, Any],
    verify: bool | None = None,
) -> list[Checkpoint]:
    """`checkpoints` of what a Python caller names; `how` has `check_memory`, `base` and `cache`."""
    for model in models:
        if not isinstance(model, str | os.PathLike):
            raise AssayError(f"model={model!r}; {RULE}")
        if not isinstance(model, str) and not Path(model).is_dir():
            raise AssayError(f"{model}: no such folder; {RULE}")
    if not isinstance(convert, Mapping):
        raise AssayError(f"convert={convert!r}; allowed: a dict of settings of `assay convert`")
    plain = {"base": "", "cache": "", "check_memory": True, **_PLAIN}
    for name, value in {**how, **convert}.items():
        if name not in plain or (name in convert and name not in _PLAIN):
            raise AssayError(f"convert: no setting {name!r}; allowed: {', '.join(_PLAIN)}")
        if type(value) is not type(plain[name]):
            kind = type(plain[name]).__name__
            raise AssayError(f"{name}={value!r}; allowed: values of type {kind}")
    config = ConfigDict({**how, "convert": {**_PLAIN, **convert}})
    return checkpoints([os.fspath(model) for model in models], config, verify)


def is_checkpoint(name: str) -> bool:
    """Whether a name is that of a checkpoint, or of a place in a store, where nothing else is."""
    return storage.is_remote(name) or storage.is_file(storage.path_of(name) / CARD)


def is_model(name: str) -> bool:
    """Whether a name is that of a checkpoint, a model's folder or a hub id: of no run."""
    path = storage.path_of(name)
    if storage.exists(path):
        return any(storage.is_file(path / file) for file in _MODEL_FILES)
    return hub_id(name) is not None


def hub_id(name: str) -> tuple[str, str | None] | None:
    """A hub id and its revision; None for a name that is, or might be meant as, a path."""
    found = _HUB_ID.fullmatch(name)
    if found is None or Path(name).exists():
        return None
    if found["revision"] is None and Path(name.partition("/")[0]).exists():
        return None
    return found["name"], found["revision"]


def split(name: str) -> tuple[str, str | None]:
    """A folder or a hub id, and the revision of the latter; raises AssayError for anything else."""
    if Path(name).is_dir():
        return name, None
    if name.startswith("~") and Path(name).expanduser().is_dir():  # `--checkpoint=~/rm` in bash
        return os.path.expanduser(name), None
    found = hub_id(name)
    if found is None:
        raise AssayError(f"{name}: no such folder; {RULE}")
    return found


def name_of(source: str, depth: int = 1) -> str:
    """A model's name in runs: of its entry in configs/known_models.py, else of its folders.

    The name is the last `depth` parts of the path, or one more where these are what any model is
    called. Raises AssayError where no model can have that name.
    """
    from configs import known_models  # what a sweep of checkpoints does not import

    place = os.path.abspath(source) if Path(source).is_dir() else source.replace("@", "-")
    spec = known_models.find(place)
    if spec is not None and depth == 1:
        return spec.slug
    parts = [part for part in place.split("/") if part]
    if depth == 1 and _ANY_MODEL.fullmatch(parts[-1].lower()):
        depth = 2
    name = re.sub(r"[^a-z0-9._-]+", "-", "-".join(parts[-depth:]).lower()).strip("-._")
    try:
        schema.check_names([name])
    except AssayError as error:
        raise AssayError(f"source={source!r}: {error}; give one as --config.slug") from error
    return name


def with_distinct_names(places: Sequence[str], models: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Renames different models of one name after as many of their folders as tell them apart."""
    if not models:
        return []
    places = [os.path.abspath(place) if Path(place).is_dir() else place for place in places]
    names = [model.card.slug for model in models]
    for depth in range(1, 2 + max(place.count("/") for place in places)):
        hashes = collections.defaultdict(set)
        for name, model in zip(names, models, strict=True):
            hashes[name].add(model.card.checkpoint_hash)
        if all(len(each) == 1 for each in hashes.values()):
            break
        names = [
            name_of(place, depth) if len(hashes[name]) > 1 else name
            for name, place in zip(names, places, strict=True)
        ]
    return [
        dataclasses.replace(model, card=dataclasses.replace(model.card, slug=name))
        for name, model in zip(names, models, strict=True)
    ]


def _check_settings(
    config: ConfigDict, converted: Mapping[str, tuple[str, str | None]]
) -> Collection[str]:
    """Refuses settings of conversion that no model, or more than one model, could take.

    Returns:
      The adapters among the models, to which a `base` applies; none without one.
    """
    given = [f"convert.{key}" for key in _PLAIN if config.convert[key] != _PLAIN[key]]
    given += [key for key in ("base",) if config[key]]
    if given and not converted:
        raise AssayError(
            f"--config.{given[0]}: every model is a checkpoint, so none is converted; allowed: a "
            "model's folder or a hub id"
        )
    if config.convert.slug and len(converted) > 1:
        raise AssayError(
            f"--config.convert.slug={config.convert.slug!r}: {len(converted)} models are "
            "converted; allowed: the name of one"
        )
    if not config.base:
        return ()
    from engine.convert import hub  # what a sweep of checkpoints does not need

    adapters = [name for name, place in converted.items() if hub.is_adapter(*place)]
    if not adapters:
        raise AssayError(
            f"--config.base={config.base!r}: no model is an adapter of peft; remove it"
        )
    return adapters
