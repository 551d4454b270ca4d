"""A map of the models: points with their names beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from analysis.charts import look
from analysis.statistics import Array

SIZE = (400, 300)  # Pixels of a panel.
_LETTER, _LINE = 6.4, 14  # Pixels of a letter and of a line of a name.
_ALIGNED: dict[int, Any] = {1: "left", -1: "right"}  # Any: literals of Altair
_ROOM = 1.5  # Width of a map over that of its points: room for the names.


def map_of_models(
    table: pl.DataFrame, models: pl.DataFrame, names: Mapping[str, str]
) -> look.Chart:
    """The models as points whose distances are their disagreement, by each trait that varies.

    Args:
      table: `mds_<prompt>.csv`: model, x, y, stress.
      models: `models.csv`.
      names: slug -> nickname.
    """
    traits = models.select("model", pl.col("base", "developer").fill_null("unknown"))
    points = table.join(traits, on="model", how="left", validate="1:1", maintain_order="left")
    shown = look.with_names(points, names).select("name", "base", "developer", "x", "y")
    xy = shown.select("x", "y").to_numpy()
    low, high = xy.min(axis=0), xy.max(axis=0)
    unit = max(float(((high - low) / SIZE).max()), 1e-9) * _ROOM  # Of one pixel, on both axes.
    corner = (low + high - unit * np.array(SIZE)) / 2
    sides, heights = _placed((xy - corner) / unit, shown["name"])
    placed = shown.with_columns(
        side=pl.Series(sides), at=corner[1] + unit * pl.Series(heights, dtype=pl.Float64)
    )
    ends = zip(corner, corner + unit * np.array(SIZE), strict=True)
    scales = [alt.Scale(domain=[float(a), float(b)], nice=False) for a, b in ends]
    x, y = alt.X("x:Q", scale=scales[0], axis=None), alt.Y("y:Q", scale=scales[1], axis=None)
    texts = [
        alt.Chart()
        .transform_filter(f"datum.side == {side}")
        .mark_text(align=align, dx=7 * side, fontSize=look.TYPE)
        .encode(x=x, y=alt.Y("at:Q", scale=scales[1], axis=None), text="name:N")
        for side, align in _ALIGNED.items()
    ]
    varying = [trait for trait in ("base", "developer") if shown[trait].n_unique() > 1]
    panels = [
        alt.layer(_dots(shown[trait]).encode(x, y), *texts).properties(
            width=SIZE[0],
            height=SIZE[1],
            view=alt.ViewBackground(stroke="#8e98a5", strokeOpacity=0.4),
        )
        for trait in varying or ["base"]
    ]
    unnamed = sides.count(0)
    caption = f"1 − τ as distance; stress {table['stress'][0]:.2f}"
    caption += f"; {unnamed} without room for a name" if unnamed else ""
    below = alt.TitleParams(caption, orient="bottom", fontSize=look.TYPE, fontWeight=400)
    chart = alt.hconcat(*panels, data=look.data(placed), title=below)
    return chart.resolve_scale(color="independent", shape="independent")


def _dots(trait: pl.Series) -> look.Chart:
    """Points in the colour and shape of a trait of the models."""
    kinds = trait.unique().sort().to_list()
    legend = alt.Legend(title=trait.name, columns=3, symbolLimit=0)
    dots = alt.Chart().mark_point(filled=True, size=70, opacity=1)
    return dots.encode(
        color=look.by_kind(trait.name, kinds, legend=legend),
        shape=look.shaped(trait.name, kinds, legend=legend),
        tooltip=["name:N", "base:N", "developer:N"],
    )


def _placed(points: Array, names: pl.Series) -> tuple[list[int], list[float]]:
    """The side of each name (1 is right) and its height, for `points` [N, 2] in pixels.

    Each takes the place that shares least with the frame, the points and the earlier names. One
    without a free place has the side 0: it is not written.
    """
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    taken += [(-999, -999, 0, 999), (SIZE[0], -999, 1999, 999)]
    sides, heights = [], []
    for (x, y), name in zip(points, names, strict=True):
        spots = {}
        for up in (y, y + _LINE - 3, y - _LINE + 3):
            for side in (1, -1):
                left, right = sorted((x + 5 * side, x + side * (_LETTER * len(name) + 8)))
                spots[side, up] = (left, up - _LINE / 2, right, up + _LINE / 2)
        best = min(spots, key=lambda at: sum(_overlap(spots[at], box) for box in taken))
        free = not any(_overlap(spots[best], box) for box in taken)
        taken += [spots[best]] * free
        sides.append(best[0] * free)
        heights.append(best[1])
    return sides, heights


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Area that two boxes (left, bottom, right, top) share."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(width, 0.0) * max(height, 0.0)
