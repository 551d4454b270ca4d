"""Ranks of items for people and models: those furthest apart."""

from __future__ import annotations

import altair as alt
import polars as pl

from analysis.charts import look

_LOWER, _HIGHER = "lower than people’s rank predicts", "higher than it predicts"
_NUMBERS = {
    "people": "people’s rank",
    "predicted": "predicted from it",
    "models": "median of the models",
}


def dumbbells(gaps: pl.DataFrame, count: int) -> look.Chart:
    """The items whose residual is furthest from zero: both ranks, and the predicted one.

    A line joins the models' rank to the rank that the people's predicts, a thin one the people's.

    Args:
      gaps: rows of `humans_gap.csv` for one list and prompt.
      count: items at each end.
    """
    ordered = gaps.sort("residual", "item", descending=[True, False])
    count = min(count, (gaps.height + 1) // 2)
    ends = {_LOWER: ordered.head(count), _HIGHER: ordered.tail(count).reverse()}
    place = pl.format("{} ({})", pl.col("item").map_elements(look.token, pl.String), "gap_place")
    shown = pl.concat(
        part.select(
            place.alias("item"),
            pl.lit(end).alias("end"),
            people="human_rank",
            predicted=pl.col("model_rank") - pl.col("residual"),
            models="model_rank",
        )
        for end, part in ends.items()
    )
    scale = alt.Scale(domain=list(ends), range=[look.BOTTOM, look.TOP])
    paint = alt.Color("end:N", scale=scale, legend=None)
    numbers = [
        alt.Tooltip(f"{key}:Q", title=title, format=",.0f") for key, title in _NUMBERS.items()
    ]
    rows = alt.Y("item:N", sort=shown["item"].to_list(), title=None, axis=alt.Axis(labelLimit=230))
    across_title = (
        "rank (1 is best): ring people, bar predicted from people, dot median of the models"
    )
    across = alt.X("people:Q", title=across_title, axis=alt.Axis(tickCount=6, format=",.0f"))
    base = alt.Chart().encode(y=rows, tooltip=["item:N", *numbers])
    layers = [
        base.mark_rule(style="faint").encode(x="people:Q", x2="predicted:Q"),
        base.mark_rule(strokeWidth=2.4, opacity=0.6).encode(
            x="predicted:Q", x2="models:Q", color=paint
        ),
        base.mark_tick(style="ink", thickness=1.6, size=11).encode(x="predicted:Q"),
        base.mark_point(style="ink", size=40).encode(x=across),
        base.mark_point(filled=True, size=44, opacity=1).encode(x="models:Q", color=paint),
    ]
    made = alt.LayerChart(layer=layers, data=look.data(shown), width=520, height=alt.Step(16))
    return look.faceted(made, list(ends), 1, "end", apart="y")
