"""Where tokens and kinds of words stood before and stand after."""

from __future__ import annotations

import altair as alt
import numpy as np
import polars as pl

from analysis.charts import look
from analysis.statistics import Array

_SHOWN = 14  # kinds of words


def shifts(cells: Array, words: pl.DataFrame) -> look.Chart:
    """A map of all tokens, and beside it the kinds of words that moved most.

    Args:
      cells: what `changes.shift_map` returns.
      words: rows of `changes_words.csv` of one prompt.
    """
    moved = words.filter(pl.col("p").is_not_nan())
    if not moved.height:
        return _map(cells)
    moved = moved.sort(pl.col("shift").abs(), descending=True).head(_SHOWN)
    return _map(cells) | _kinds(moved.sort("shift", descending=True))


def _map(cells: Array) -> alt.LayerChart:
    width = 100 / len(cells)
    places = np.argwhere(cells > 0)
    tokens = {"before": places[:, 0] * width, "after": places[:, 1] * width}
    frame = pl.DataFrame({**tokens, "tokens": cells[cells > 0].astype(np.int64)})
    ends = {"before2": pl.col("before") + width, "after2": pl.col("after") + width}
    # Few tokens must be seen beside many.
    fuller = alt.Opacity("tokens:Q", scale=alt.Scale(type="log", range=[0.12, 1]), legend=None)
    scale = alt.Scale(domain=[0, 100])
    squares = alt.Chart(look.data(frame.with_columns(**ends))).mark_rect()
    squares = squares.encode(
        alt.X("before:Q", title="percentile before", scale=scale),
        alt.Y("after:Q", title="percentile after", scale=scale),
        x2="before2:Q",
        y2="after2:Q",
        opacity=fuller,
        color=alt.value(look.TOP),
        tooltip=["before:Q", "after:Q", "tokens:Q"],
    )
    diagonal = alt.Chart(look.data(pl.DataFrame({"at": [0.0, 100.0]}))).mark_line(style="faint")
    return alt.LayerChart(
        layer=[squares, diagonal.encode(x="at:Q", y="at:Q")], width=320, height=320
    )


def _kinds(moved: pl.DataFrame) -> alt.LayerChart:
    points = {name: pl.col(name) * 100 for name in ("shift", "ci_low", "ci_high")}
    told = look.texts(moved, "share", **{name: name for name in points})
    told |= look.texts(moved, "p", q="q")
    frame = moved.select("words", **points, **told, clear=pl.col("q") < 0.05)
    base = alt.Chart().encode(
        y=alt.Y("words:N", sort=moved["words"].to_list(), title=None),
        color=alt.condition("datum.shift > 0", alt.value(look.TOP), alt.value(look.BOTTOM)),
        tooltip=["words:N", *look.told(shift="shift", ci_low="95% from", ci_high="to", q="q")],
    )
    title = "shift of the mean percentile, points"
    lines = base.mark_rule(strokeWidth=1.6).encode(x=alt.X("ci_low:Q", title=title), x2="ci_high:Q")
    fill = alt.condition("datum.clear", alt.value(1.0), alt.value(0.25))
    dots = base.mark_point(filled=True, size=46)
    dots = dots.encode(x=alt.X("shift:Q", title=title), opacity=fill)
    zero = alt.Chart().mark_rule(style="faint").encode(x=alt.XDatum(0))
    return alt.LayerChart(layer=[zero, lines, dots], data=look.data(frame), width=280, height=320)
