"""Tokens made visible: spaces, line ends and controls that a reader would not see.

A token is shown as segments. A `text` segment is the token's own characters; a `mark` stands
for characters that draw nothing. Nothing here escapes HTML: the templates do.
"""

import itertools
import unicodedata
from typing import NamedTuple

_NAMED = {" ": "␣", "\n": "↵", "\t": "⇥"}
_RUN = 3  # Longer runs of one mark are counted: ␣×16.


class Segment(NamedTuple):
    """A piece of a shown token; `mark` is True where it stands for the invisible."""

    text: str
    mark: bool


def escape(char: str) -> str:
    r"""Escape of one character by its code point: \u200b, \U0001f600."""
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def segments(token: str, limit: int = 48) -> list[Segment]:
    """`token` as segments a reader can tell apart.

    Spaces are marked at either end and wherever two meet; so is every character that draws
    nothing or joins what stands before the token.

    Args:
      token: the decoded token.
      limit: characters shown before the rest is cut and marked with an ellipsis.
    """
    if not token:
        return [Segment("(empty)", True)]
    parts, room = [], limit
    for mark, group in itertools.groupby(range(len(token)), lambda at: _mark(token, at)):
        run = [token[at] for at in group]
        if room <= 0:
            return [*parts, Segment("…", True)]
        if mark is None and len(run) > room:
            return [*parts, Segment("".join(run[:room]), False), Segment("…", True)]
        parts.append(Segment("".join(run), False) if mark is None else _marks(mark, len(run)))
        room -= len(parts[-1].text)
    return parts


def plain(token: str, limit: int = 48) -> str:
    """`token` with its marks as one string, for places that have no styling."""
    return "".join(segment.text for segment in segments(token, limit))


def _marks(mark: str, count: int) -> Segment:
    return Segment(mark * count if count <= _RUN else f"{mark}×{count}", True)


def _mark(token: str, at: int) -> str | None:
    char = token[at]
    category = unicodedata.category(char)
    if char == " ":
        around = token[max(at - 1, 0) : at] + token[at + 1 : at + 2]
        return "␣" if at in (0, len(token) - 1) or " " in around else None
    if category[0] in "CZ" or (at == 0 and category[0] == "M"):
        return _NAMED.get(char, escape(char))
    return None
