"""Lines of text files, and CSV as RFC 4180 defines it: other files are refused, never guessed."""

import codecs
import csv
import io
import os
import re
import sys
from pathlib import Path

import polars as pl

from engine.errors import AssayError

# Python's csv module, and so pandas, leaves a carriage return in a cell without quotes.
_RETURN = re.compile(r'"[^"]*+(?:""[^"]*+)*+"|(?<![^,\n])[^",\r\n]*+(?:\r(?!\n)[^",\r\n]*+)++')
_ALLOWED = (
    "allowed: quotes around a cell that holds a quote, a comma or a line end; two quotes for each "
    "quote in it; one kind of line ends"
)


def lines_of(setting: str, path: str | os.PathLike[str]) -> list[str]:
    """The lines of a text file; raises AssayError, which begins with the setting."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise AssayError(
            f"{setting}={path}: byte {error.start} is not UTF-8; allowed: UTF-8"
        ) from error
    except OSError as error:
        raise AssayError(f"{setting}={path}: {error.strerror}") from error
    return lines[: -1 if lines[-1] == "" else None]


def read_csv(data: bytes) -> pl.DataFrame:
    """The cells of a CSV file as they are written, all of them text; an empty one is null.

    Args:
      data: content of the file: UTF-8, with or without a byte order mark; lines end with LF, CRLF
        or, all of them, CR. Blank lines at the start and the end are passed over.

    Raises:
      AssayError: the file is empty, not UTF-8, or not CSV, or has two columns of one name; the
        message names the first such line or row (counted from 1 below the header), not the file.
    """
    data = data.removeprefix(codecs.BOM_UTF8).strip(b"\r\n")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = len(data[: error.start + 1].splitlines())
        raise AssayError(f"line {line} is not UTF-8; allowed: UTF-8") from error
    if not text:
        raise AssayError("empty CSV")
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    if (other := re.search(r"[;\t]", header)) and "," not in header:
        raise AssayError(f"cells are separated by {other[0]!r}; allowed: ','")
    if "\n" in text:
        text = _RETURN.sub(lambda c: c[0] if c[0].startswith('"') else f'"{c[0]}"', text)
    csv.field_size_limit(sys.maxsize)
    names, rows = None, list[list[str | None]]()
    try:
        for cells in csv.reader(io.StringIO(text, newline=""), strict=True):
            row = [cell or None for cell in cells or [""]]
            if names is None:
                names = [cell or "" for cell in row]
            elif len(row) == len(names):
                rows.append(row)
            else:
                problem = f"row {len(rows) + 1}: number of cells {len(row)}"
                raise AssayError(f"{problem}; the header has {len(names)}")
    except csv.Error as error:
        place = "the header" if names is None else f"row {len(rows) + 1}"
        raise AssayError(f"{place} is not CSV ({error}); {_ALLOWED}") from error
    names = names or []
    if twice := [name for name in names if names.count(name) > 1]:
        raise AssayError(f"two columns {twice[0]!r}; allowed: one of each name")
    return pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")
