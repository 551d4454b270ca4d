"""Points with their names beside them: a map of the models, and items of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from analysis.charts import look
from analysis.charts.clouds import binned
from analysis.statistics import Array

_LETTER, _LINE = 6.2, 13  # Pixels of a letter and of a line of a name.
_MAP, _FRAMINGS = (400, 300), (430, 400)  # Pixels of a panel.
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
    shown = look.named(points, names).select("name", "base", "developer", "x", "y")
    low, high = (shown.select(end("x", "y")).to_numpy()[0] for end in (pl.min, pl.max))
    unit = max(float(((high - low) / _MAP).max()), 1e-9) * _ROOM  # Of one pixel, in both axes.
    half = unit * np.array(_MAP) / 2
    domain = np.array([(low + high) / 2 - half, (low + high) / 2 + half])
    placed = look.data(_placed(shown, "name", domain, _MAP))
    varying = [trait for trait in ("base", "developer") if shown[trait].n_unique() > 1]
    panels = []
    for trait in varying or ["base"]:
        kinds = shown[trait].unique().sort().to_list()
        shapes = [shape for _, shape in look.looks(kinds).values()]
        legend = alt.Legend(title=trait, columns=3, symbolLimit=0)
        dots = alt.Chart().mark_point(filled=True, size=70, opacity=1)
        dots = dots.encode(
            *_axes(domain, axis=None),
            color=look.by_kind(trait, kinds, legend=legend),
            shape=alt.Shape(
                f"{trait}:N", scale=alt.Scale(domain=kinds, range=shapes), legend=legend
            ),
            tooltip=["name:N", "base:N", "developer:N"],
        )
        layers = [dots, *_written("name")]
        frame = alt.ViewBackground(stroke="#8e98a5", strokeOpacity=0.4)
        width, height = _MAP
        panels.append(alt.LayerChart(layer=layers, width=width, height=height, view=frame))
    said = f"1 − τ as distance; stress {table['stress'][0]:.2f}"
    below = alt.TitleParams(said, orient="bottom", fontSize=11, fontWeight=400)
    made: look.Chart = alt.hconcat(*panels, data=placed, title=below).resolve_scale(
        color="independent", shape="independent"
    )
    return made


def both_framings(table: pl.DataFrame, count: int) -> look.Chart:
    """Where each item stands under positive and under negative prompts; the corners are named.

    Args:
      table: rows of `items_framing.csv` of one list.
      count: items that are named at each end of `kept` and of `turned`.
    """
    ordered = [table.sort(by, "item_id")["item"] for by in ("kept", "turned")]
    ends = pl.concat([end for items in ordered for end in (items.tail(count), items.head(count))])
    shown = table.select(
        "item", x=100 * pl.col("positive"), y=100 * pl.col("negative"), model=pl.lit("")
    )
    domain = np.array([[0.0, 0.0], [100.0, 100.0]])
    titles = [f"mean percentile under the {how} prompts" for how in ("positive", "negative")]
    squares = alt.Chart(look.data(binned(shown, "x", "y").drop("model")))
    squares = squares.mark_square(size=70, color=look.TOP).encode(
        *_axes(domain, titles),
        opacity=alt.Opacity("words:Q", scale=alt.Scale(type="sqrt", range=[0.25, 1]), legend=None),
        tooltip=[alt.Tooltip("words:Q", title="items"), alt.Tooltip("some:N", title="such as")],
    )
    guides = [
        alt.Chart(look.data(pl.DataFrame({"at": [50]}))).mark_rule(style="faint").encode(**middle)
        for middle in ({"x": "at:Q"}, {"y": "at:Q"})
    ]
    corners = shown.filter(pl.col("item").is_in(ends.implode())).select(
        "x", "y", item=pl.col("item").map_elements(look.token, pl.String)
    )
    placed = _placed(corners, "item", domain, _FRAMINGS)
    width, height = _FRAMINGS
    named = [text.properties(data=look.data(placed)) for text in _written("item")]
    return alt.LayerChart(layer=[*guides, squares, *named], width=width, height=height)


def _axes(domain: Array, titles: Sequence[str | None] = (None, None), **other: Any) -> list[Any]:
    """Both axes [2 ends, 2 axes], with the same scale in every panel."""
    return [
        of(f"{key}:Q", title=title, scale=alt.Scale(domain=ends, nice=False), **other)
        for of, key, title, ends in zip(
            (alt.X, alt.Y), "xy", titles, domain.T.tolist(), strict=True
        )
    ]


def _written(label: str) -> list[alt.Chart]:
    """The names that stand right and left of their points."""
    return [
        alt.Chart()
        .transform_filter(f"datum.side == {side}")
        .mark_text(align=align, dx=7 * side, baseline="middle", fontSize=10.5)
        .encode(x="x:Q", y="at:Q", text=f"{label}:N")
        for side, align in ((1, "left"), (-1, "right"))
    ]


def _placed(shown: pl.DataFrame, label: str, domain: Array, size: tuple[int, int]) -> pl.DataFrame:
    """`shown` with the side of each name (1 is right) and its height, in units of y.

    Each takes the place that shares least with the frame, the points and the earlier names.
    """
    low, high = domain
    pixels = (shown.select("x", "y").to_numpy() - low) / (high - low) * size
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in pixels]
    taken += [(-999, -999, 0, 999), (size[0], -999, 1999, 999)]
    places = []
    for (x, y), text in zip(pixels, shown[label], strict=True):
        width = _LETTER * len(text) + 8
        spots = {
            (side, up): (*sorted((x + 5 * side, x + side * width)), y + up)
            for up in (0, _LINE - 3, 3 - _LINE)
            for side in (1, -1)
        }
        spots = {
            at: (left, up - _LINE / 2, right, up + _LINE / 2)
            for at, (left, right, up) in spots.items()
        }
        best = min(spots, key=lambda at: sum(_overlap(spots[at], box) for box in taken))
        taken.append(spots[best])
        places.append((best[0], y + best[1]))
    heights = [low[1] + (high[1] - low[1]) * y / size[1] for _, y in places]
    return shown.with_columns(side=pl.Series([side for side, _ in places]), at=pl.Series(heights))


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Area that two boxes (left, bottom, right, top) share."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(width, 0.0) * max(height, 0.0)
