"""Both ends of each model's ranking: tokens with their numbers as bars."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import polars as pl

from analysis.charts import look

_HALF = 80  # Pixels on either side of the line at which bars start.


def token_bars(
    ends: pl.DataFrame,
    names: Mapping[str, str],
    count: int,
    value: str,
    label: str,
    starts: pl.DataFrame | None = None,
    columns: int = 5,
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
      columns: panels side by side, at most.
    """
    known = ends["model"].unique(maintain_order=True).to_list()
    labels = look.unique({m: m for m in known} | dict(names))
    panels = [labels[m] for m in labels if m in known]
    shown = _placed(ends, count, value, starts).with_columns(name=pl.col("model").replace(labels))
    colour = alt.Scale(domain=["top", "bottom"], range=[look.TOP, look.BOTTOM])
    places = alt.Scale(domain=list(range(1, 2 * count + 2)), paddingInner=0.28)
    x = alt.X(
        "value:Q",
        title=None,
        scale=alt.Scale(zero=False, nice=False),
        axis=alt.Axis(tickCount=3, grid=False),
    )
    bars = (
        alt.Chart()
        .mark_bar(opacity=0.9)
        .encode(
            x,
            alt.Y("place:O", axis=None, scale=places),
            x2="start:Q",
            color=alt.Color("end:N", scale=colour, legend=None),
            tooltip=[
                alt.Tooltip("token:N"),
                alt.Tooltip("name:N", title="model"),
                alt.Tooltip("value:Q", title=label, format=".4~g"),
                alt.Tooltip("rank:Q", title="place from its end"),
            ],
        )
    )
    first = alt.Chart().transform_filter("isValid(datum.low)")
    middle = first.mark_rule(style="faint").encode(x="start:Q")
    reach = first.mark_rule(opacity=0).encode(x="low:Q", x2="high:Q")  # The line is in the middle.
    free = {"expr": "datum.end == 'top' ? 'right' : 'left'"}
    aside = {"expr": "datum.end == 'top' ? -4 : 4"}
    texts = alt.Chart().mark_text(align=free, dx=aside, fontSize=10.5, limit=_HALF - 6)
    texts = texts.encode(alt.Y("place:O"), x="start:Q", text="token:N")
    layered = alt.LayerChart(
        layer=[reach, bars, middle, texts],
        data=look.data(shown),
        width=2 * _HALF,
        height=13 * (2 * count + 1),
    )
    start = "the model’s median" if starts is not None else "midway between the ends"
    below = f"{label} (bars start {'at ' if starts is not None else ''}{start})"
    chart = look.faceted(layered, panels, columns, label=below)
    made: look.Chart = chart.resolve_scale(x="independent")
    return made


def _placed(
    ends: pl.DataFrame, count: int, value: str, starts: pl.DataFrame | None
) -> pl.DataFrame:
    """The rows that are drawn, from above to below, and how far each panel reaches."""
    number = pl.col(value).cast(pl.Float64)
    top = pl.col("end") == "top"
    rank = pl.col("rank").cast(pl.Int64)
    rows = ends.filter(pl.col("rank") <= count).select(
        "model",
        "end",
        rank=rank,
        token=pl.col("token").map_elements(look.token, pl.String),
        value=number,
        place=pl.when(top).then(rank).otherwise(2 * count + 2 - rank),
    )
    if starts is None:
        nearest = (
            pl.col("value").filter(end="top").min() + pl.col("value").filter(end="bottom").max()
        )
        rows = rows.with_columns(start=(nearest / 2).over("model"))
    else:
        own = starts.select("model", start="median")
        rows = rows.join(own, on="model", how="left", validate="m:1", maintain_order="left")
    reach = 1.04 * (pl.col("value") - pl.col("start")).abs().max().over("model")
    only = (pl.col("place") == 1).replace_strict({True: 1.0, False: None}, return_dtype=pl.Float64)
    return rows.with_columns(
        low=only * (pl.col("start") - reach), high=only * (pl.col("start") + reach)
    )
