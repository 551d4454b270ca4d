"""Files that people bring: a list of replies, or rows that have prompts of their own."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from engine.csv_files import lines_of, read_csv
from engine.display import counted
from engine.errors import AssayError, prefixed
from engine.lists import fields
from engine.lists.rows import Row, RowReader
from engine.text.chat_template import checked_text


class ConversationList(NamedTuple):
    """Replies, pairs of replies or whole conversations, with their prompts."""

    name: str  # of the list in a run
    table: pl.DataFrame  # `schema.LIST_COLUMNS`
    sha256: str  # of the file
    notes: list[str]  # what was left out of the file, a sentence each
    has_messages: bool = False  # whether a cell is a list of messages, and not a text

    @property
    def size_in_words(self) -> str:
        """How many rows it has, in words."""
        pairs = self.table.filter(side="chosen")["row"].n_unique()
        return counted(pairs, "pair") if pairs else counted(len(self.table), "reply")


def read_conversations(
    path: Path,
    column: str | None = None,
    flag: str = "",
    shared: Callable[[], str] | None = None,
    *,
    setting: str = "items",
) -> ConversationList | None:
    """The list of a file, or None for replies without prompts of their own.

    Args:
      path: the file.
      column: of the replies beside a prompt; None: one of `fields.REPLIES`.
      flag: of the command line that names a prompt, which the file must not have then; "": none.
      shared: gives the prompt of replies that are texts; None: there is none.
      setting: what names the file, for messages.

    Raises:
      AssayError: a row that is no conversation, whose number (from 1) the message names; or a
        prompt of the command line beside those of the file.
    """
    if path.suffix == ".txt":
        return None
    columns, rows, data = read_rows(path, setting)
    if not fields.of_conversations(columns):
        return None
    with prefixed(f"{setting}={path}"):
        reader = RowReader(columns, column, shared, flag, has_nulls=path.suffix == ".parquet")
        table = reader.table(rows)
    sha256 = hashlib.sha256(data).hexdigest()
    return ConversationList(list_name(path), table, sha256, reader.notes, reader.has_messages)


def read_pairs(path: Path) -> ConversationList:
    """The list of a file of pairs; raises AssayError as above, or where it holds none."""
    listed = read_conversations(path)
    if listed is None or "chosen" not in listed.table["side"]:
        raise AssayError(f"items={path}: no pairs; allowed: columns prompt, chosen and rejected")
    return listed


def read_replies(path: Path, column: str | None = None, *, setting: str = "items") -> list[str]:
    """The replies of a file without prompts, in the file's order.

    Args:
      path: the file.
      column: of the replies, where it is no .txt; None: `name` or one of `fields.REPLIES`.
      setting: what names the file, for messages.

    Raises:
      AssayError: no such file or column, another file type, malformed CSV, a column that would not
        be read, no reply, or one that is empty or no Unicode, whose line or row (counted from 1)
        the message names.
    """
    if path.suffix == ".txt":
        replies, unit = lines_of(setting, path), "line"
    else:
        columns, rows, _ = read_rows(path, setting)
        with prefixed(f"{setting}={path}"):
            column = _column_of_replies(columns, rows, column)
            replies = [_text(column, row) for row in rows]
        unit = f"column {column!r}, row"
    if not replies:
        raise AssayError(f"{setting}={path}: no replies; allowed: at least one")
    for number, reply in enumerate(replies, 1):
        if not reply:
            raise AssayError(
                f"{setting}={path}: {unit} {number} is empty; allowed: a reply in each"
            )
        with prefixed(f"{setting}={path}: {unit} {number}"):
            checked_text(reply)
    return replies


def _column_of_replies(columns: Sequence[str], rows: Sequence[Row], chosen: str | None) -> str:
    """The column of the replies; raises AssayError for another one that would not be read."""
    if own := fields.of_conversations(columns):
        raise AssayError(
            f"its rows have prompts (column {own!r}); allowed: `assay score`, or a file of replies "
            "alone"
        )
    column = chosen or next((name for name in ("name", *fields.REPLIES) if name in columns), "name")
    if column not in columns:
        raise AssayError(f"no column {column!r}; it has {', '.join(columns) or 'none'}")
    for other in columns if column != "name" else ():
        is_label = other == column or (chosen is not None and fields.is_reply(other))
        says = fields.is_part(other) and not all(fields.is_empty(other, r.get(other)) for r in rows)
        if says and not is_label:
            raise AssayError(
                f"column {other!r} would not be read; remove it, or give it one of the names in "
                "docs/pairs.md"
            )
    return column


def _text(column: str, row: Row) -> str:
    """A cell of a column of texts; "" where it has none."""
    cell = row.get(column)
    if not isinstance(cell, str | None):
        raise AssayError(f"column {column!r} holds {type(cell).__name__}; allowed: text")
    return cell or ""


# Any: cells of a file.
def read_rows(path: Path, setting: str) -> tuple[list[str], list[dict[str, Any]], bytes]:
    """The columns and rows of a .csv, .jsonl or .parquet file of --items, and its bytes.

    A row of a .jsonl may lack columns, and blank lines may follow the last. Raises AssayError as
    `read_table`, or for a line that is no JSON object, with its number from 1.
    """
    if path.suffix != ".jsonl":
        frame, data = read_table(path, setting, (".txt", ".jsonl"))
        return frame.columns, frame.to_dicts(), data
    lines, rows = lines_of(setting, path), []
    while lines and not lines[-1].strip():
        lines.pop()
    with prefixed(f"{setting}={path}"):
        if not lines or lines[0].lstrip().startswith("["):
            what = "a JSON array" if lines else "an empty file"
            raise AssayError(f"{what}; allowed: a JSON object in each line")
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise AssayError(f"line {number} is no JSON ({error})") from error
            if not isinstance(row, dict):
                raise AssayError(f"line {number}; allowed: a JSON object in each")
            rows.append(row)
    return list(dict.fromkeys(name for row in rows for name in row)), rows, path.read_bytes()


def read_table(path: Path, flag: str, others: Sequence[str] = ()) -> tuple[pl.DataFrame, bytes]:
    """The columns of a .csv or .parquet file, those of CSV as text, and the bytes of the file.

    Raises:
      AssayError: another file type (`others` are those that the flag takes beside them), no such
        file, or no table; the line begins with the flag.
    """
    if path.suffix not in (".csv", ".parquet"):
        allowed = f"{', '.join([*others, '.csv'])} or .parquet"
        raise AssayError(f"{flag}={path}; allowed: a {allowed} file")
    try:
        data = path.read_bytes()
        with prefixed(f"{flag}={path}"):
            return pl.read_parquet(data) if path.suffix == ".parquet" else read_csv(data), data
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise AssayError(f"{flag}={path}: {reason}") from error


def list_name(path: Path) -> str:
    """Name of a list, made of its file's name."""
    return re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).strip("-._") or "items"
