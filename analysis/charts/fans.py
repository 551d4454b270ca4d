"""Slopes as lines that fan out from zero."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import polars as pl

from analysis.charts import look


def fans(slopes: pl.DataFrame, names: Mapping[str, str], titles: tuple[str, str]) -> look.Chart:
    """One panel for each model: a line from zero for each slope, with the band of its interval.

    Args:
      slopes: model, slope, ci_low, ci_high, question (what the colours tell apart, in the order of
        the legend) and reach (where a line ends on the horizontal axis); a slope that is not known
        has no line.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
      titles: of both axes.
    """
    known = slopes.filter(pl.col("slope").is_finite())
    models = [model for model in names if model in known["model"]]
    known = known.filter(pl.col("model").is_in(models[: look.PANELS]))
    labels = look.unique(names)
    numbers = {"y": "slope", "low": "ci_low", "high": "ci_high"}
    ends = [
        known.select(
            *("model", "question"),
            line=pl.int_range(pl.len()),
            x=pl.col("reach") * far,
            **{new: pl.col(key) * pl.col("reach") * far for new, key in numbers.items()},
            **look.texts(known, "number", **numbers),
        )
        for far in (0.0, 1.0)
    ]
    shown = look.named(pl.concat(ends), names)
    kinds = slopes["question"].unique(maintain_order=True).to_list()
    x = alt.X("x:Q", title=look.title(titles[0], 136), axis=alt.Axis(tickCount=3))
    legend = alt.Legend(symbolOpacity=1)
    paint = look.by_kind("question", kinds, legend=legend)
    base = alt.Chart().encode(x=x, color=paint, detail="line:N")
    y = look.up("y", titles[1], 170)
    tooltip = ["name:N", "question:N", *look.told(y="slope", low="95% from", high="to")]
    bands = base.mark_area(opacity=0.18).encode(alt.Y("low:Q"), y2="high:Q")
    bands = bands.transform_filter("isValid(datum.low)")
    dots = base.mark_point(filled=True, size=44, opacity=1)
    dots = dots.encode(shape=look.shaped("question", kinds, legend=legend))
    layers = [
        *(alt.Chart().mark_rule(style="faint").encode(**{axis: datum}) for axis, datum in _ZERO),
        bands,
        base.mark_line().encode(y),
        dots.transform_filter("datum.x != 0").encode(y, tooltip=tooltip),
    ]
    layered = alt.LayerChart(layer=layers, data=look.data(shown), width=136, height=170)
    return look.faceted(layered, [labels[m] for m in models], 5, apart="y")


_ZERO = (("x", alt.XDatum(0)), ("y", alt.YDatum(0)))
