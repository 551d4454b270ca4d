"""Where tokens and kinds of words stood before and stand after."""

from __future__ import annotations

import numpy as np
import polars as pl

from analysis.figures import style
from analysis.statistics import Array

_SHOWN = 14  # kinds of words


@style.styled
def shifts(cells: Array, words: pl.DataFrame) -> style.Figure:
    """A map of all tokens, and the kinds of words that moved most.

    Args:
      cells: what `changes.shift_map` returns.
      words: rows of `changes_words.csv` of one prompt.
    """
    shown = words.filter(pl.col("p").is_not_nan())
    shown = shown.sort(pl.col("shift").abs(), descending=True).head(_SHOWN).sort("shift")
    figure = style.canvas(9.2, 4.0)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.05))
    # Few tokens must be seen beside many: logarithmic shades.
    left.imshow(
        np.log1p(cells.T),
        origin="lower",
        extent=(0, 100, 0, 100),
        cmap=style.gradient("#ffffff", "#7fb8b0", "#0b3b36"),
        interpolation="nearest",
    )
    left.plot([0, 100], [0, 100], color=style.BOTTOM, linewidth=0.8)
    left.set_xlabel("percentile before")
    left.set_ylabel("percentile after")
    for place, row in enumerate(shown.iter_rows(named=True)):
        colour = style.TOP if row["shift"] > 0 else style.BOTTOM
        right.plot([100 * row["ci_low"], 100 * row["ci_high"]], [place] * 2, color=colour, lw=1.2)
        face = colour if row["q"] < 0.05 else "white"
        right.plot(100 * row["shift"], place, "o", color=colour, markerfacecolor=face, ms=5)
    right.set_yticks(range(shown.height), [style.name(word, 30) for word in shown["words"]])
    right.axvline(0, color=style.INK, linewidth=0.8, linestyle=":")
    right.set_xlabel("shift of the mean percentile, points")
    right.tick_params(axis="y", length=0)
    return figure
