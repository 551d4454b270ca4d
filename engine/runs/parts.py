"""Parts of a result: fixed row ranges, written so that a part that exists is complete."""

import contextlib
import hashlib
import io
import os
import re
import uuid

import polars as pl
from etils import epath

from engine.errors import AssayError
from engine.runs import schema

Span = tuple[int, int]  # start, stop of a range of rows


def ranges(rows: int, part_size: int) -> list[Span]:
    """The row range of every part: a function of the list alone, never of hosts or devices."""
    return [(start, min(start + part_size, rows)) for start in range(0, rows, part_size)]


def missing(folder: epath.Path, rows: int, part_size: int) -> list[Span]:
    """The row ranges of the parts that do not exist yet."""
    present = {path.name for path in folder.iterdir()} if folder.exists() else set()
    return [r for r in ranges(rows, part_size) if schema.part_name(*r) not in present]


def write_part(folder: epath.Path, start: int, stop: int, frame: pl.DataFrame) -> str:
    """Writes rows `start <= id < stop`; returns the file's sha256."""
    return write_frame(folder / schema.part_name(start, stop), frame)


def write_frame(path: epath.Path, frame: pl.DataFrame) -> str:
    """Writes a parquet file atomically; returns its sha256."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", statistics=False)
    write_atomic(path, buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def read_part(folder: epath.Path, start: int, stop: int) -> tuple[pl.DataFrame, str]:
    """A part that exists, and its sha256.

    Raises:
      AssayError: the file is not the parquet that `write_part` made.
    """
    path = folder / schema.part_name(start, stop)
    data = path.read_bytes()
    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except pl.exceptions.PolarsError as error:
        raise AssayError(f"{path}: damaged ({error}); remove it and run again") from error
    if len(frame) != stop - start:
        raise AssayError(f"{path}: {len(frame)} rows, expected {stop - start}; remove it")
    return frame, hashlib.sha256(data).hexdigest()


def write_atomic(path: epath.Path, data: bytes) -> None:
    """Writes a file under a temporary name, syncs it, and renames it.

    Raises:
      AssayError: the folder cannot be written or the disk is full; nothing is left behind.
    """
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            with contextlib.suppress(io.UnsupportedOperation, AttributeError):
                os.fsync(file.fileno())  # object stores have no descriptor and need no sync
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise AssayError(f"{path}: {error.strerror or error}") from error


def sweep_temporaries(folder: epath.Path) -> None:
    """Removes the temporary files of a process that was killed while it wrote them."""
    if not folder.exists():
        return
    for path in folder.iterdir():
        if is_temporary(path):
            path.unlink(missing_ok=True)


def is_temporary(path: epath.Path) -> bool:
    """Whether a file has a temporary name of `write_atomic`."""
    return re.fullmatch(r"\..+\.[0-9a-f]{8}\.tmp", path.name) is not None
