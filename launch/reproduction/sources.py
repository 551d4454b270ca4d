"""Where a model's files come from, and which of them may be removed again."""

import shutil
from pathlib import Path

from configs import known_shapes
from configs.known_models import ModelSpec
from engine.checkpoint.card import Card, Checkpoint
from engine.convert import safetensors
from engine.convert.hf_config import decoder_config
from engine.errors import AssayError
from engine.runs import storage
from launch.common import converting, scoring
from launch.reproduction.asked import Asked
from launch.reproduction.readings import policy_of

_DOWNLOADS = "downloads"  # in the root: what is downloaded with --keep=none, and removed again


def folder_of(asked: Asked, spec: ModelSpec) -> Path | None:
    """A model's folder in --source-dir; None without the flag, or where the folder lacks it."""
    if asked.source_dir is None:
        return None
    names = (*_names(spec), spec.hub_id.rpartition("/")[2], spec.hub_id)
    found = [asked.source_dir / name for name in names]
    return next((each for each in found if (each / "config.json").is_file()), None)


def refusal(asked: Asked, spec: ModelSpec) -> AssayError:
    """What is said of a model that --source-dir lacks."""
    return AssayError(
        f"--source-dir={asked.source_dir}: no folder of {spec.hub_id}; allowed: "
        f"{' or '.join(_names(spec))}, with its config.json"
    )


def _names(spec: ModelSpec) -> tuple[str, str]:
    return spec.hub_id.replace("/", "--"), spec.slug


def cache() -> Path:
    """The folder into which the hub's client downloads."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def cache_of(asked: Asked, spec: ModelSpec) -> Path:
    """The folder into which a model is downloaded.

    The hub's cache; with --keep=none a folder of the root, unless the hub's cache holds the whole
    model. So nothing has to be removed from the hub's cache, which other programs use too.
    """
    own = asked.root / _DOWNLOADS
    begun = (own / _repository(spec)).is_dir()
    if (asked.keep == "none" or begun) and not _is_whole(cache(), spec):
        return own
    return cache()


def fetched_bytes(asked: Asked, spec: ModelSpec, size: int) -> int:
    """Bytes of a model's weights that need no download.

    Args:
      asked: the call.
      spec: the model.
      size: bytes of its weights.
    """
    place = cache_of(asked, spec)
    if asked.source_dir is not None or _is_whole(place, spec):
        return size
    sums = [sum(_sizes(snapshot)) for snapshot in _snapshots(place, spec)]
    return min(size, max(sums, default=0))


def converted(asked: Asked, spec: ModelSpec) -> Checkpoint:
    """The model's checkpoint; its files are fetched and converted where it is not there.

    Raises:
      AssayError: no such folder or repository, other weights than the registry's, no room, or a
        checkpoint that was converted otherwise.
    """
    destination, config = asked.checkpoint(spec), asked.config
    verify = scoring.verify(config)
    if destination.exists():
        checkpoint = Checkpoint.open(destination, verify=verify)
        for name, own, allowed in _differences(checkpoint.card, spec, config.check_identity):
            raise AssayError(
                f"checkpoint {destination}: {name}={own!r}; allowed: {allowed!r}; remove it"
            )
        return checkpoint
    folder = folder_of(asked, spec)
    if folder is None and asked.source_dir is not None:
        raise refusal(asked, spec)
    checkpoint = converting.convert(
        spec.hub_id if folder is None else str(folder),
        storage.path_of(destination),
        spec if config.check_identity else None,
        slug=spec.slug,
        policy=policy_of(spec),
        revision=None if folder is not None else spec.revision,
        head="" if config.check_identity else spec.head,
        check_memory=config.check_memory,
        cache=cache_of(asked, spec),
    )
    return Checkpoint.open(checkpoint.path, verify=verify)


def _differences(card: Card, spec: ModelSpec, identity: bool) -> list[tuple[str, object, object]]:
    """What a checkpoint states that is not of the model in our conventions: name, own, allowed."""
    pairs: list[tuple[str, object, object]] = [
        ("slug", card.slug, spec.slug),
        ("head", card.head.kind, spec.head or "lm"),
    ]
    if spec.head:  # a language model reads no template, or its own
        pairs.append(("policy", card.policy, policy_of(spec)))
    if identity:
        expected = decoder_config(known_shapes.config_json(spec)).attention_softcap
        pairs.append(("attention_softcap", card.decoder.attention_softcap, expected))
        if spec.revision and card.revision:
            pairs.append(("revision", card.revision, spec.revision))
    return [pair for pair in pairs if pair[1] != pair[2]]


def remove(asked: Asked, spec: ModelSpec) -> int:
    """Removes a model's checkpoint, and its download below the root.

    A link is removed, not what it points to. A folder of --source-dir and the hub's cache are never
    touched.

    Returns:
      Bytes that became free.
    """
    folders = [asked.checkpoint(spec)]
    if not (asked.root / _DOWNLOADS).is_symlink():  # a link leads to what others may use
        folders.append(asked.root / _DOWNLOADS / _repository(spec))
    return sum(_remove(folder) for folder in folders)


def _remove(folder: Path) -> int:
    if folder.is_symlink():
        folder.unlink()
        return 0
    if not folder.is_dir():
        return 0
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    freed = sum(path.stat().st_size for path in files)
    shutil.rmtree(folder)
    return freed


def _repository(spec: ModelSpec) -> str:
    return f"models--{spec.hub_id.replace('/', '--')}"


def _snapshots(place: Path, spec: ModelSpec) -> list[Path]:
    """Revisions of a model in a cache: the one that is fetched, where that is pinned."""
    return sorted((place / _repository(spec)).glob(f"snapshots/{spec.revision or '*'}"))


def _sizes(snapshot: Path) -> list[int]:
    return [path.stat().st_size for path in snapshot.glob("*.safetensors")]


def _is_whole(place: Path, spec: ModelSpec) -> bool:
    """Whether a cache holds all weights of a model."""
    return any(_has_weights(snapshot) for snapshot in _snapshots(place, spec))


def _has_weights(snapshot: Path) -> bool:
    if not (snapshot / safetensors.INDEX).is_file():
        return (snapshot / safetensors.SINGLE).is_file()
    try:
        names = safetensors.indexed_names(snapshot)
    except AssayError:
        return False
    return all((snapshot / name).is_file() for name in names)
