"""What users see: progress bars, and tokens with their spaces, line ends and controls.

A token is shown as segments. A text segment is the token's own characters; a marked segment is a
sign for characters that draw nothing. Nothing here escapes HTML: the templates do.

The page's explorer shows tokens by the same rule (`templates/explorer.js`). It takes the signs of
characters from `signs`, and `RUN` and `LIMIT` with them.
"""

import itertools
import sys
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

from engine import processes

RUN = 3  # Longer runs of one sign are counted: ␣×16.
LIMIT = 48  # Characters shown before the rest is cut.
_NAMED = {" ": "␣", "\n": "↵", "\t": "⇥"}


class Segment(NamedTuple):
    """A piece of a shown token; `mark` is True where it is a sign for the invisible."""

    text: str
    mark: bool


def escape(char: str) -> str:
    r"""Escape of one character by its code point: \u200b, \U0001f600."""
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def sign(char: str) -> str | None:
    """Sign of a character that draws nothing wherever it stands; None for any other character.

    A space between visible characters is shown as it is all the same: see `segments`.
    """
    return _NAMED.get(char, escape(char)) if unicodedata.category(char)[0] in "CZ" else None


def sign_at_start(char: str) -> str | None:
    """Sign of a character that joins the one before it, where there is none; or None."""
    return escape(char) if unicodedata.category(char)[0] == "M" else None


def signs(texts: Iterable[str]) -> dict[str, Any]:  # Any: JSON
    """What the page needs to show `texts` as `segments` does.

    Returns:
      anywhere and start: character -> its `sign` and `sign_at_start`, for every character of
      `texts` that has one; run and limit: `RUN` and `LIMIT`. JSON.
    """
    chars = sorted(set().union(*texts))
    by_rule = {"anywhere": sign, "start": sign_at_start}
    tables = {
        name: {char: mark for char in chars if (mark := rule(char)) is not None}
        for name, rule in by_rule.items()
    }
    return {**tables, "run": RUN, "limit": LIMIT}


def segments(token: str, limit: int = LIMIT) -> list[Segment]:
    """`token` as segments that a reader can tell apart; an ellipsis marks what exceeds the limit.

    Spaces are marked at either end and wherever two meet. So is every other character that draws
    nothing, and a first character that would join what stands before the token.
    """
    if not token:
        return [Segment("(empty)", True)]
    parts: list[Segment] = []
    room = limit
    for mark, group in itertools.groupby(range(len(token)), lambda at: mark_at(token, at)):
        run = [token[at] for at in group]
        if room <= 0:
            return [*parts, Segment("…", True)]
        if mark is None and len(run) > room:
            return [*parts, Segment("".join(run[:room]), False), Segment("…", True)]
        parts.append(Segment("".join(run), False) if mark is None else _marks(mark, len(run)))
        room -= len(parts[-1].text)
    return parts


def plain(token: str, limit: int = LIMIT) -> str:
    """`token` with its signs as one string, for places that have no styling."""
    return "".join(segment.text for segment in segments(token, limit))


def shortened(text: str, limit: int) -> str:
    """`plain` of a text; of a long one without its middle."""
    half = limit // 2
    ends = [text] if len(text) <= limit else [text[:half], text[-half:]]
    return " … ".join(plain(end, 10 * limit) for end in ends if end)  # signs have ten characters


def mark_at(token: str, at: int) -> str | None:
    """The sign that is shown for the character `at`; None where it is shown itself."""
    char = token[at]
    if char == " ":
        around = token[max(at - 1, 0) : at] + token[at + 1 : at + 2]
        return sign(char) if at in (0, len(token) - 1) or " " in around else None
    return sign(char) or (sign_at_start(char) if at == 0 else None)


def _marks(mark: str, count: int) -> Segment:
    return Segment(mark * count if count <= RUN else f"{mark}×{count}", True)


tqdm.set_lock(threading.RLock())  # of this process alone; its own is shared with forked ones


def progress(
    total: int, unit: str = "candidates", *, what: str | None = None, delay_s: float = 0.0
) -> tqdm:
    """A progress bar on standard error; silent without work, and on all processes but the first.

    It appears after `delay_s` seconds; one with a delay is removed when it is done.
    """
    quiet = not processes.writes() or total == 0
    watched = sys.stderr.isatty() or "ipykernel" in sys.modules  # a terminal, or a notebook
    interval = 0.5 if watched else 15.0
    return tqdm(
        total=total,
        desc=what,
        unit=f" {unit}",
        unit_scale=True,
        delay=delay_s,
        leave=not delay_s,
        mininterval=interval,
        disable=quiet,
        smoothing=0.1,
        dynamic_ncols=True,
    )


def in_words(size: float) -> str:
    """Bytes as `7.0 GiB`, or `210 MiB`."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines; every column is as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def counted(number: int, what: str) -> str:
    """`1 model`, `2 models`, `1,152 replies`."""
    many = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{number:,} {what if number == 1 else many}"
