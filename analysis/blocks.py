"""What a section of the page is made of: text, figures and tables, in one order."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import polars as pl

# Key, title, and kind: model, slug (model with its slug below), token, text, count,
# number, fixed (three decimals: correlations and the like), p, share or bool.
Column: TypeAlias = tuple[str, str, str]
_FOLDED_ABOVE = 6  # Rows.
MOST_MARKS = 5  # Of the small chart beside a headline.
_MOST = 100  # Rows of a table on the page; its file holds all.


@dataclasses.dataclass(frozen=True)
class Heading:
    """A heading inside the section; `small` follows it in small print."""

    kind: ClassVar[str] = "heading"
    text: str
    small: str = ""


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph; `role` is "", "note" (why something is absent), "how" or "warning"."""

    kind: ClassVar[str] = "text"
    text: str
    role: str = ""


@dataclasses.dataclass(frozen=True)
class Reading:
    """A reply in pieces, coloured by the reward that it would have if it ended behind each.

    Attributes:
      label: what it is, in front.
      pieces: text and reward.
      low: the reward without colour.
      high: the reward in full colour.
    """

    kind: ClassVar[str] = "reading"
    label: str
    pieces: Sequence[tuple[str, float]]
    low: float
    high: float

    def strength(self, reward: float) -> float:
        """Share of the full colour."""
        return (reward - self.low) / ((self.high - self.low) or 1.0)


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure of the report.

    Attributes:
      stem: file stem of the figure.
      caption: what it shows and how to read it.
      draw: the chart (`analysis.charts`), from finished tables; called once.
      search: label of the search box `#search-<stem>` above it; "" for none.
    """

    kind: ClassVar[str] = "picture"
    stem: str
    caption: str
    draw: Callable[[], Any]  # Any: a chart of Altair, which only `analysis.charts` loads
    search: str = ""


@dataclasses.dataclass(frozen=True)
class Rows:
    """A table that can be sorted, and filtered where it is long.

    Attributes:
      rows: its rows.
      columns: its columns.
      file: the file that holds the whole table, or "".
      title: its heading, or "".
      open: whether it is shown unfolded, however long it is.
      of: number of rows of the whole table.
    """

    kind: ClassVar[str] = "rows"
    rows: Sequence[dict[str, Any]]  # Any: cells of a table
    columns: Sequence[Column]
    file: str
    title: str
    open: bool
    of: int


@dataclasses.dataclass(frozen=True)
class Folded:
    """Blocks that open with a click on their title."""

    kind: ClassVar[str] = "folded"
    title: str
    blocks: "Sequence[Block]"


@dataclasses.dataclass(frozen=True)
class Under:
    """Blocks on one prompt of vocabularies, shown while the reader has chosen that question."""

    kind: ClassVar[str] = "under"
    prompt: str
    blocks: "Sequence[Block]"


@dataclasses.dataclass(frozen=True)
class Files:
    """Links to files of the report."""

    kind: ClassVar[str] = "files"
    names: Sequence[str]


_SHOWN = (Picture, Rows)  # what makes a section more than words
Block: TypeAlias = Heading | Text | Reading | Picture | Rows | Folded | Under | Files


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What the tables of a section say about the models, as one plain sentence.

    A chapter makes one only where its evidence holds: where an interval leaves out the value
    without an effect, or q is below 0.05.

    Attributes:
      text: the sentence, with the size of the effect and its uncertainty.
      picture: stem of the figure of the section that shows it, or "".
    """

    text: str
    picture: str = ""


@dataclasses.dataclass(frozen=True)
class Mark:
    """A number with its interval; the ends are NaN where it has none."""

    label: str
    value: float
    low: float = math.nan
    high: float = math.nan


@dataclasses.dataclass(frozen=True)
class Marks:
    """The small chart beside a headline: a few numbers on one line.

    Attributes:
      marks: at most `MOST_MARKS` of them.
      of: how many there are; of more, some from the lowest to the highest are shown.
      axis: what the numbers are.
      size: how large they are, in plain words; or "".
      what: what each is of, in the plural.
    """

    marks: Sequence[Mark]
    of: int
    axis: str
    size: str = ""
    what: str = "models"

    @classmethod
    def some(
        cls, marks: Sequence[Mark], axis: str, size: str = "", what: str = "models"
    ) -> "Marks":
        """Of many marks, evenly spaced ones by value."""
        kept, of = marks, len(marks)
        if of > MOST_MARKS:
            order = sorted(marks, key=lambda mark: mark.value)
            kept = [order[at * (of - 1) // (MOST_MARKS - 1)] for at in range(MOST_MARKS)]
        return cls(kept, of, axis, size, what)

    def place(self, value: float) -> float:
        """Where a number stands, in percent of the width; the line holds 0 and all intervals."""
        numbers = [0.0, *(x for m in self.marks for x in (m.value, m.low, m.high))]
        known = [x for x in numbers if not math.isnan(x)]
        return 100 * (value - min(known)) / ((max(known) - min(known)) or 1.0)


def has_rows(blocks: "Sequence[Block]") -> bool:
    """Whether a table stands among `blocks`."""
    return any(isinstance(block, Rows) for block in _each(blocks))


def only_words(blocks: "Sequence[Block]") -> bool:
    """Whether `blocks` hold neither a figure nor a table."""
    return not any(isinstance(block, _SHOWN) for block in _each(blocks))


def _each(blocks: Iterable[Block]) -> Iterator[Block]:
    """`blocks` in the order of the page; inner ones in place of what holds them."""
    for block in blocks:
        yield from _each(block.blocks) if isinstance(block, Folded | Under) else (block,)


def pictures(blocks: Iterable[Block]) -> Iterator[Picture]:
    """The figures among `blocks`, inner ones too, in the order of the page."""
    return (block for block in _each(blocks) if isinstance(block, Picture))


def rows(
    frame: pl.DataFrame | None,
    columns: Sequence[Column],
    file: str = "",
    title: str = "",
    unfolded: bool = False,
) -> list[Block]:
    """A block of the named columns of `frame`; none where it has no rows, or is None.

    A table of more than six rows is folded unless `unfolded`. The page shows the first thousand
    rows.
    """
    if frame is None or frame.height == 0:
        return []
    cells = frame.head(_MOST).select([key for key, _, _ in columns]).to_dicts()
    shown = unfolded or frame.height <= _FOLDED_ABOVE
    return [Rows(cells, columns, file, title, shown, frame.height)]


def notes(reasons: Iterable[str | None]) -> list[Block]:
    """One note for each different reason."""
    return [Text(reason, "note") for reason in dict.fromkeys(reasons) if reason]
