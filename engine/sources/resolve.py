"""What a model is called (a checkpoint, a folder, a hub id) -> its checkpoint.

A model that is no checkpoint is converted into the cache (`engine.sources.cache`), unless the cache
holds it. What is no folder is looked up on the hub only where it can be nothing else.
"""

import collections
import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.checkpoint.card import CARD, Checkpoint
from engine.errors import AssayError
from engine.runs import schema, storage
from engine.settings import ConvertSettings, Published, SourceSettings

Known = Callable[[str], Published | None]  # the entry of a folder or hub id in a list of models

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


def resolve(
    name: str,
    known: Known,
    settings: SourceSettings | None = None,
    verify: bool = True,
) -> Checkpoint:
    """The checkpoint of a model, which is fetched and converted where that was not done yet.

    Args:
      name: a checkpoint, a folder in Hugging Face format, or a hub id.
      known: gives what is known of a published model, which its files must agree with, as
        `configs.known_models.find` does.
      settings: how it is converted, and where the result is kept.
      verify: as for `Checkpoint.open`.

    Raises:
      AssayError: a name that stands for nothing, or a model that cannot be converted.
    """
    if is_checkpoint(name):
        return Checkpoint.open(name, verify=verify)
    from engine.sources import cache  # and all of conversion, which a sweep does not import

    return cache.checkpoint(*split(name), settings or SourceSettings(), known, verify)


def resolve_all(
    names: Sequence[str], settings: SourceSettings, known: Known, verify: bool = True
) -> list[Checkpoint]:
    """`resolve` of several models; `settings.base` is that of the adapters among them.

    Raises:
      AssayError: as `resolve`, before the first model is fetched or converted; or settings of
        conversion where nothing is converted.
    """
    others = {name: split(name) for name in names if not is_checkpoint(name)}
    for name in others:
        if Path(name).is_dir() and not is_model(name):
            raise AssayError(
                f"{name}: no checkpoint ({CARD} is missing) and no model's folder (config.json is)"
            )
    given = [
        f"convert.{field.name}"
        for field in dataclasses.fields(ConvertSettings)
        if getattr(settings.convert, field.name) != field.default
    ]
    given += ["base"] if settings.base else []
    if given and not others:
        raise AssayError(
            f"--config.{given[0]}: every model is a checkpoint, so none is converted; allowed: a "
            "model's folder or a hub id"
        )
    if settings.convert.slug and len(others) > 1:
        raise AssayError(
            f"--config.convert.slug={settings.convert.slug!r}: {len(others)} models are "
            "converted; allowed: the name of one"
        )
    plain, adapters = dataclasses.replace(settings, base=""), list(others)
    if settings.base:
        from engine.convert import hub  # as above

        adapters = [name for name, place in others.items() if hub.is_adapter(*place)]
        if not adapters:
            raise AssayError(
                f"--config.base={settings.base!r}: no model is an adapter of peft; remove it"
            )
    settings_of = {name: settings if name in adapters else plain for name in names}
    return [resolve(name, known, settings_of[name], verify) for name in names]


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
    match = _HUB_ID.fullmatch(name)
    if match is None or Path(name).exists():
        return None
    if match["revision"] is None and Path(name.partition("/")[0]).exists():
        return None
    return match["name"], match["revision"]


def split(name: str) -> tuple[str, str | None]:
    """A folder or a hub id, and the revision of the latter; raises AssayError for anything else."""
    if Path(name).is_dir():
        return name, None
    if name.startswith("~") and Path(name).expanduser().is_dir():  # `--checkpoint=~/rm` in bash
        return os.path.expanduser(name), None
    on_hub = hub_id(name)
    if on_hub is None:
        raise AssayError(f"{name}: no such folder; {RULE}")
    return on_hub


def place_of(name: str) -> str:
    """The absolute path of a folder; a hub id as it is."""
    return os.path.abspath(name) if Path(name).is_dir() else name


def name_of(source: str, known: Known, depth: int = 1) -> str:
    """A model's name in runs: of its entry in a list of models, else of its folders.

    The name is the last `depth` parts of the path, or one more where these are what any model is
    called. Raises AssayError where no model can have that name.
    """
    place = os.path.abspath(source) if Path(source).is_dir() else source.replace("@", "-")
    published = known(place)
    if published is not None and depth == 1:
        return published.slug
    parts = [part for part in place.split("/") if part]
    if depth == 1 and _ANY_MODEL.fullmatch(parts[-1].lower()):
        depth = 2
    name = re.sub(r"[^a-z0-9._-]+", "-", "-".join(parts[-depth:]).lower()).strip("-._")
    try:
        schema.check_names([name])
    except AssayError as error:
        raise AssayError(f"source={source!r}: {error}; give one as --config.slug") from error
    return name


def with_distinct_names(
    names: Sequence[str], models: Sequence[Checkpoint], known: Known
) -> list[Checkpoint]:
    """Renames different models of one name after as many of their folders as tell them apart."""
    places = [place_of(name) for name in names]
    slugs = [model.card.slug for model in models]
    for depth in range(1, 2 + max((place.count("/") for place in places), default=0)):
        hashes = collections.defaultdict(set)
        for slug, model in zip(slugs, models, strict=True):
            hashes[slug].add(model.card.checkpoint_hash)
        if all(len(of_slug) == 1 for of_slug in hashes.values()):
            break
        slugs = [
            name_of(place, known, depth) if len(hashes[slug]) > 1 else slug
            for slug, place in zip(slugs, places, strict=True)
        ]
    return [
        dataclasses.replace(model, card=dataclasses.replace(model.card, slug=slug))
        for slug, model in zip(slugs, models, strict=True)
    ]
