"""Thousands of points, binned."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import polars as pl

from analysis.charts import look

_BINS = (32, 24)  # Along x and y, in each panel.
_WORDS = 2  # Of each bin, in its tooltip.
_SIZE = (136, 132)  # Pixels of a panel.


def clouds(
    points: pl.DataFrame,
    names: Mapping[str, str],
    titles: tuple[str, str],
    *,
    x: str,
    y: str,
    columns: int = 4,
    shared: bool = True,
) -> look.Chart:
    """One panel for each model: how many points lie where.

    Args:
      points: model, and the columns `x` and `y`; of one prompt.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
      titles: of both axes.
      x: column of the horizontal axis.
      y: column of the vertical axis.
      columns: panels side by side, at most.
      shared: whether panels have one horizontal scale.
    """
    models = [model for model in names if model in points["model"]]
    labels = look.unique(names)
    drawn = models[: look.PANELS]
    cells = pl.concat(_binned(points.filter(model=model), x, y) for model in drawn)
    cells = look.with_names(cells, names)
    across_title, axis = look.title(titles[0], _SIZE[0]), alt.Axis(tickCount=5)
    across = alt.X("x:Q", title=across_title, scale=alt.Scale(zero=False), axis=axis)
    up = look.up("y", titles[1], _SIZE[1])
    paint = look.by_model(names, drawn, legend=None)
    fuller = alt.Opacity("words:Q", scale=alt.Scale(type="sqrt", range=[0.15, 1]), legend=None)
    about = [alt.Tooltip("words:Q", title="tokens"), alt.Tooltip("some:N", title="such as")]
    squares = alt.Chart(look.data(cells, sparse=True), width=_SIZE[0], height=_SIZE[1])
    squares = squares.mark_square(size=34)
    squares = squares.encode(across, up, color=paint, opacity=fuller, tooltip=["name:N", *about])
    panels, apart = [labels[model] for model in models], "y" if shared else "xy"
    return look.faceted(squares, panels, columns, apart=apart)


def _binned(points: pl.DataFrame, x: str, y: str) -> pl.DataFrame:
    """The middle of every bin that holds points, how many, and some of their words."""
    edges = [
        _edges(points[key].to_numpy(), count) for key, count in zip((x, y), _BINS, strict=True)
    ]
    places = {
        axis: np.clip(np.searchsorted(edge, points[key].to_numpy(), "right") - 1, 0, len(edge) - 2)
        for axis, key, edge in zip(("i", "j"), (x, y), edges, strict=True)
    }
    word = next((key for key in ("word", "token", "item") if key in points.columns), None)
    shown = pl.col(word).map_elements(look.token, pl.String) if word else pl.lit(None, pl.String)
    placed = points.select("model", some=shown, **{k: pl.Series(v) for k, v in places.items()})
    bins = placed.group_by("model", "i", "j", maintain_order=True)
    some = pl.col("some").head(_WORDS).str.join(", ")
    counted = bins.agg(words=pl.len(), some=some).sort("i", "j")
    middles = {
        new: pl.Series((edge[:-1] + edge[1:])[counted[place].to_numpy()] / 2)
        for new, place, edge in zip(("x", "y"), ("i", "j"), edges, strict=True)
    }
    return counted.select("model", "words", "some", **middles)


def _edges(values: np.ndarray, count: int) -> np.ndarray:
    low, high = float(values.min()), float(values.max())
    return np.linspace(low, high if high > low else low + 1.0, count + 1)
