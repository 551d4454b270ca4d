"""The tensors of a Hugging Face folder, from safetensors files alone.

Every header is read and checked before any tensor.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from engine.checkpoint import layouts
from engine.checkpoint.arrays import sha256
from engine.convert.hf_values import Json, short
from engine.errors import AssayError, prefixed

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
ADAPTER = "adapter_config.json"  # of peft, in the folder of an adapter
VALUE_HEAD = "value_head.safetensors"  # LLaMA-Factory's head, beside the decoder's files
# Weights that count where they are read. Mistral's consolidated*.safetensors hold the same weights
# again. Pickles are often copies too, unless they are named after a head, as value_head.bin.
_WEIGHTS = re.compile(r"(?!consolidated).*\.safetensors|.*(head|score).*\.(bin|pt|pth)")
_PICKLED = re.compile(r"(?!training_args|optimizer|scheduler|scaler|rng_state).*\.(bin|pt|pth)")
_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Place, shape and element type of one tensor."""

    key: str  # its name in the file
    file: str
    offset: int  # bytes from the start of the file
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class TensorFiles:
    """The tensors of a folder, by the names that `checkpoint.layouts` has for them."""

    folder: Path
    tensors: Mapping[str, Tensor]
    # sha256 of each tensor that was read.
    digests: dict[str, bytes] = dataclasses.field(default_factory=dict, compare=False)

    @classmethod
    def open(
        cls,
        folder: Path,
        head: str = "",
        *,
        files: Sequence[str] | None = None,
        rename: Callable[[Iterable[str], str], dict[str, str]] = layouts.canonical_names,
    ) -> "TensorFiles":
        """Reads every header; buffers that hold nothing learned are left out.

        `head` is what config.json calls the head, if it does. `files` are in place of the model's,
        and `rename` says the name of each tensor.

        Raises:
          AssayError: no safetensors; a shard that is missing, truncated or outside the folder; a
            tensor in two shards or under two names; an element type that is no float.
        """
        tensors: dict[str, Tensor] = {}
        if files is None:
            with prefixed(folder):
                files = weight_files(folder, file_names(folder))
        for name in files:
            for key, dtype, tensor in _header(folder, name):
                if not layouts.learned(key):  # among them integers: batch counts of norms
                    continue
                if dtype not in _DTYPES:
                    raise AssayError(
                        f"{folder / name}: tensor {key!r} has element type {dtype}; "
                        f"allowed: {', '.join(_DTYPES)}"
                    )
                if key in tensors:
                    raise AssayError(
                        f"{folder}: tensor {key!r} is in {tensors[key].file} and in {name}"
                    )
                tensors[key] = tensor
        names: dict[str, str] = {}  # name in the layouts -> name in the files
        for key, name in rename(tensors, head).items():
            if name in names:
                raise AssayError(f"{folder}: tensors {names[name]!r} and {key!r} are both {name!r}")
            names[name] = key
        return cls(folder, {name: tensors[key] for name, key in names.items()})

    @property
    def nbytes(self) -> int:
        """Size of all tensors in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def files(self) -> list[str]:
        """Names of the files that hold the tensors."""
        return sorted({tensor.file for tensor in self.tensors.values()})

    def read(self, key: str) -> np.ndarray:
        """Reads one tensor; it is not memory-mapped, so that no other tensor stays in memory."""
        tensor = self.tensors[key]
        count = math.prod(tensor.shape)
        flat = np.fromfile(self.folder / tensor.file, tensor.dtype, count, offset=tensor.offset)
        if key not in self.digests:
            self.digests[key] = sha256(flat)
        return flat.reshape(tensor.shape)

    def hashes(self) -> dict[str, str]:
        """Hash of every file: sha256 of its header followed by the sha256 of each tensor in order.

        Of buffers that hold nothing learned only the header counts. A tensor is read if it was not.
        """
        return {name: self._hash(name) for name in self.files}

    def _hash(self, file: str) -> str:
        digest = hashlib.sha256(_header_text(self.folder / file))
        inside = [(t.offset, key) for key, t in self.tensors.items() if t.file == file]
        for _, key in sorted(inside):
            if key not in self.digests:
                self.read(key)
            digest.update(self.digests[key])
        return digest.hexdigest()


def file_names(folder: Path) -> set[str]:
    """Names of the files of a folder, without those of folders in it."""
    return {path.name for path in folder.iterdir() if path.is_file()}


def check_whole(folder: Path) -> None:
    """Raises AssayError for a folder that is not written yet: no config, or tensors are missing.

    Every header is read, and the size of every file compared with it.
    """
    names = file_names(folder)
    adapter = is_adapter(names)
    read_json(folder / (ADAPTER if adapter else "config.json"))
    files = ["adapter_model.safetensors"] if adapter else weight_files(folder, names)
    present = {key for name in files for key, _, _ in _header(folder, name)}
    listed = read_json(folder / INDEX)["weight_map"] if INDEX in names else ()
    if missing := sorted(set(listed) - present):
        raise AssayError(f"{folder}: no tensor {missing[0]!r}, which {INDEX} names")


def is_adapter(names: Collection[str]) -> bool:
    """Whether a folder with files of these names holds an adapter of peft and no whole model."""
    return ADAPTER in names and not {SINGLE, INDEX} & set(names)


def unread(names: Collection[str], read: Collection[str]) -> list[str]:
    """Those of the files `names` that may hold weights of the model and are not among `read`."""
    return sorted(name for name in names if name not in read and _WEIGHTS.fullmatch(name))


def weight_files(folder: Path, names: Collection[str]) -> list[str]:
    """Names of the files with the tensors of a whole model.

    `names` are the folder's files, or those of the repository from which it is being filled.

    Raises:
      AssayError: an adapter beside them, a file that is missing, or weights that nothing reads. The
        caller adds the place.
    """
    if ADAPTER in names:
        base = read_json(folder / ADAPTER).get("base_model_name_or_path")
        raise AssayError(
            f"an adapter on base {short(base)} ({ADAPTER}) beside whole weights; allowed: a folder "
            "with one of them: the weights, if they hold the adapter already, or the adapter"
        )
    read = _indexed(folder) if INDEX in names else [SINGLE]
    if missing := [name for name in read if name not in names]:
        if INDEX in names:
            raise AssayError(f"shard {missing[0]} is missing; {INDEX} names it")
        allowed = "allowed: a Hugging Face model folder"
        shards = [name for name in unread(names, [VALUE_HEAD]) if name.endswith(".safetensors")]
        if shards:
            allowed = f"{layouts.listed(shards)} cannot be read without the index: copy it too"
        elif pickled := sorted(filter(_PICKLED.fullmatch, names)):
            allowed = (
                f"pickled weights ({layouts.listed(pickled)}) are never read, since loading them "
                "runs code: take the hub's conversion, if it has one (--revision=refs/pr/<number>)"
                "; or, where you trust them, load the model with transformers and use "
                "save_pretrained"
            )
        raise AssayError(f"no {SINGLE} and no {INDEX}; {allowed}")
    read += [VALUE_HEAD] * (VALUE_HEAD in names and VALUE_HEAD not in read)
    if others := unread(names, read):
        only = f"the files that {INDEX} names" if INDEX in names else SINGLE
        raise AssayError(
            f"weights that nothing reads, perhaps a head: {', '.join(others)}; only {only} "
            f"and {VALUE_HEAD} would be read; allowed: a folder without such files, if the model "
            "is whole without them"
        )
    return read


def _indexed(folder: Path) -> list[str]:
    """File names that a folder's index lists; raises AssayError for one without any."""
    index = read_json(folder / INDEX).get("weight_map")
    if not isinstance(index, dict) or not index:
        raise AssayError(f"{INDEX}: no weight_map, an object tensor -> file")
    return sorted({str(name) for name in index.values()})


def read_json(path: Path) -> Json:
    """The object in a JSON file; the caller adds the folder's name to an AssayError."""
    if not path.is_file():
        raise AssayError(f"no {path.name}; allowed: a Hugging Face model folder")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # among them numbers of too many digits
        raise AssayError(f"{path}: not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise AssayError(f"{path}: a JSON {type(fields).__name__}; allowed: an object")
    return fields


def _header(folder: Path, name: str) -> Iterator[tuple[str, str, Tensor]]:
    """Yields name, element type and place of every tensor of a file."""
    path = folder / name
    try:
        with safe_open(path, framework="numpy"):  # checks the header, and the size against it
            pass
        text = _header_text(path)
    except (SafetensorError, OSError) as error:
        raise AssayError(f"{path}: truncated or no safetensors file ({error})") from error
    for key, entry in json.loads(text).items():
        if key != "__metadata__":
            dtype = np.dtype(_DTYPES.get(entry["dtype"], np.uint8))
            offset = 8 + len(text) + entry["data_offsets"][0]
            yield key, entry["dtype"], Tensor(key, name, offset, tuple(entry["shape"]), dtype)


def _header_text(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))
