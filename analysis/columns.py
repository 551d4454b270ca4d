"""Tables, each stated once: the columns of its file, of the page, and of docs/report-tables.md."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import polars as pl

from analysis import blocks
from analysis.statistics.inference import with_q
from engine.runs.schema import Columns

_TYPES: dict[str, Any] = {  # Any: types of polars
    **dict.fromkeys(("number", "fixed", "p", "share"), pl.Float64),
    **dict.fromkeys(("model", "slug", "text", "token"), pl.String),
    "count": pl.Int64,
    "bool": pl.Boolean,
}
Row: TypeAlias = Mapping[str, object] | Sequence[object]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table."""

    key: str  # its name in the file
    # How the page shows it: model, slug (model with its slug below), token, text, count,
    # number, fixed (three decimals), p, share or bool; it gives the type, unless `dtype`.
    form: str = "text"
    title: str = ""  # its heading on the page; the key by default
    help: str = ""  # what it holds, for the documentation
    # Its type, where it is another than `form` gives.
    dtype: Any = None  # Any: a type of polars
    of: str = ""  # the column of p-values that this one corrects for many tests (q)
    # Columns that name the family of a test; by default all rows are one family.
    within: Sequence[str] = ()

    def but(self, **changes: Any) -> Column:  # Any: of its attributes
        """The column with other attributes."""
        return dataclasses.replace(self, **changes)


MODEL, PROMPT, LIST = Column("model", "model"), Column("prompt"), Column("list")
PEARSON = Column("pearson", "fixed", "Pearson’s r")
SPEARMAN = Column("spearman", "fixed", "Spearman’s ρ")
KENDALL = Column("kendall", "fixed", "Kendall’s τ")
P = Column("p", "p")
RANK = Column("rank", "count", dtype=pl.UInt32)
PROMPTS = (Column("prompt_a", title="prompt"), Column("prompt_b", title="and prompt"))
LANGUAGE_MODEL = Column("language_model", title="language model")
TOKENS = (
    MODEL,
    Column("end", help="`top` or `bottom`"),
    RANK,
    Column("token_id", "count", "token id", dtype=pl.UInt32),
    Column("token", "token"),
)


def q(*within: str, of: str = "p", **about: str) -> Column:
    """The column of `of` corrected for many tests; `within` names the family of a test."""
    return Column(f"{of[:-1]}q", "p", of=of, within=within, **about)


def ends(form: str, help: str = "95 %", stem: str = "ci", over: str = "") -> tuple[Column, Column]:
    """Both ends of an interval; `over` names its units in the headings."""
    units = f", over {over}" if over else ""
    return (
        Column(f"{stem}_low", form, f"from{units}"),
        Column(f"{stem}_high", form, f"to{units}", help),
    )


def several(form: str, keys: str, help: str = "") -> tuple[Column, ...]:
    """Columns of one form, their keys separated by spaces; `help` follows the last."""
    *first, last = (Column(key, form) for key in keys.split())
    return (*first, last.but(help=help))


@dataclasses.dataclass(frozen=True)
class Spec:
    """A table of the report."""

    name: str  # of its file without `.csv`; "<prompt>" and the like stand for what it is of
    columns: Sequence[Column]  # in the order of the file
    # Keys of the columns on the page, in their order, separated by spaces; all by default.
    page: str = ""
    title: str = ""  # its heading on the page
    help: str = ""  # what else the documentation says of it

    @functools.cached_property
    def schema(self) -> Columns:
        """Name -> type of every column."""
        return {c.key: c.dtype or _TYPES[c.form] for c in self.columns}

    def frame(self, rows: pl.DataFrame | Iterable[Row], **same: object) -> pl.DataFrame:
        """The table of its rows, in the order of its columns.

        Args:
          rows: a frame or rows that have all columns but each q, which is computed here.
          same: of a frame, columns that hold one value in every row.
        """
        computed = [c for c in self.columns if c.of]
        names = {c.key for c in computed}
        schema = {key: kind for key, kind in self.schema.items() if key not in names}
        if isinstance(rows, pl.DataFrame):
            keyed = rows.with_columns(**{key: pl.lit(value) for key, value in same.items()})
            table = keyed.select(pl.col(key).cast(kind) for key, kind in schema.items())
        else:
            table = pl.DataFrame(list(rows), schema=schema, orient="row")
        for column in computed if table.height else ():
            table = with_q(table, column.within, column.of, column.key)
        return table.select(*self.schema) if table.height else pl.DataFrame(schema=self.schema)

    def concat(self, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
        """The rows of several tables of its columns, one after the other; there may be none."""
        return pl.concat([self.frame([]), *frames])

    def rows(
        self, frame: pl.DataFrame | None, *key: str, title: str = "", unfolded: bool = False
    ) -> list[blocks.Block]:
        """The table on the page; nothing where there is none, or it has no rows.

        Args:
          frame: the table.
          key: what it is of, such as the prompt: the rest of its file's name.
          title: its heading; that of the specification by default.
          unfolded: whether it is open however long it is.
        """
        known = {c.key: c for c in self.columns}
        shown = [known[key] for key in self.page.split()] or self.columns
        columns = [(c.key, c.title or c.key.replace("_", " "), c.form) for c in shown]
        stem = "_".join((self.name.split("<")[0].rstrip("_"), *key))
        return blocks.rows(frame, columns, f"{stem}.csv", title or self.title, unfolded)

    def documented(self) -> str:
        """Its row of docs/report-tables.md."""
        cells = [
            c.key + (f" ({'; '.join(notes)})" if (notes := _said(c)) else "") for c in self.columns
        ]
        name = self.name.replace("<", "\\<").replace(">", "\\>")
        return f"| {name}.csv | {', '.join(cells)}{f' ({self.help})' if self.help else ''} |"


def _said(column: Column) -> list[str]:
    family = f"family: {', '.join(column.within) or 'all rows'}" if column.of else ""
    return [text for text in (column.help, family) if text]
