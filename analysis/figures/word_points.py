"""Words as points, one panel per model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from analysis.figures import style
from analysis.statistics import Array

SIDES = {"positive": style.TOP, "negative": style.BOTTOM}
_PANEL = (2.1, 2.2)


def panels(
    points: pl.DataFrame, names: Mapping[str, str]
) -> tuple[style.Figure, dict[str, style.Axes]]:
    """A figure with one panel for each model of `points`, in the order of `names`."""
    known = set(points["model"].unique())
    return style.panels(names, [model for model in names if model in known], 5, _PANEL)


def fitted_line(ax: style.Axes, x: Array, y: Array, slope: pl.Series, colour: str) -> None:
    """The least-squares line through the points, of a known slope; none where it is undefined."""
    known = slope.drop_nulls().drop_nans()
    if len(known) == 1:
        ends = np.array([x.min(), x.max()])
        line = y.mean() + known[0] * (ends - x.mean())
        ax.plot(ends, line, color="white", linewidth=3.4)
        ax.plot(ends, line, color=colour, linewidth=1.8)
