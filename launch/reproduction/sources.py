"""Where a model's files come from, and which of them may be removed again."""

import contextlib
import shutil
from pathlib import Path

from configs.known_models import ModelSpec
from engine.checkpoint.card import Checkpoint
from engine.convert import safetensors
from engine.errors import AssayError
from engine.runs import storage
from engine.settings import ConvertSettings
from launch.common import converting, scoring
from launch.reproduction.call import Call

_DOWNLOADS = "downloads"  # in the root: what is downloaded with --keep=none, and removed again
_RANDOM = 8  # characters that `tempfile` adds


def folder_of(call: Call, spec: ModelSpec) -> Path | None:
    """A model's folder in --source-dir; None without the flag, or where the folder lacks it."""
    folders = [call.source_dir / name for name in _names(spec)] if call.source_dir else []
    return next((one for one in folders if (one / "config.json").is_file()), None)


def _names(spec: ModelSpec) -> tuple[str, str]:
    return spec.hub_id.replace("/", "--"), spec.slug


def refusal(call: Call, spec: ModelSpec) -> AssayError:
    """The error for a model that --source-dir lacks."""
    return AssayError(
        f"--source-dir={call.source_dir}: no folder of {spec.hub_id}; allowed: "
        f"{' or '.join(_names(spec))}, with its config.json"
    )


def hub_cache() -> Path:
    """The folder into which the hub's client downloads."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def cache_of(call: Call, spec: ModelSpec) -> Path:
    """The folder into which a model is downloaded.

    The hub's cache; with --keep=none a folder of the root, unless the hub's cache holds the whole
    model. So nothing has to be removed from the hub's cache, which other programs use too.
    """
    below = call.root / _DOWNLOADS
    started = (below / _repository(spec)).is_dir()
    if (call.keep == "none" or started) and not _is_whole(hub_cache(), spec):
        return below
    return hub_cache()


def is_fetched(call: Call, spec: ModelSpec) -> bool:
    """Whether a model's weights need no download."""
    return call.source_dir is not None or _is_whole(cache_of(call, spec), spec)


def converted(call: Call, spec: ModelSpec) -> Checkpoint:
    """The model's checkpoint; its files are fetched and converted where it is not there.

    Raises:
      AssayError: no such folder or repository, other weights than the registry's, or no room.
    """
    destination, config = call.checkpoint(spec), call.config
    folder = folder_of(call, spec)
    if not destination.exists():
        if folder is None and call.source_dir is not None:
            raise refusal(call, spec)
        # What killed conversions have left; the runs are locked.
        for left in destination.parent.glob(f".{spec.slug}-{'?' * _RANDOM}"):
            _remove(left)
        converting.convert(
            spec.hub_id if folder is None else str(folder),
            storage.path_of(destination),
            spec if config.check_identity else None,
            ConvertSettings(
                bos=spec.bos,
                date=spec.date,
                head="" if config.check_identity else spec.head,
                check_memory=config.check_memory,
            ),
            slug=spec.slug,
            revision=None if folder is not None else spec.revision,
            cache=cache_of(call, spec),
        )
    return Checkpoint.open(destination, verify=scoring.verify_setting(config))


def remove(call: Call, spec: ModelSpec) -> int:
    """Removes a model's checkpoint, and its download below the root.

    A link stays. A folder of --source-dir and the hub's cache are never touched.

    Returns:
      Bytes that became free.
    """
    folders = [call.checkpoint(spec)]
    if not (call.root / _DOWNLOADS).is_symlink():  # a link leads to what others may use
        folders.append(call.root / _DOWNLOADS / _repository(spec))
    return sum(_remove(folder) for folder in folders)


def _remove(folder: Path) -> int:
    if folder.is_symlink():  # which stays, as does what it points to
        return 0
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    freed = sum(path.stat().st_size for path in files)
    shutil.rmtree(folder, ignore_errors=True)
    return 0 if folder.exists() else freed


def _repository(spec: ModelSpec) -> str:
    return f"models--{spec.hub_id.replace('/', '--')}"


def _is_whole(cache: Path, spec: ModelSpec) -> bool:
    """Whether a cache holds all weights of a model, of the pinned revision where there is one."""
    for snapshot in (cache / _repository(spec)).glob(f"snapshots/{spec.revision or '*'}"):
        with contextlib.suppress(AssayError):
            return bool(safetensors.weight_files(snapshot, safetensors.file_names(snapshot)))
    return False
