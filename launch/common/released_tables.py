"""Released files, CSV or Parquet, read as tables whose cells are checked."""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from engine.csv_files import read_csv
from engine.errors import AssayError, prefixed

SUFFIXES = (".csv", ".parquet")
_TEXT = (pl.String, pl.Categorical, pl.Enum)


@dataclasses.dataclass(frozen=True)
class Released:
    """One released file.

    Attributes:
      path: the file.
      frame: its columns; those of a CSV file are text.
      sha256: of its bytes.
    """

    path: Path
    frame: pl.DataFrame
    sha256: str

    def numbers(self, column: str) -> pl.Series:
        """A column as float64, every value finite as a float32 too.

        Raises:
          AssayError: a value is missing or no finite number; the line names the first such row.
        """
        cells = self.frame[column]
        if isinstance(cells.dtype, _TEXT):
            cells = cells.cast(pl.String).str.strip_chars()
        elif not cells.dtype.is_numeric():
            raise self.error(f"column {column!r} is {cells.dtype}; allowed: numbers")
        values = cells.cast(pl.Float64, strict=False)
        single = values.cast(pl.Float32)
        bad = (single.is_null() | ~single.is_finite()).arg_true()
        if len(bad):
            cell = self.frame[column][bad[0]]
            raise self.error(
                f"column {column!r}, row {bad[0] + 1}: {cell!r} is no finite number "
                f"({len(bad)} such rows)"
            )
        return values

    def whole(self, column: str) -> pl.Series:
        """A column as uint32.

        Raises:
          AssayError: as `numbers`, or a value is no whole number of 32 bits.
        """
        values = self.numbers(column)
        bad = ((values < 0) | (values >= 2**32) | (values != values.floor())).arg_true()
        if len(bad):
            cell = self.frame[column][bad[0]]
            raise self.error(f"column {column!r}, row {bad[0] + 1}: {cell!r} is no whole number")
        return values.cast(pl.UInt32)

    def text(self, column: str) -> pl.Series:
        """A column as text, of which no cell is empty.

        Raises:
          AssayError: the column is not text, or a cell is empty.
        """
        cells = self.any_text(column)
        empty = (cells.str.strip_chars() == "").arg_true()
        if len(empty):
            raise self.error(f"column {column!r} is empty in row {empty[0] + 1}")
        return cells

    def any_text(self, column: str) -> pl.Series:
        """A column as text; an empty cell is "".

        Raises:
          AssayError: the column is not text.
        """
        cells = self.frame[column]
        if not isinstance(cells.dtype, _TEXT):
            raise self.error(f"column {column!r} is {cells.dtype}; allowed: text")
        return cells.cast(pl.String).fill_null("")

    def once(self, keys: pl.DataFrame) -> None:
        """Refuses two rows with the same keys."""
        twice = keys.filter(keys.is_duplicated())
        if len(twice):
            key = twice.row(0)
            first, second, *_ = (n for n, row in enumerate(keys.iter_rows(), 1) if row == key)
            said = ", ".join(f"{name} {v!r}" for name, v in zip(keys.columns, key, strict=True))
            raise self.error(f"rows {first} and {second} are both {said}; allowed: one of them")

    def error(self, what: str) -> AssayError:
        """An error about this file, to be raised."""
        return AssayError(f"source={self.path}: {what}")


def read(path: Path, ignore: Sequence[str] = ()) -> Released:
    """Reads a .csv or .parquet file; a first column without a name, a row number, is left out.

    Args:
      path: the file.
      ignore: columns to leave out; names that the file lacks are passed over.

    Raises:
      AssayError: no such file, another file type, not a table, or no rows.
    """
    if path.suffix not in SUFFIXES and path.exists():
        raise AssayError(f"source={path}; allowed: a .csv or .parquet file, or a folder of them")
    try:
        data = path.read_bytes()
        # As text: `NaN`, `null` and `007` are tokens. An empty token is read as null.
        with prefixed(f"source={path}"):
            frame = pl.read_parquet(data) if path.suffix == ".parquet" else read_csv(data)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise AssayError(f"source={path}: {reason}") from error
    if frame.width and frame.columns[0] in ("", "__index_level_0__"):
        frame = frame.drop(frame.columns[0])
    released = Released(path, frame.drop(ignore, strict=False), hashlib.sha256(data).hexdigest())
    if released.frame.height == 0:
        raise released.error("no rows")
    return released


def files(source: str) -> list[Path]:
    """The files that `--source` names: files and folders, comma-separated, each once.

    A name may itself hold commas, as the authors' do. Of a folder: its .csv and .parquet files.

    Raises:
      AssayError: a folder without such files, a file named twice, or an empty name.
    """
    found: list[Path] = []
    for path in _paths(source.split(",")):
        found += _inside(path) if path.is_dir() else [path]
    for path in found:
        if found.count(path) > 1:
            raise AssayError(f"source={path}: named twice; allowed: each file once")
    return found


def _inside(folder: Path) -> list[Path]:
    """The tables in a folder, sorted by name; hidden ones are left out."""
    names = (path for path in folder.iterdir() if not path.name.startswith("."))
    inside = sorted(path for path in names if path.suffix in SUFFIXES)
    if not inside:
        raise AssayError(f"source={folder}: no .csv or .parquet file in this folder")
    return inside


def _paths(pieces: Sequence[str]) -> list[Path]:
    """Paths of the pieces between commas; pieces are joined again where only that exists."""
    if not pieces:
        return []
    if not pieces[0].strip():
        raise AssayError("--source: an empty name beside a comma; allowed: files and folders")
    for stop in range(len(pieces), 1, -1):
        joined = Path(",".join(pieces[:stop]))
        if joined.exists():
            return [joined, *_paths(pieces[stop:])]
    return [Path(pieces[0]), *_paths(pieces[1:])]
