"""Where a model's files come from, and which of them may be removed again."""

import contextlib
import shutil
from pathlib import Path

from configs import known_shapes
from configs.known_models import ModelSpec
from engine.checkpoint.card import CARD, Card, Checkpoint
from engine.convert import safetensors
from engine.convert.hf_config import decoder_config
from engine.errors import AssayError
from engine.runs import storage
from launch.common import converting, scoring
from launch.common.text import say
from launch.reproduction.call import Call
from launch.reproduction.conventions import policy_of

_DOWNLOADS = "downloads"  # in the root: what is downloaded with --keep=none, and removed again
_RANDOM = 8  # characters that `tempfile` adds


def folder_of(call: Call, spec: ModelSpec) -> Path | None:
    """A model's folder in --source-dir; None without the flag, or where the folder lacks it."""
    return next((one for one in _folders(call, spec) if (one / "config.json").is_file()), None)


def _folders(call: Call, spec: ModelSpec) -> list[Path]:
    """Where --source-dir may have a model."""
    return [] if call.source_dir is None else [call.source_dir / name for name in _names(spec)]


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

    Its card is kept below the root, so that results can be compared with weights later.

    Raises:
      AssayError: no such folder or repository, other weights than the registry's, no room, or a
        checkpoint that is of other weights or was converted with other settings.
    """
    destination, config = call.checkpoint(spec), call.config
    if destination.exists():
        _check(call, spec, Checkpoint.open(destination))
    else:
        _convert(call, spec, destination)
    checkpoint = Checkpoint.open(destination, verify=scoring.verify_setting(config))
    kept, place = kept_card(call, spec), storage.path_of(_kept(call, spec)) / CARD
    if kept is not None and kept.checkpoint_hash != checkpoint.card.checkpoint_hash:
        raise AssayError(
            f"checkpoint {destination}: other weights than those of {place}, which results below "
            f"{call.root} were computed from; allowed: these, another --root, or remove that file "
            "if there are no results"
        )
    if kept != checkpoint.card:
        storage.write_atomic(place, checkpoint.card.to_json().encode())
    return checkpoint


def _convert(call: Call, spec: ModelSpec, destination: Path) -> None:
    folder, config = folder_of(call, spec), call.config
    if folder is None and call.source_dir is not None:
        raise refusal(call, spec)
    # What killed conversions have left; the runs are locked.
    for left in destination.parent.glob(f".{spec.slug}-{'?' * _RANDOM}"):
        _remove(left)
    converting.convert(
        spec.hub_id if folder is None else str(folder),
        storage.path_of(destination),
        spec if config.check_identity else None,
        slug=spec.slug,
        policy=policy_of(spec),
        revision=None if folder is not None else spec.revision,
        head="" if config.check_identity else spec.head,
        check_memory=config.check_memory,
        cache=cache_of(call, spec),
    )


def _check(call: Call, spec: ModelSpec, checkpoint: Checkpoint) -> None:
    """Refuses a checkpoint that is not the model in our conventions, or has another source.

    With a folder of --source-dir it must have that folder's weights; otherwise it must come from
    the hub, or from a folder of --source-dir that was removed since.
    """
    where, card, folder = f"checkpoint {checkpoint.path}", checkpoint.card, folder_of(call, spec)
    for name, has, allowed in differences(card, spec, call.config.check_identity):
        raise AssayError(f"{where}: {name}={has!r}; allowed: {allowed!r}; remove it")
    if folder is not None:
        if reason := _unlike_weights(call, card, folder, call.checkpoint(spec) / CARD):
            raise AssayError(f"{where}: {reason}; remove it, or give another --source-dir")
    elif card.source not in (spec.hub_id, *map(str, _folders(call, spec))):
        raise AssayError(
            f"{where}: source={card.source!r}; allowed: {spec.hub_id!r}, or --source-dir with the "
            "folder that it was converted from; remove it, or give that"
        )


def differences(card: Card, spec: ModelSpec, identity: bool) -> list[tuple[str, object, object]]:
    """What a card states that is not of the model in our conventions: name, value, allowed one."""
    pairs: list[tuple[str, object, object]] = [
        ("slug", card.slug, spec.slug),
        ("head", card.head.kind, spec.head or "lm"),
    ]
    if spec.head:  # a language model reads no template, or its own
        pairs.append(("policy", card.policy, policy_of(spec)))
    if identity:
        softcap = decoder_config(known_shapes.config_json(spec)).attention_softcap
        pairs.append(("attention_softcap", card.decoder.attention_softcap, softcap))
        if spec.revision and card.revision:
            pairs.append(("revision", card.revision, spec.revision))
    return [pair for pair in pairs if pair[1] != pair[2]]


def kept_card(call: Call, spec: ModelSpec) -> Card | None:
    """The card of the checkpoint that a model's results were computed with; None: not computed."""
    folder = _kept(call, spec)
    with contextlib.suppress(AssayError):  # damaged, or of another version: as if there were none
        return Checkpoint.open(folder).card if (folder / CARD).is_file() else None
    return None


def check_folder(call: Call, spec: ModelSpec) -> None:
    """Raises AssayError for other weights in --source-dir than those of a model's results."""
    folder, card = folder_of(call, spec), kept_card(call, spec)
    if folder is None or card is None:
        return
    if reason := _unlike_weights(call, card, folder, _kept(call, spec) / CARD):
        raise AssayError(
            f"results of {spec.slug} below {call.root}: {reason}; allowed: the folder that they "
            "were computed from, or another --root"
        )


def _kept(call: Call, spec: ModelSpec) -> Path:
    """The folder that keeps a model's card when its checkpoint is removed."""
    return call.root / "sources" / spec.slug


def _unlike_weights(call: Call, card: Card, folder: Path, written: Path) -> str:
    """How the weights of a checkpoint differ from those of a folder; "" where they do not.

    The folder that was converted is not read again while none of its files is younger than the
    card at `written`, unless --config.verify=true.
    """
    files = safetensors.TensorFiles.open(folder)
    if sorted(files.files) != sorted(card.files):
        return f"converted from {', '.join(card.files)}, and {folder} has {', '.join(files.files)}"
    places = [folder, *(folder / name for name in files.files)]
    changed = max(t for one in places for t in (one.stat().st_ctime, one.lstat().st_ctime))
    as_it_was = card.source == str(folder) and changed < written.stat().st_mtime
    if as_it_was and not scoring.verify_setting(call.config):
        return ""
    say(f"comparing the weights of {folder}")
    hashes = files.hashes()
    if differ := sorted(name for name in hashes if hashes[name] != card.files[name]):
        return f"converted from another {differ[0]} than that of {folder}"
    return ""


def remove(call: Call, spec: ModelSpec) -> int:
    """Removes a model's checkpoint, and its download below the root.

    A link is removed, not what it points to. A folder of --source-dir and the hub's cache are never
    touched.

    Returns:
      Bytes that became free.
    """
    folders = [call.checkpoint(spec)]
    if not (call.root / _DOWNLOADS).is_symlink():  # a link leads to what others may use
        folders.append(call.root / _DOWNLOADS / _repository(spec))
    return sum(_remove(folder) for folder in folders)


def _remove(folder: Path) -> int:
    if folder.is_symlink():
        folder.unlink()
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
            return bool(safetensors.shard_names(snapshot))
    return False
