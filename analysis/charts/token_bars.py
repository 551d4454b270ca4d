"""Both ends of each model's ranking: tokens with their numbers as bars."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import polars as pl

from analysis.charts import look

_HALF = 84  # Pixels on either side of the line at which bars start.


def token_bars(
    ends: pl.DataFrame,
    names: Mapping[str, str],
    count: int,
    value: str,
    label: str,
    starts: pl.DataFrame | None = None,
) -> look.Chart:
    """Tokens at both ends of any number, one panel for each model.

    Args:
      ends: model, end ("top" or "bottom"), rank, token and the column `value`.
      names: slug -> nickname, in the order of the panels; a model that is not in it comes last,
        under its slug.
      count: tokens shown at each end.
      value: the column that is drawn.
      label: what it is, for the axis.
      starts: model and median, where the bars start; midway between the ends by default.
    """
    known = ends["model"].unique(maintain_order=True).to_list()
    labels = look.unique(dict(names) | {m: m for m in known if m not in names})
    panels = [label for model, label in labels.items() if model in known]
    drawn = [model for model in labels if model in known][: look.PANELS]
    shown = _placed(ends.filter(pl.col("model").is_in(drawn)), count, value, starts)
    shown = shown.with_columns(name=pl.col("model").replace(labels))
    colour = alt.Scale(domain=["top", "bottom"], range=[look.TOP, look.BOTTOM])
    bar_start = "midway between the ends" if starts is None else "at the model’s median"
    across_title = look.title(f"{label} (bars start {bar_start})", 2 * _HALF)
    axis, free = alt.Axis(tickCount=3, grid=False), "datum.end == 'top' ? {} : {}"
    base = alt.Chart().encode(
        alt.X("start:Q", title=across_title, axis=axis, scale=alt.Scale(zero=False, nice=False)),
        alt.Y("place:O", axis=None, scale=alt.Scale(domain=list(range(1, 2 * count + 2)))),
    )
    bars = base.mark_bar(opacity=0.9, height={"band": 0.74}).encode(
        x2="value:Q",
        color=alt.Color("end:N", scale=colour, legend=None),
        tooltip=[
            alt.Tooltip("token:N"),
            alt.Tooltip("name:N", title="model"),
            *look.told(value=label),
            alt.Tooltip("rank:Q", title="place from its end"),
        ],
    )
    texts = base.mark_text(
        align={"expr": free.format("'right'", "'left'")},
        dx={"expr": free.format(-4, 4)},
        fontSize=look.TYPE,
        limit=_HALF - 6,
    ).encode(text="token:N")
    once = alt.Chart().transform_filter("datum.place == 1")
    layers = [
        once.mark_rule(opacity=0).encode(x="low:Q", x2="high:Q"),  # So the line is in the middle.
        bars,
        once.mark_rule(style="faint").encode(x="start:Q"),
        texts,
    ]
    height = 14 * (2 * count + 1)
    layered = alt.LayerChart(layer=layers, data=look.data(shown), width=2 * _HALF, height=height)
    return look.faceted(layered, panels, 5, apart="x")


def _placed(
    ends: pl.DataFrame, count: int, value: str, starts: pl.DataFrame | None
) -> pl.DataFrame:
    """The rows that are drawn, from above to below, and how far each panel reaches."""
    top, rank = pl.col("end") == "top", pl.col("rank").cast(pl.Int64)
    shown = ends.filter(pl.col("rank") <= count)
    rows = shown.select(
        "model",
        "end",
        rank=rank,
        token=pl.col("token").map_elements(look.token, pl.String),
        value=pl.col(value).cast(pl.Float64),
        place=pl.when(top).then(rank).otherwise(2 * count + 2 - rank),
        **look.texts(shown, "number", value=value),
    )
    number = pl.col("value")
    if starts is None:
        between = (number.filter(end="top").min() + number.filter(end="bottom").max()) / 2
        rows = rows.with_columns(start=between.over("model"))
    else:
        medians = starts.select("model", start="median")
        rows = rows.join(medians, on="model", how="left", validate="m:1", maintain_order="left")
    reach = 1.04 * (number - pl.col("start")).abs().max().over("model")
    return rows.with_columns(low=pl.col("start") - reach, high=pl.col("start") + reach)
