"""Ranks of items for people and models: those furthest apart, and some items through all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from analysis.charts import look

HUMAN = "human"
_LOWER, _HIGHER = "lower than people’s rank predicts", "higher than it predicts"
_NUMBERS = {
    "people": "people’s rank",
    "predicted": "predicted from it",
    "models": "median of the models",
}
_FIRST = 1000  # Ranks of the lower panel.


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
    said = "rank (1 is best): ring people, bar predicted from people, dot median of the models"
    across = alt.X("people:Q", title=said, axis=alt.Axis(tickCount=6, format=",.0f"))
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


def trajectories(
    ranked: pl.DataFrame, names: Mapping[str, str], items: Sequence[str]
) -> look.Chart:
    """The rank of some items for people and for each model; below, the first 1,000 ranks.

    Args:
      ranked: item_id, item, human_rank, then one column per model with its rank (1 is best).
      names: slug -> nickname, in the order of the columns of the chart.
      items: the items that are drawn and named.
    """
    models = [model for model in names if model in ranked.columns]
    labels = look.unique({"human_rank": HUMAN} | {model: names[model] for model in models})
    chosen = ranked.filter(pl.col("item").is_in(list(items))).unique("item").sort("human_rank")
    shown = chosen.select(
        pl.col("item").map_elements(look.token, pl.String), "human_rank", *models
    ).unpivot(index="item", variable_name="by", value_name="rank")
    shown = shown.with_columns(pl.col("by").replace(labels))
    kinds = shown["item"].unique(maintain_order=True).to_list()
    base = alt.Chart(
        width=max((62 if len(labels) <= look.PANELS else 24) * len(labels), 260)
    ).mark_line(strokeWidth=1.5, point=alt.OverlayMarkDef(size=34, filled=True), clip=True)
    first = alt.Scale(type="log", domain=[min(_FIRST, ranked.height), 0.9], clamp=True)
    whole = alt.Scale(domain=[ranked.height, 1])
    across = alt.X("by:N", sort=list(labels.values()), title=None)
    legend = alt.Legend(orient="right", columns=1, symbolLimit=0)
    paint = look.by_kind("item", kinds, legend=legend)
    tooltip = ["item:N", "by:N", alt.Tooltip("rank:Q", format=",.4~g")]
    panels = [
        base.encode(
            x=across.axis(labelAngle=-40, labels=below),
            y=alt.Y("rank:Q", title=title, scale=scale),
            color=paint,
            tooltip=tooltip,
        ).properties(height=height)
        for title, scale, height, below in (
            ("rank (1 is best)", whole, 220, False),
            ("the first 1,000, log scale", first, 120, True),
        )
    ]
    return alt.vconcat(*panels, data=look.data(shown)).resolve_scale(x="shared")
