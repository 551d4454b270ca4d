"""Parts of a result: fixed row ranges, written so that a part that exists is complete."""

import hashlib
import io

import polars as pl
from etils import epath

from engine.errors import AssayError
from engine.runs import schema, storage
from engine.runs.storage import is_temporary as is_temporary
from engine.runs.storage import sweep_temporaries as sweep_temporaries
from engine.runs.storage import write_atomic as write_atomic

Span = tuple[int, int]  # start, stop of a range of rows


def ranges(rows: int, part_size: int) -> list[Span]:
    """The row range of every part: a function of the list alone, never of hosts or devices."""
    return [(start, min(start + part_size, rows)) for start in range(0, rows, part_size)]


def missing(folder: epath.Path, rows: int, part_size: int) -> list[Span]:
    """The row ranges of the parts that do not exist yet."""
    present = set(storage.names(folder))
    return [r for r in ranges(rows, part_size) if schema.part_name(*r) not in present]


def write_part(folder: epath.Path, start: int, stop: int, frame: pl.DataFrame) -> str:
    """Writes rows `start <= id < stop`; returns the file's sha256."""
    return write_frame(folder / schema.part_name(start, stop), frame)


def write_frame(path: epath.Path, frame: pl.DataFrame) -> str:
    """Writes a parquet file atomically; returns its sha256."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", statistics=False)
    storage.write_atomic(path, buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def read_part(folder: epath.Path, start: int, stop: int) -> tuple[pl.DataFrame, str]:
    """A part that exists, and its sha256.

    Raises:
      AssayError: the file is not the parquet that `write_part` made.
    """
    path = folder / schema.part_name(start, stop)
    data = storage.read(path)
    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except pl.exceptions.PolarsError as error:
        raise AssayError(f"{path}: damaged ({error}); remove it and run again") from error
    if len(frame) != stop - start:
        raise AssayError(f"{path}: {len(frame)} rows, expected {stop - start}; remove it")
    return frame, hashlib.sha256(data).hexdigest()
