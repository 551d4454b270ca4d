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
    paths = [block / name / ".zarray" for name in shapes]
    try:
        texts = storage.read_all(paths)
    except AssayError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            missing = next(path for path in paths if not storage.exists(path))
            raise _incomplete(missing.parent) from error
        raise
    return {
        name: _described(block / name, text, tuple(shape), dtypes[name].split(", "))
        for (name, shape), text in zip(shapes.items(), texts, strict=True)
    }


def check_sizes(parameters: Mapping[str, Stored]) -> None:
    """Checks that the local files of parameters exist and are whole.

    Raises:
      AssayError: one is not.
    """
    for parameter in parameters.values():
        path = os.fspath(parameter.file)
        if not os.path.isfile(path) or os.path.getsize(path) != parameter.nbytes:
            raise _incomplete(parameter.file.parent)


def read(parameters: Mapping[str, Stored]) -> dict[str, bytes]:
    """The bytes of parameters in an object store.

    Raises:
      AssayError: a file is missing or not whole; or the store fails.
    """
    try:
        data = storage.read_all([parameter.file for parameter in parameters.values()])
    except AssayError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise AssayError(f"{error}: damaged checkpoint; convert the model again") from error
        raise
    for parameter, one in zip(parameters.values(), data, strict=True):
        if len(one) != parameter.nbytes:
            raise _incomplete(parameter.file.parent)
    return dict(zip(parameters, data, strict=True))


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
        self._pending: list[_Pending] = []

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
        """Begins to hash a block, and checks one that was added before.

        Args:
          block: its folder, for the message.
          wanted: the hash that it must have.
          parameters: all of its parameters.
          data: their bytes; None reads their files.

        Raises:
          AssayError: an earlier block differs from its hash.
        """
        futures = {
            name: self._pool.submit(_digest, parameter, data[name] if data else None)
            for name, parameter in parameters.items()
        }
        self._pending.append(_Pending(block, wanted, parameters, futures))
        if len(self._pending) > 2:  # so that the bytes of three blocks at most are in memory
            self._pending.pop(0).check()

    def check(self) -> None:
        """Waits for what was added.

        Raises:
          AssayError: a block differs from its hash; the message names it.
        """
        while self._pending:
            self._pending.pop(0).check()


@dataclasses.dataclass(frozen=True)
class _Pending:
    """A block that is being hashed."""

    block: epath.Path
    wanted: str
    parameters: Mapping[str, Stored]
    digests: Mapping[str, Future[bytes]]

    def check(self) -> None:
        arrays = {
            name: (str(parameter.dtype), parameter.shape, self.digests[name].result())
            for name, parameter in self.parameters.items()
        }
        if block_hash(arrays) != self.wanted:
            raise AssayError(
                f"{self.block}: damaged checkpoint, this block is not the one that was converted "
                "(sha256); convert the model again"
            )


def _digest(parameter: Stored, data: bytes | None) -> bytes:
    if data is not None:
        return hashlib.sha256(data).digest()
    with storage.reported(parameter.file), open(parameter.file, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").digest()


def _described(
    folder: epath.Path, text: bytes, shape: tuple[int, ...], dtypes: Sequence[str]
) -> Stored:
    """A parameter according to its .zarray, all of which must be as the conversion writes it."""
    raw = {
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
    if about != raw or str(dtype) not in dtypes:
        raise _incomplete(folder)
    return Stored(folder / (".".join("0" * len(shape)) or "0"), shape, dtype)


def _incomplete(folder: epath.Path) -> AssayError:
    return AssayError(
        f"{folder}: damaged checkpoint, this parameter is missing or not whole; "
        "convert the model again"
    )
