"""What a section of the report is made of: figures, tables, notes."""

import dataclasses
from collections.abc import Sequence

import polars as pl

from analysis.tables import Tables

# Key, title, and kind: model, token, tokens (a list), text, count, number, fixed
# (three decimals: correlations and the like), p, share or bool.
Column = tuple[str, str, str]
MODEL: Column = ("model", "model", "model")
PROMPT: Column = ("prompt", "prompt", "text")
LIST: Column = ("list", "list", "text")
TOKENS: tuple[Column, ...] = (
    MODEL,
    ("end", "end", "text"),
    ("rank", "rank", "count"),
    ("token", "token", "token"),
    ("token_id", "token id", "count"),
    ("reward", "value", "number"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """A figure, a table or a note.

    Attributes:
      title: heading of the block, or "".
      figure: file stem of a figure, or "".
      caption: what the figure shows and how to read it.
      note: a sentence in place of a figure, or "".
      rows: rows of a table; none for a figure or a note.
      columns: its columns.
      file: the file that holds the table whole, or "".
    """

    title: str = ""
    figure: str = ""
    caption: str = ""
    note: str = ""
    rows: Sequence[dict] = ()
    columns: Sequence[Column] = ()
    file: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chapter:
    """One section.

    Attributes:
      id: anchor in the page.
      title: its heading.
      label: its name in the list of sections.
      lead: what was asked, and how the answer is read.
      blocks: what it shows.
      caveats: what the numbers do not say.
    """

    id: str
    title: str
    label: str
    lead: str
    blocks: Sequence[Block]
    caveats: Sequence[str]


def table(
    frame: pl.DataFrame, columns: Sequence[Column], file: str = "", title: str = ""
) -> list[Block]:
    """A block of the named columns of `frame`; none where it has no rows."""
    rows = frame.select([key for key, _, _ in columns]).to_dicts()
    return [Block(title=title, rows=rows, columns=columns, file=file)] if rows else []


def absent(found: Tables, *stems: str) -> list[Block]:
    """A note for each different reason why one of `stems` is not there."""
    reasons = dict.fromkeys(found.absent[stem] for stem in stems if stem in found.absent)
    return [Block(note=reason) for reason in reasons]


def matched(found: Tables, *analyses: str) -> list[Block]:
    """How many tokens matched the words of the lexicons of `analyses`."""
    columns = (
        MODEL,
        ("source", "source", "text"),
        ("matching", "matching", "text"),
        ("tokens", "tokens matched", "count"),
        ("words", "words matched", "count"),
        ("of", "tokens in all", "count"),
    )
    rows = found.matches.filter(pl.col("analysis").is_in(analyses))
    return table(rows, columns, title="How many tokens matched")
