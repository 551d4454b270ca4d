"""Blocks of parameters on disk: their files, their hashes, and reading them from an object store.

A block is an orbax checkpoint whose arrays are zarr 2, uncompressed, of one chunk each: the file of
a parameter holds its bytes, little-endian and in C order.
"""

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from engine.errors import AssayError
from engine.runs import storage

_THREADS = 8  # at most; one hashes about 1 GB/s, and does not hold the interpreter meanwhile
_AGAIN = "convert the model again"


@dataclasses.dataclass(frozen=True)
class Stored:
    """One parameter on disk."""

    file: epath.Path
    shape: tuple[int, ...]
    dtype: jnp.dtype

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return math.prod(self.shape) * self.dtype.itemsize


def stored(
    block: epath.Path, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str]
) -> dict[str, Stored]:
    """The parameters of a block, by name.

    orbax checks most of this too, but its message is a page about every parameter of the block.

    Args:
      block: folder of the block.
      shapes: name of a parameter -> shape that it must have.
      dtypes: name -> dtypes that it may have, comma-separated, as in the card.

    Raises:
      AssayError: a description is missing, or is not that of a parameter of such a shape.
    """
    texts = _files([block / name / ".zarray" for name in shapes])
    return {
        name: _described(block / name, text, tuple(shape), dtypes[name].split(", "))
        for (name, shape), text in zip(shapes.items(), texts, strict=True)
    }


def check_sizes(parameters: Mapping[str, Stored]) -> None:
    """Raises AssayError unless the local files of parameters exist and are whole."""
    for parameter in parameters.values():
        path = os.fspath(parameter.file)
        if not os.path.isfile(path) or os.path.getsize(path) != parameter.nbytes:
            raise _incomplete(parameter.file.parent)


def read(parameters: Mapping[str, Stored]) -> dict[str, bytes]:
    """The bytes of parameters in an object store.

    Raises:
      AssayError: a file is missing or not whole; or the store fails.
    """
    data = dict(zip(parameters, _files([p.file for p in parameters.values()]), strict=True))
    for name, parameter in parameters.items():
        if len(data[name]) != parameter.nbytes:
            raise _incomplete(parameter.file.parent)
    return data


def placed(parameter: Stored, data: bytes, target: jax.ShapeDtypeStruct) -> jax.Array:
    """A parameter on the devices: its bytes in the shape, dtype and sharding of `target`."""
    array = np.frombuffer(data, parameter.dtype).reshape(parameter.shape)
    return jax.make_array_from_callback(
        parameter.shape, target.sharding, lambda index: array[index].astype(target.dtype)
    )


def block_hash(arrays: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> str:
    """Hash of a block: of the names, dtypes, shapes and contents of its arrays.

    Args:
      arrays: name -> dtype, shape, and sha256 of the contents.
    """
    digest = hashlib.sha256()
    for name, (dtype, shape, contents) in sorted(arrays.items()):
        digest.update(f"{name} {dtype} {shape}".encode() + contents)
    return digest.hexdigest()


class Verifier:
    """Context manager that hashes blocks in threads, beside what the caller does with them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1))
        # Of each block that is being hashed: folder, wanted hash, and parameters with their hashes.
        self._pending: list[tuple[epath.Path, str, dict[str, tuple[Stored, Future[bytes]]]]] = []

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(
        self,
        block: epath.Path,
        wanted: str,
        parameters: Mapping[str, Stored],
        data: Mapping[str, bytes] | None = None,
    ) -> None:
        """Starts to hash a block, and checks one that was added before.

        Args:
          block: its folder, for the message.
          wanted: the hash that it must have.
          parameters: all of its parameters.
          data: their bytes; None reads their files.

        Raises:
          AssayError: an earlier block differs from its hash.
        """
        hashes = {
            name: (parameter, self._pool.submit(_digest, parameter, data[name] if data else None))
            for name, parameter in parameters.items()
        }
        self._pending.append((block, wanted, hashes))
        self.check(2)  # so that the bytes of three blocks at most are in memory

    def check(self, left: int = 0) -> None:
        """Waits for what was added, but for the last `left` blocks.

        Raises:
          AssayError: a block differs from its hash; the message names it.
        """
        while len(self._pending) > left:
            block, wanted, hashes = self._pending.pop(0)
            arrays = {n: (str(p.dtype), p.shape, h.result()) for n, (p, h) in hashes.items()}
            if block_hash(arrays) != wanted:
                raise AssayError(
                    f"{block}: damaged checkpoint, this block is not the one that was converted "
                    f"(sha256); {_AGAIN}"
                )


def _files(paths: Sequence[epath.Path]) -> list[bytes]:
    try:
        return list(storage.read_ahead(paths))
    except AssayError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise _incomplete(next(p for p in paths if not storage.exists(p)).parent) from error
        raise


def _digest(parameter: Stored, data: bytes | None) -> bytes:
    if data is not None:
        return hashlib.sha256(data).digest()
    with storage.reported(parameter.file), open(parameter.file, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").digest()


def _described(
    folder: epath.Path, text: bytes, shape: tuple[int, ...], dtypes: Sequence[str]
) -> Stored:
    """A parameter according to its .zarray, all of which must be as the conversion writes it."""
    wanted = {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(shape),
        "order": "C",
        "compressor": None,
        "filters": None,
        "fill_value": None,
        "dimension_separator": ".",
    }
    try:
        about = json.loads(text)
        dtype = jnp.dtype(about.pop("dtype"))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _incomplete(folder) from error
    if about != wanted or str(dtype) not in dtypes:
        raise _incomplete(folder)
    return Stored(folder / (".".join("0" * len(shape)) or "0"), shape, dtype)


def _incomplete(folder: epath.Path) -> AssayError:
    return AssayError(
        f"{folder}: damaged checkpoint, this parameter is missing or not whole; {_AGAIN}"
    )
