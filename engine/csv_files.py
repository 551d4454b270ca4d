"""Lines of text files, and CSV as RFC 4180 defines it: other files are refused, never guessed."""

import codecs
import io
import itertools
import os
import re
from pathlib import Path

import polars as pl

from engine.errors import AssayError

_QUOTED = rb'"[^"]*+(?:""[^"]*+)*+"'
_PLAIN = rb'[^",\r\n]*+'
# Python's csv module, and so pandas, leaves a carriage return in a cell without quotes. In a header
# it would be the end of a line.
_RETURN = rb"(?:\r(?!\n)%s)" % _PLAIN
_NAME = rb"(?:%s|%s)" % (_QUOTED, _PLAIN)
# Of a header whose names are separated by semicolons or tabs alone.
_OTHER_SEPARATOR = rb'(?:%s|[^",;\t\r\n])*+([;\t])(?:%s|[^",\r\n])*+(?:[\r\n]|\Z)' % (
    _QUOTED,
    _QUOTED,
)
_SHOWN = 60  # bytes of a refused row
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
    r"""The cells of a CSV file as they are written, all of them text; an empty one is null.

    Polars accepts other quoting (`"say \"no\""`) and short rows, and drops a carriage return at the
    end of a cell without quotes; so every row is matched with the grammar before.

    Args:
      data: content of the file: UTF-8, with or without a byte order mark; lines end with LF, CRLF
        or, all of them, CR. Blank lines at the start and the end are passed over.

    Raises:
      AssayError: the file is empty, not UTF-8, or not CSV, or has two columns of one name; the
        message names the first such line or row (counted from 1 below the header), not the file.
    """
    data = data.removeprefix(codecs.BOM_UTF8).strip(b"\r\n")
    if not data:
        raise AssayError("empty CSV")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = len(data[: error.start + 1].splitlines())
        raise AssayError(f"line {line} is not UTF-8; allowed: UTF-8") from error
    if b"\n" in data:
        _check_rows(data, rb"(?:%s|%s%s*+)" % (_QUOTED, _PLAIN, _RETURN), rb"\r?\n")
        data = _with_quoted_returns(data)
    else:
        _check_rows(data, _NAME, rb"\r")
    end = "\n" if b"\n" in data else "\r"
    return pl.read_csv(io.BytesIO(data), infer_schema=False, eol_char=end)


def _check_rows(data: bytes, cell: bytes, end: bytes) -> None:
    """Refuses the first row that is malformed or has another number of cells than the header."""
    if other := re.match(_OTHER_SEPARATOR, data):
        raise AssayError(f"cells are separated by {other[1].decode()!r}; allowed: ','")
    header = re.match(rb"%s(?:,%s)*+(?:%s|\Z)" % (_NAME, _NAME, end), data)
    if header is None:
        raise _malformed("the header", data, 0)
    names = _cells(header[0], cell)
    twice = [name for name in names if name and names.count(name) > 1]
    if twice:
        raise AssayError(f"two columns {twice[0]!r}; allowed: one of each name")
    wanted = re.compile(rb"%s(?:,%s){%d}(?:%s|\Z)" % (cell, cell, len(names) - 1, end))
    row = re.compile(rb"%s(?:,%s)*+(?:%s|\Z)" % (cell, cell, end))
    position = header.end()
    for number in itertools.count(1):
        if position == len(data):
            return
        match = wanted.match(data, position)
        if match is None:
            other = row.match(data, position)
            if other is None:
                raise _malformed(f"row {number}", data, position)
            count = len(_cells(other[0], cell))
            raise AssayError(f"row {number}: number of cells {count}; the header has {len(names)}")
        position = match.end()


def _cells(row: bytes, cell: bytes) -> list[str]:
    cells = [each.decode() for each in re.findall(rb"(?:^|,)(%s)" % cell, row)]
    return [c[1:-1].replace('""', '"') if c.startswith('"') else c for c in cells]


def _with_quoted_returns(data: bytes) -> bytes:
    """The same rows, with quotes around cells that hold a carriage return."""
    if not re.search(rb"\r(?!\n)", data):
        return data
    return re.sub(
        rb"%s|(?<![^,\n])%s%s++" % (_QUOTED, _PLAIN, _RETURN),
        lambda cell: cell[0] if cell[0].startswith(b'"') else b'"%s"' % cell[0],
        data,
    )


def _malformed(where: str, data: bytes, start: int) -> AssayError:
    line = data[start : start + _SHOWN].split(b"\n")[0].decode(errors="ignore")
    return AssayError(f"{where} is not CSV: {line!r}; {_ALLOWED}")
