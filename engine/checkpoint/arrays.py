"""Blocks of parameters on disk: read onto devices, and compared with their hashes.

A block is an orbax checkpoint whose arrays are zarr 2, uncompressed, of one chunk each: the file of
a parameter holds its bytes, little-endian and in C order. They are read here, from a disk or an
object store, and not by orbax, whose processes would wait for one another after each block, also
for one that has failed.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from engine.errors import AssayError
from engine.runs import storage

_THREADS = 8  # at most; one hashes about 1 GB/s, and does not hold the interpreter meanwhile
_AGAIN = "convert the model again"


def sha256(array: np.ndarray) -> bytes:
    """sha256 of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()


def block_hash(arrays: Mapping[str, np.ndarray], digests: Mapping[str, bytes]) -> str:
    """Hash of a block: of the names, dtypes, shapes and sha256 of its arrays."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + digests[name])
    return digest.hexdigest()


def read_block(
    folder: epath.Path,
    targets: Mapping[str, jax.ShapeDtypeStruct],
    dtypes: Mapping[str, str],
    wanted: str | None,
) -> dict[str, jax.Array]:
    """The parameters of a block, by name, with the shapes, dtypes and shardings of `targets`.

    On disk they have one of `dtypes`, comma-separated as in the card. Threads place arrays and hash
    them; a `wanted` of None is not compared.

    Raises:
      AssayError: the checkpoint is damaged, or its store fails.
    """
    arrays = _arrays(folder, targets, dtypes)
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        placed = pool.map(_placed, arrays.values(), targets.values())
        if wanted is not None:
            digests = dict(zip(arrays, pool.map(sha256, arrays.values()), strict=True))
            if block_hash(arrays, digests) != wanted:
                raise AssayError(
                    f"{folder}: damaged checkpoint, this block is not the one that was converted "
                    f"(sha256); {_AGAIN}"
                )
        return dict(zip(targets, placed, strict=True))


def _arrays(
    folder: epath.Path, targets: Mapping[str, jax.ShapeDtypeStruct], dtypes: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """The arrays of a block by name: mapped from a disk, or read from an object store."""
    described = _files([folder / name / ".zarray" for name in targets])
    files = {n: folder / n / (".".join("0" * len(t.shape)) or "0") for n, t in targets.items()}
    if storage.is_remote(folder):
        contents = map(np.frombuffer, _files([*files.values()]), [np.uint8] * len(files))
    else:
        contents = map(_mapped, files.values())
    arrays = {}
    for (name, target), text, content in zip(targets.items(), described, contents, strict=True):
        try:
            dtype = jnp.dtype(json.loads(text)["dtype"])
        except (ValueError, LookupError, TypeError) as error:
            raise _incomplete(folder / name) from error
        size = math.prod(target.shape) * dtype.itemsize
        if str(dtype) not in dtypes[name].split(", ") or content.nbytes != size:
            raise _incomplete(folder / name)
        arrays[name] = content.view(dtype).reshape(target.shape)
    return arrays


def _mapped(file: epath.Path) -> np.ndarray:
    try:
        return np.memmap(os.fspath(file), np.uint8, "r")
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise _incomplete(file.parent) from error


def _files(paths: Sequence[epath.Path]) -> list[bytes]:
    try:
        return list(storage.read_ahead(paths))
    except AssayError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise _incomplete(next(p for p in paths if not storage.exists(p)).parent) from error
        raise


def _placed(array: np.ndarray, target: jax.ShapeDtypeStruct) -> jax.Array:
    """An array on the devices, in the dtype and sharding of `target`."""

    def piece(index: Any) -> np.ndarray:  # Any: slices of the axes
        with np.errstate(over="ignore"):  # what overflows scores no finite reward, which is refused
            return np.asarray(array[index]).astype(target.dtype)

    return jax.make_array_from_callback(array.shape, target.sharding, piece)


def _incomplete(folder: epath.Path) -> AssayError:
    return AssayError(
        f"{folder}: damaged checkpoint, this parameter is missing or not whole; {_AGAIN}"
    )
