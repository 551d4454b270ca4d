"""Where a model's files come from, and which of them may be removed again."""

import json
import shutil
from pathlib import Path

from configs.known_models import ModelSpec
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.runs import storage
from launch.common import converting, scoring
from launch.reproduction.asked import Asked
from launch.reproduction.readings import policy_of

_DOWNLOADED = "downloaded.json"  # in the root: hub ids whose files this command put into the cache


def folder_of(asked: Asked, spec: ModelSpec) -> Path | None:
    """A model's folder in --source-dir; None without the flag.

    Raises:
      AssayError: the folder lacks it.
    """
    if asked.source_dir is None:
        return None
    owner, name = spec.hub_id.split("/")
    names = (f"{owner}--{name}", spec.slug, name, f"{owner}/{name}")
    for each in names:
        if (asked.source_dir / each / "config.json").is_file():
            return asked.source_dir / each
    raise AssayError(
        f"--source-dir={asked.source_dir}: no folder of {spec.hub_id}; allowed: {names[0]} or "
        f"{spec.slug}, with its config.json"
    )


def cache() -> Path:
    """The folder into which the hub's client downloads."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def is_fetched(asked: Asked, spec: ModelSpec) -> bool:
    """Whether a model's weights need no download: a folder holds them, or the hub's cache does.

    Raises:
      AssayError: --source-dir has no folder of the model.
    """
    if folder_of(asked, spec) is not None:
        return True
    return any(_cache_of(spec.hub_id).glob("snapshots/*/*.safetensors"))


def converted(asked: Asked, spec: ModelSpec) -> Checkpoint:
    """The model's checkpoint; its files are fetched and converted where it is not there.

    Raises:
      AssayError: no such folder or repository, other weights than the registry's, or no room.
    """
    destination, config = asked.checkpoint(spec), asked.config
    verify = scoring.verify(config)
    if destination.exists():
        checkpoint = Checkpoint.open(destination, verify=verify)
        if checkpoint.card.slug != spec.slug:
            raise AssayError(
                f"checkpoint {destination}: of {checkpoint.card.slug!r}; allowed: {spec.slug!r}; "
                "remove it"
            )
        return checkpoint
    folder = folder_of(asked, spec)
    if folder is None:
        _note_download(asked, spec)
    checkpoint = converting.convert(
        spec.hub_id if folder is None else str(folder),
        storage.path_of(destination),
        spec if config.check_identity else None,
        slug=spec.slug,
        policy=policy_of(spec),
        revision=None if folder is not None else spec.revision,
        head="" if config.check_identity else spec.head,
        check_memory=config.check_memory,
    )
    return Checkpoint.open(checkpoint.path, verify=verify)


def remove(asked: Asked, spec: ModelSpec) -> int:
    """Removes a model's checkpoint, and its download if this command put it into the hub's cache.

    A folder of --source-dir is never touched.

    Returns:
      Bytes that became free.
    """
    freed, folder = 0, asked.checkpoint(spec)
    if folder.is_dir():
        freed += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        shutil.rmtree(folder)
    if spec.hub_id in _downloaded(asked.root):
        freed += _forget(spec.hub_id)
        _write(asked.root, [name for name in _downloaded(asked.root) if name != spec.hub_id])
    return freed


def _note_download(asked: Asked, spec: ModelSpec) -> None:
    """Remembers, before anything is fetched, that a model's files will be there for us alone."""
    if asked.keep == "none" and not _cache_of(spec.hub_id).exists():
        _write(asked.root, [*_downloaded(asked.root), spec.hub_id])


def _cache_of(hub_id: str) -> Path:
    return cache() / f"models--{hub_id.replace('/', '--')}"


def _forget(hub_id: str) -> int:
    folder = _cache_of(hub_id)
    if not folder.is_dir():
        return 0
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    freed = sum(path.stat().st_size for path in files)
    shutil.rmtree(folder)
    return freed


def _downloaded(root: Path) -> list[str]:
    path = root / _DOWNLOADED
    try:
        names = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    except ValueError:
        return []  # nothing is removed on the word of a damaged file
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _write(root: Path, names: list[str]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    text = json.dumps(sorted(set(names)))
    storage.write_atomic(storage.path_of(root / _DOWNLOADED), text.encode())
