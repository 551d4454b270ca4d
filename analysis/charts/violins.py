"""The shapes of distributions, as violins that lie on their sides."""

from __future__ import annotations

import json
from collections.abc import Mapping

import altair as alt
import polars as pl

from analysis.charts import look

_HALF = 0.42  # Of a violin, where violins are 1 apart.
_EVERY = 6  # Which points of an outline are drawn.


def violins(
    densities: pl.DataFrame,
    quantiles: pl.DataFrame,
    names: Mapping[str, str],
    kinds: Mapping[str, str],
    label: str,
) -> look.Chart:
    """One panel for each model, and in it one violin for each kind, such as a prompt.

    Each panel has a scale of its own: rewards of two models have no common unit.

    Args:
      densities: model, prompt (the kind), reward and density, which ascend by reward.
      quantiles: model, prompt, q05, q25, median, q75 and q95.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
      kinds: kind -> how it is called, from above to below.
      label: what the numbers are, for the axis.
    """
    models = [model for model in names if model in densities["model"]]
    drawn = pl.col("model").is_in(models[: look.PANELS])
    densities, quantiles = densities.filter(drawn), quantiles.filter(drawn)
    labels = look.unique(names)
    places = {kind: place for place, kind in enumerate(kinds)}
    at = pl.col("prompt").replace_strict(places, return_dtype=pl.Float64)
    half = _HALF * pl.col("density") / pl.col("density").max()
    outlines = densities.with_columns(at=at, half=half.over("model", "prompt"))
    place = pl.int_range(pl.len()).over("model", "prompt")
    outlines = outlines.filter(place % _EVERY == 0)
    kind = pl.col("prompt").replace(dict(kinds))
    boxes = quantiles.select(pl.exclude("prompt"), at=at, kind=kind)
    shown = pl.concat([outlines.select("model", "at", "reward", "half"), boxes], how="diagonal")
    label_expr = f"{json.dumps([look.name(text, 32) for text in kinds.values()])}[datum.value]"
    axis = alt.Axis(values=list(places.values()), labelExpr=label_expr, grid=False)
    y = alt.Y("low:Q", title=None, axis=axis, scale=alt.Scale(domain=[len(kinds) - 0.5, -0.5]))
    x = alt.X("reward:Q", title=label, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4))
    paint = look.by_model(names, models[: look.PANELS], legend=None)
    shapes = alt.Chart().transform_filter("isValid(datum.reward)")
    shapes = shapes.transform_calculate(low="datum.at - datum.half", high="datum.at + datum.half")
    shapes = shapes.mark_area(opacity=0.5, orient="vertical")
    shapes = shapes.encode(x, y, y2="high:Q", color=paint, detail="at:N")
    spread = alt.Chart().transform_filter("isValid(datum.median)").encode(y="at:Q")
    tooltip = ["name:N", alt.Tooltip("kind:N", title="of")]
    tooltip += [alt.Tooltip(f"{key}:Q", format=".4~g") for key in ("q05", "q25", "median", "q75")]
    tooltip.append(alt.Tooltip("q95:Q", format=".4~g"))
    layers = [
        shapes,
        spread.mark_rule(style="ink", strokeWidth=1).encode(x="q05:Q", x2="q95:Q"),
        spread.mark_rule(style="ink", strokeWidth=4).encode(x="q25:Q", x2="q75:Q", tooltip=tooltip),
        spread.mark_tick(color="white", thickness=2, size=9).encode(x="median:Q", tooltip=tooltip),
    ]
    data, high = look.data(look.with_names(shown, names), sparse=True), max(46 * len(kinds), 60)
    layered = alt.LayerChart(layer=layers, data=data, width=150, height=high)
    return look.faceted(layered, [labels[m] for m in models], 5, apart="x")
