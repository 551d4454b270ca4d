"""Released files, CSV or Parquet, with their cells checked; names of models and prompts."""

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from configs import known_models, prompts
from engine.errors import AssayError
from launch.common.inputs import read_table
from launch.common.scoring import prompt_id

PROMPT_ALLOWED = (
    f"a prompt's text, which ends in '.', '?', '!' or ':', or an id: "
    f"{', '.join([*prompts.PAPER, *prompts.ELO])}, {next(iter(prompts.FOLLOW_UP))}, … "
    "(configs/prompts.py)"
)
_SUFFIXES = (".csv", ".parquet")
_TEXT = (pl.String, pl.Categorical, pl.Enum)


@dataclasses.dataclass(frozen=True)
class Released:
    """One released file."""

    path: Path
    frame: pl.DataFrame  # its columns; those of a CSV file are text
    sha256: str  # of its bytes

    def numbers(self, column: str) -> pl.Series:
        """A column as float64; raises AssayError for a value that is not finite as a float32."""
        cells = self.frame[column]
        if isinstance(cells.dtype, _TEXT):
            cells = cells.cast(pl.String).str.strip_chars()
        elif not cells.dtype.is_numeric():
            raise self.error(f"column {column!r} is {cells.dtype}; allowed: numbers")
        values = cells.cast(pl.Float64, strict=False)
        single = values.cast(pl.Float32)
        self._refuse(column, single.is_null() | ~single.is_finite(), "finite number")
        return values

    def whole(self, column: str) -> pl.Series:
        """A column as uint32; raises AssayError for a value that is no whole number of 32 bits."""
        values = self.numbers(column)
        outside = (values < 0) | (values >= 2**32)
        self._refuse(column, outside | (values != values.floor()), "whole number")
        return values.cast(pl.UInt32)

    def text(self, column: str, *, empty: bool = False) -> pl.Series:
        """A column as text; raises AssayError for an empty cell, unless `empty`."""
        cells = self.frame[column]
        if not isinstance(cells.dtype, _TEXT):
            raise self.error(f"column {column!r} is {cells.dtype}; allowed: text")
        cells = cells.cast(pl.String).fill_null("")
        rows = (cells.str.strip_chars() == "").arg_true()
        if len(rows) and not empty:
            raise self.error(f"column {column!r} is empty in row {rows[0] + 1}")
        return cells

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

    def _refuse(self, column: str, bad: pl.Series, wanted: str) -> None:
        """Refuses cells that are not what is wanted."""
        rows = bad.arg_true()
        if len(rows):
            raise self.error(
                f"column {column!r}, row {rows[0] + 1}: {self.frame[column][rows[0]]!r} is no "
                f"{wanted} ({len(rows)} such rows)"
            )


def read(path: Path, ignore: Sequence[str] = ()) -> Released:
    """Reads a .csv or .parquet file without the columns of `ignore`, some of which it may lack.

    A first column without a name, a row number, is left out too.

    Raises:
      AssayError: no such file, another file type, not a table, or no rows.
    """
    frame, data = read_table(path, "source")  # as text: `NaN`, `null` and `007` are tokens
    if frame.width and frame.columns[0] in ("", "__index_level_0__"):
        frame = frame.drop(frame.columns[0])
    released = Released(path, frame.drop(ignore, strict=False), hashlib.sha256(data).hexdigest())
    if released.frame.height == 0:
        raise released.error("no rows")
    return released


def files(source: str) -> list[Path]:
    """The files that `--source` names: files and folders, comma-separated.

    A name may itself hold commas, as the authors' do. Of a folder: its .csv and .parquet files,
    sorted by name, without hidden ones; of a table that it holds in both formats, the second.

    Raises:
      AssayError: a folder without such files, or with other values in the other format; an empty
        name.
    """
    inside: list[Path] = []
    for path in _paths(source.split(",")):
        if not path.is_dir():
            inside.append(path)
            continue
        tables = [each for each in path.iterdir() if each.suffix in _SUFFIXES]
        if not (shown := sorted(each for each in tables if not each.name.startswith("."))):
            raise AssayError(f"source={path}: no .csv or .parquet file in this folder")
        inside += [each for each in shown if not _has_twin(each)]
    return inside


def _has_twin(path: Path) -> bool:
    """Whether a CSV file's table is in the folder as Parquet, too.

    Raises:
      AssayError: that table has other values.
    """
    twin = path.with_suffix(".parquet")
    if path.suffix != ".csv" or not twin.exists():
        return False
    written, exact = read(path), read(twin).frame
    same = written.frame.columns == exact.columns and all(map(_alike, written.frame, exact))
    if not same:
        raise written.error(f"other values than in {twin.name}; allowed: one of the two files")
    return True


def _alike(written: pl.Series, exact: pl.Series) -> bool:
    """Whether cells of a CSV file say what a Parquet column holds."""
    if exact.dtype in _TEXT:
        return written.fill_null("").equals(exact.cast(pl.String).fill_null(""))
    return written.str.strip_chars().cast(exact.dtype, strict=False).equals(exact)


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


class Prompt(NamedTuple):
    """A prompt of a run: its id and its text."""

    id: str
    text: str


def prompt_named(name: str) -> Prompt | None:
    """The prompt that a file, column, cell or flag names; None if it names none.

    A prompt of configs/prompts.py is named by its id, by its name in the authors' release, or by
    its text, with or without the question mark, which the authors' file names lack. Any other text
    is a prompt if it has a space and ends like one.
    """
    stripped = name.strip()
    key = prompts.RELEASED.get(stripped, stripped)
    if key in prompts.PROMPTS:
        return Prompt(key, prompts.PROMPTS[key])
    for text in prompts.PROMPTS.values():
        if stripped in (text, text.removesuffix("?")):
            return Prompt(prompt_id(text), text)
    is_text = re.search(r"\s", stripped) and stripped.endswith((".", "?", "!", ":"))
    return Prompt(prompt_id(name), name) if is_text else None


def model_id(name: str) -> str:
    """Id of a model as a file or column names it: `owner--name` is `owner/name`.

    A published model (configs/known_models.py) is also found by its nickname, by its name without
    the owner, and at the end of a name such as `big2_rewards_Ray2333_GRM-gemma2-2B-rewardmodel-ft`.
    """
    name = name.strip().rstrip("/")
    if "/" not in name:
        name = name.replace("--", "/", 1)
    lower = name.lower()
    for spec in known_models.KNOWN.values():
        end = re.escape(spec.hub_id.lower().replace("/", "_"))
        if lower == spec.nickname.lower() or re.search(rf"(^|_){end}$", lower):
            return spec.hub_id
    spec = known_models.find(name)
    return spec.hub_id if spec else name


def slugged(name: str) -> str:
    """Slug of a model id or file name: its last part in lower case, without unsafe characters."""
    last = name.rstrip("/").rsplit("/")[-1].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last).strip("-._")
