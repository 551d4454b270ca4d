"""Parts of a result: fixed row ranges, written so that a part that exists is complete."""

import dataclasses
import hashlib
import io
from collections.abc import Iterable

import polars as pl
from etils import epath

from engine.errors import AssayError
from engine.runs import provenance, schema, storage
from engine.runs.reader import Json

Span = tuple[int, int]  # start, stop of a range of rows


def ranges(rows: int, part_size: int) -> list[Span]:
    """The row range of every part: a function of the list alone, never of hosts or devices."""
    return [(start, min(start + part_size, rows)) for start in range(0, rows, part_size)]


def missing(names: Iterable[str], rows: int, part_size: int) -> list[Span]:
    """Row ranges of the parts that are not among the files `names` of a result's folder."""
    present = set(names)
    return [r for r in ranges(rows, part_size) if schema.part_name(*r) not in present]


def foreign(names: Iterable[str], rows: int, part_size: int) -> list[str]:
    """Names of parts that hold other row ranges than the result's parts; see `missing`."""
    known = {schema.part_name(*r) for r in ranges(rows, part_size)}
    return sorted(name for name in names if provenance.part_span(name) and name not in known)


def write_part(folder: epath.Path, start: int, stop: int, frame: pl.DataFrame, about: Json) -> str:
    """Writes rows `start <= id < stop` with what the file says about itself; returns its sha256."""
    return write_frame(folder / schema.part_name(start, stop), frame, about)


def write_frame(path: epath.Path, frame: pl.DataFrame, about: Json) -> str:
    """Writes a parquet file atomically; returns its sha256."""
    data = provenance.to_parquet(frame, about)
    storage.write_atomic(path, data)
    return hashlib.sha256(data).hexdigest()


@dataclasses.dataclass(frozen=True)
class ReadFile:
    """A file of a run that was read and checked."""

    frame: pl.DataFrame
    sha256: str
    about: Json  # what it says about itself


def read_frame(
    path: epath.Path, recorded: str | None, wanted: Json, data: bytes | None = None
) -> ReadFile:
    """Reads a file of a run, and checks that it is whole and what it should be.

    `recorded` is its sha256, if the manifest knows it; `wanted`, what it must say about itself
    (`provenance.difference`); `data`, its bytes, if they were read already.

    Raises:
      AssayError: the file is damaged, says nothing about itself, belongs to something else, or has
        other rows than its name says; the line says what to remove.
    """
    data = storage.read(path) if data is None else data
    digest, whole = hashlib.sha256(data).hexdigest(), provenance.is_whole(data)
    if whole is False:
        raise AssayError(f"{path}: damaged; remove it and run again")
    if whole is None:
        raise AssayError(f"{path}: nothing says what computed it; remove it and run again")
    if recorded not in (None, digest):
        raise AssayError(f"{path}: differs from its hash in the manifest; remove it and run again")
    try:
        frame, about = pl.read_parquet(io.BytesIO(data)), provenance.read(data)
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise AssayError(f"{path}: damaged ({error}); remove it and run again") from error
    if why := provenance.difference(about, wanted):
        raise AssayError(f"{path}: belongs to something else ({why}); remove it and run again")
    span = provenance.part_span(path.name)
    if span and len(frame) != span[1] - span[0]:
        raise AssayError(
            f"{path}: {len(frame)} rows, expected {span[1] - span[0]}; remove it and run again"
        )
    return ReadFile(frame, digest, about)
