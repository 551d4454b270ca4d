"""Where a model's files come from, and which of them may be removed again."""

import functools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from etils import epath

from configs import known_shapes
from configs.known_models import ModelSpec
from engine.checkpoint.arrays import sha256
from engine.checkpoint.card import CARD, Card, Checkpoint
from engine.convert import safetensors
from engine.convert.hf_config import decoder_config
from engine.errors import AssayError
from engine.progress import progress
from engine.runs import storage
from engine.text.tokenizer import load_tokenizer
from launch.common import converting, scoring
from launch.common.text import say
from launch.reproduction.call import Call
from launch.reproduction.conventions import policy_of

# BOS of the published tokenizers, by the type of the model: Llama 3 and Gemma.
_BOS = {"llama": 128_000, "gemma": 2, "gemma2": 2}
_HASHES = "sources/hashes.json"  # in the root: of the files of --source-dir
_DOWNLOADS = "downloads"  # in the root: what is downloaded with --keep=none, and removed again
_RANDOM = 8  # characters that `tempfile` adds


def folder_of(call: Call, spec: ModelSpec) -> Path | None:
    """A model's folder in --source-dir; None without the flag, or where the folder lacks it."""
    folders = _folders(call, spec)
    return next((each for each in folders if (each / "config.json").is_file()), None)


def _folders(call: Call, spec: ModelSpec) -> list[Path]:
    """Where --source-dir may have a model."""
    names = (*_names(spec), spec.hub_id.rpartition("/")[2], spec.hub_id)
    return [] if call.source_dir is None else [call.source_dir / name for name in names]


def _names(spec: ModelSpec) -> tuple[str, str]:
    return spec.hub_id.replace("/", "--"), spec.slug


def refusal(call: Call, spec: ModelSpec) -> AssayError:
    """What is said of a model that --source-dir lacks."""
    return AssayError(
        f"--source-dir={call.source_dir}: no folder of {spec.hub_id}; allowed: "
        f"{' or '.join(_names(spec))}, with its config.json"
    )


def cache() -> Path:
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
    if (call.keep == "none" or started) and not _is_whole(cache(), spec):
        return below
    return cache()


def fetched_bytes(call: Call, spec: ModelSpec, size: int) -> int:
    """Bytes of a model's weights that need no download, of `size` in all."""
    place = cache_of(call, spec)
    if call.source_dir is not None or _is_whole(place, spec):
        return size
    weights = (snapshot.glob("*.safetensors") for snapshot in _snapshots(place, spec))
    sums = [sum(path.stat().st_size for path in paths) for paths in weights]
    return min(size, max(sums, default=0))


def converted(call: Call, spec: ModelSpec) -> Checkpoint:
    """The model's checkpoint; its files are fetched and converted where it is not there.

    Raises:
      AssayError: no such folder or repository, other weights than the registry's, no room, or a
        checkpoint that was converted otherwise, from other files, or from nobody knows where.
    """
    destination, config = call.checkpoint(spec), call.config
    verify = scoring.verify(config)
    if destination.exists():
        checkpoint = Checkpoint.open(destination, verify=verify)
        for name, has, allowed in differences(checkpoint.card, spec, config.check_identity):
            raise AssayError(
                f"checkpoint {destination}: {name}={has!r}; allowed: {allowed!r}; remove it"
            )
        _check_source(call, spec, checkpoint)
        return checkpoint
    folder = folder_of(call, spec)
    if folder is None and call.source_dir is not None:
        raise refusal(call, spec)
    _remove_interrupted(destination)
    checkpoint = converting.convert(
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
    return Checkpoint.open(checkpoint.path, verify=verify)


def _remove_interrupted(checkpoint: Path) -> None:
    """Removes what killed conversions of a model have left; the runs are locked."""
    begins = f".{checkpoint.name}-"
    for each in list(checkpoint.parent.iterdir()) if checkpoint.parent.is_dir() else ():
        if each.name.startswith(begins) and len(each.name) == len(begins) + _RANDOM:
            _remove(each)


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


def _check_source(call: Call, spec: ModelSpec, checkpoint: Checkpoint) -> None:
    """Refuses a checkpoint of which it is not known that it is the model.

    With a folder of --source-dir it must have that folder's files; otherwise it must come from the
    hub, or from a folder of --source-dir that was removed since.
    """
    where, source = f"checkpoint {checkpoint.path}", checkpoint.card.source
    folder, bos = folder_of(call, spec), checkpoint.tokenizer.bos_token_id
    if folder is not None:
        reason = _unlike_weights(call, checkpoint.card, folder)
        theirs = load_tokenizer(folder).bos_token_id if not reason else bos
        if theirs != bos:
            reason = f"BOS id {bos}, and that of {folder} is {theirs}"
        if reason:
            raise AssayError(f"{where}: {reason}; remove it, or give another --source-dir")
    elif source not in (spec.hub_id, *map(str, _folders(call, spec))):
        raise AssayError(
            f"{where}: source={source!r}; allowed: {spec.hub_id!r}, or --source-dir with the "
            "folder that it was converted from; remove it, or give that"
        )
    published = _BOS.get(str(known_shapes.config_json(spec)["model_type"]))
    if call.config.check_identity and published is not None and bos != published:
        raise AssayError(f"{where}: BOS id {bos}; allowed: {published}; remove it")


def present(call: Call, spec: ModelSpec) -> Checkpoint | None:
    """The model's checkpoint, of which nothing was checked; None where it has no readable card."""
    try:
        return Checkpoint.open(call.checkpoint(spec))
    except AssayError:
        return None


def note(call: Call, checkpoint: Checkpoint) -> None:
    """Keeps a checkpoint's model.json: what the results are of, when the checkpoint is removed."""
    text = checkpoint.card.to_json().encode()
    place = storage.path_of(_noted(call, checkpoint.card.slug)) / CARD
    if storage.read_if_there(place) != text:
        storage.write_atomic(place, text)


def check_folder(call: Call, spec: ModelSpec) -> None:
    """Compares a model's weights in --source-dir with those that its results were computed with.

    They are those of the checkpoint, or of its note where that was removed or its card is damaged;
    without both they are not known. A folder whose weights cannot be read is not compared: one line
    says so.

    Raises:
      AssayError: the folder has other weights.
    """
    folder = folder_of(call, spec)
    if folder is None:
        return
    try:
        card = _card_of_results(call, spec)
        reason = "" if card is None else _unlike_weights(call, card, folder)
    except AssayError as error:  # the results are there, and need neither weights nor card
        say(f"{folder}: not compared ({' '.join(str(error).split())})")
        return
    if reason:
        raise AssayError(
            f"results of {spec.slug} below {call.root}: {reason}; allowed: the folder that they "
            "were computed from, or another --root"
        )


def _card_of_results(call: Call, spec: ModelSpec) -> Card | None:
    """The card of the checkpoint that results were computed with; None where none was kept.

    Raises:
      AssayError: cards are there, and none of them can be read.
    """
    failed = None
    for folder in (call.checkpoint(spec), _noted(call, spec.slug)):
        try:
            if (folder / CARD).is_file():
                return Checkpoint.open(folder).card
        except AssayError as error:
            failed = failed or error
    if failed:
        raise failed
    return None


def _noted(call: Call, slug: str) -> Path:
    return call.root / "sources" / slug


def _unlike_weights(call: Call, card: Card, folder: Path) -> str:
    """How the weights of a checkpoint differ from those of a folder; "" where they do not.

    Large folders are hashed too: once, as `_hashes` has it.
    """
    files = safetensors.TensorFiles.open(folder)
    if sorted(files.files) != sorted(card.files):
        return f"converted from {', '.join(card.files)}, and {folder} has {', '.join(files.files)}"
    hashes = _hashes(call, files)
    if differ := sorted(name for name in hashes if hashes[name] != card.files[name]):
        return f"converted from another {differ[0]} than that of {folder}"
    return ""


def _hashes(call: Call, files: safetensors.TensorFiles) -> Mapping[str, str]:
    """Hash of every file; one that did not change is read once for a root.

    With --config.verify=true it is read once in every call.
    """
    place = storage.path_of(call.root / _HASHES)
    known = _known_hashes(place)
    taken = {} if scoring.verify(call.config) else known
    states = {name: _state(files.folder / name) for name in files.files}
    hashes = {
        name: taken.get(state) or _hash_of(files.folder, name, state)
        for name, state in states.items()
    }
    now = known | {states[name]: digest for name, digest in hashes.items()}
    if now != known:
        storage.write_atomic(place, (json.dumps(now, indent=1) + "\n").encode())
    return hashes


def _known_hashes(place: epath.Path) -> dict[str, str]:
    """The hashes that earlier calls have kept: state of a file -> hash; a damaged list is empty."""
    try:
        known = json.loads(storage.read_if_there(place) or b"{}")
    except ValueError:
        return {}
    return known if isinstance(known, dict) else {}


def _state(path: Path) -> str:
    """Which file it is, and what changes when it is written: JSON, so that it can be a key."""
    stat = path.stat()
    changed = stat.st_mtime_ns, stat.st_ctime_ns  # no command can set the second
    return json.dumps([str(path.resolve()), stat.st_size, *changed, stat.st_ino])


@functools.cache
def _hash_of(folder: Path, name: str, state: str) -> str:
    """Hash of one file, a tensor at a time; `state` tells it from what the file was before."""
    files = safetensors.TensorFiles.open(folder)
    inside = {key: tensor for key, tensor in files.tensors.items() if tensor.file == name}
    digests: dict[str, bytes] = {}
    size = sum(tensor.nbytes for tensor in inside.values())
    with progress(size, "B", what=f"hashing {folder / name}", delay_s=5) as bar:
        for key, tensor in inside.items():
            digests[key] = sha256(files.read(key))
            bar.update(tensor.nbytes)
    return safetensors.TensorFiles(folder, inside).hashes(digests)[name]


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
