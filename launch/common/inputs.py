"""Lists of replies, of files or of a run."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from etils import epath

from engine.csv_files import read_csv
from engine.errors import AssayError, prefixed
from engine.runs import schema
from engine.runs.folder import RunFolder
from engine.text.chat_template import checked_text
from launch.common import fields
from launch.common.command import Flags, Given, paths
from launch.common.fields import REPLIES
from launch.common.text import lines_of

FLAGS: Flags = {
    "items": (
        None,
        "The replies: a .txt (one a line), .csv, .jsonl or .parquet. Of `assay score` and "
        "`assay report`, rows may have prompts of their own: prompt and reply; prompt, chosen and "
        "rejected; messages.",
    ),
    "column": (None, f"Column that holds them; by default name, {' or '.join(REPLIES)}."),
    "name": (None, "Name of the list in the run; by default the file's."),
}


def list_given(given: Given) -> tuple[str, list[str]]:
    """Name of the list on the command line, and its replies."""
    path = Path(paths(given, "items")[0])
    if path.suffix == ".txt" and given.column is not None:
        raise AssayError(f"--column={given.column!r} of a .txt, which has none; leave it out")
    name = list_name(path) if given.name is None else given.name
    return checked_name("name", name), read_items(path, given.column, own_prompts=False)


def has_list(given: Given) -> bool:
    """Whether --items names a list; raises AssayError for a flag of lists without it."""
    for flag in ("column", "name") if given.items is None else ():
        if given[flag].value is not None:
            raise AssayError(f"--{flag} without --items; give both or neither")
    return given.items is not None


def checked_name(flag: str, name: str) -> str:
    """Refuses a name that is kept for the lists of what searches find."""
    if name.startswith(schema.FOUND):
        raise AssayError(
            f"{flag}={name!r}; allowed: names that do not begin with {schema.FOUND!r}, which is "
            "reserved for what searches find"
        )
    return name


def list_name(path: Path) -> str:
    """Name of a list, made of its file's name."""
    return re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).strip("-._") or "items"


def read_items(path: Path, column: str | None, *, own_prompts: bool = True) -> list[str]:
    """The replies of a file, in the file's order.

    Args:
      path: the file.
      column: of the replies, where it is no .txt; None: `name` or one of `REPLIES`.
      own_prompts: whether a column of prompts, which is not read, is allowed.

    Raises:
      AssayError: no such file or column, another file type, malformed CSV, no reply, or one that is
        empty or no Unicode, whose line or row (counted from 1) the message names.
    """
    if path.suffix == ".txt":
        replies, unit = lines_of("items", path), "line"
    else:
        columns, rows, _ = read_rows(path)
        own = fields.of_conversations(columns)
        if own and not own_prompts:
            raise AssayError(
                f"items={path}: its rows have prompts (column {own!r}); allowed: `assay score`, "
                "or a file of replies alone"
            )
        named = next((name for name in ("name", *REPLIES) if name in columns), "name")
        is_named, column = column is not None, column or named
        for other in columns if not own_prompts and column != "name" else ():
            is_label = other == column or (is_named and fields.is_reply(other))
            empty = all(fields.is_empty(other, row.get(other)) for row in rows)
            if fields.is_part(other) and not is_label and not empty:
                raise AssayError(
                    f"items={path}: column {other!r} would not be read; remove it, or give it one "
                    "of the names in docs/pairs.md"
                )
        replies, unit = _column(path, columns, rows, column), f"column {column!r}, row"
    if not replies:
        raise AssayError(f"items={path}: no replies; allowed: at least one")
    for number, reply in enumerate(replies, 1):
        if not reply:
            raise AssayError(f"items={path}: {unit} {number} is empty; allowed: a reply in each")
        with prefixed(f"items={path}: {unit} {number}"):
            checked_text(reply)
    return replies


# Any: cells of a file.
def read_rows(path: Path) -> tuple[list[str], list[dict[str, Any]], bytes]:
    """The columns and rows of a .csv, .jsonl or .parquet file of --items, and its bytes.

    A row of a .jsonl may lack columns, and blank lines may follow the last. Raises AssayError as
    `read_table`, or for a line that is no JSON object, with its number from 1.
    """
    if path.suffix != ".jsonl":
        frame, data = read_table(path, "items")
        return frame.columns, frame.to_dicts(), data
    lines, rows = lines_of("items", path), []
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines or lines[0].lstrip().startswith("["):
        what = "a JSON array" if lines else "an empty file"
        raise AssayError(f"items={path}: {what}; allowed: a JSON object in each line")
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise AssayError(f"items={path}: line {number} is no JSON ({error})") from error
        if not isinstance(row, dict):
            raise AssayError(f"items={path}: line {number}; allowed: a JSON object in each")
        rows.append(row)
    return list(dict.fromkeys(name for row in rows for name in row)), rows, path.read_bytes()


def read_table(path: Path, flag: str) -> tuple[pl.DataFrame, bytes]:
    """The columns of a .csv or .parquet file, those of CSV as text, and the bytes of the file.

    Raises:
      AssayError: another file type, no such file, or no table; the line begins with the flag.
    """
    if path.suffix not in (".csv", ".parquet"):
        lists = ".txt, .jsonl, " if flag == "items" else ""
        raise AssayError(f"{flag}={path}; allowed: a {lists}.csv or .parquet file")
    try:
        data = path.read_bytes()
        with prefixed(f"{flag}={path}"):
            return pl.read_parquet(data) if path.suffix == ".parquet" else read_csv(data), data
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise AssayError(f"{flag}={path}: {reason}") from error


# Any: cells of a file.
def _column(
    path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], column: str
) -> list[str]:
    if column not in columns:
        raise AssayError(
            f"items={path}: no column {column!r}; it has {', '.join(columns) or 'none'}"
        )
    values = [row.get(column) for row in rows]
    other = next((value for value in values if not isinstance(value, str | None)), None)
    if other is not None:
        kind = type(other).__name__
        raise AssayError(f"items={path}: column {column!r} holds {kind}; allowed: text")
    return [value or "" for value in values]


def has_human_ranks(run: epath.Path, name: str, humans: pl.DataFrame | None, allowed: str) -> bool:
    """Whether a run holds people's ranks of a list; raises AssayError for others than `humans`."""
    there = RunFolder.open(str(run)).table(schema.humans_path(name))
    if there is None:
        return False
    if humans is None or not there.equals(humans):
        raise AssayError(
            f"run {run}: other human scores of the list {name!r} are there already; "
            f"allowed: {allowed}"
        )
    return True
