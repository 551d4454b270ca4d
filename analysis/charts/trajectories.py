"""Percentiles of words over the steps of a training; others appear when they are searched."""

from __future__ import annotations

import altair as alt
import polars as pl

from analysis.charts import look

_WIDE, _HIGH = 720, 320
SEARCH = "searched"  # the parameter that the page's search box sets


def trajectories(table: pl.DataFrame, words: pl.DataFrame, noise: float, box: str) -> look.Chart:
    """A line for each word that moved most, and for each token that the reader searches.

    Args:
      table: step, token_id, token and percentile, 0 to 1, of every token.
      words: token_id and word of those that are drawn before anything is searched, in the order of
        their colours.
      noise: change of a percentile that is noise: half the width of the bands.
      box: CSS selector of the page's search box.
    """
    steps = [str(step) for step in table["step"].unique().sort()]
    shares = pl.col("percentile") * 100
    wide = table.with_columns(shares).pivot(
        "step", index=["token_id", "token"], values="percentile"
    )
    joined = wide.join(words.select("token_id", "word"), on="token_id", how="left")
    texts = [look.token(token.strip() or token) for token in joined["token"]]
    kept = joined.select(
        "token_id", pl.Series("token", texts), pl.col("word").is_not_null().alias("shown"), *steps
    ).with_columns(pl.col(steps).round(1))
    drawn = [look.token(token) for token in words["token"].str.strip_chars()]
    text = alt.param(
        name=SEARCH, value="", bind=alt.BindDirect(element=box, event="input", debounce=150)
    )
    found = (
        f"{SEARCH} == '' ? datum.shown : indexof(lower(datum.token), lower(trim({SEARCH}))) == 0"
    )
    base = (
        alt.Chart(look.data(kept))
        .transform_filter(found)
        .transform_fold([*steps], as_=["at", "percentile"])
        .transform_filter("isValid(datum.percentile)")
        .transform_calculate(
            step="toNumber(datum.at)",
            low=f"max(0, datum.percentile - {100 * noise:.3g})",
            high=f"min(100, datum.percentile + {100 * noise:.3g})",
        )
    )
    named_colour = look.by_kind("token", drawn, legend=alt.Legend(columns=4, symbolOpacity=1))
    colour = alt.condition("datum.shown", named_colour, alt.value("#8877cc"))
    x = alt.X("step:Q", title="step", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=8))
    y = alt.Y("percentile:Q", title="percentile", scale=alt.Scale(domain=[0, 100]))
    told = [
        alt.Tooltip("token:N"),
        alt.Tooltip("step:Q"),
        alt.Tooltip("percentile:Q", format=".1f"),
    ]
    lined = base.encode(x=x, color=colour, detail="token_id:N")
    return alt.layer(
        lined.mark_area(opacity=0.25).encode(y=alt.Y("low:Q", title="percentile"), y2="high:Q"),
        lined.mark_line(strokeWidth=2).encode(y=y),
        lined.mark_point(size=40, filled=True).encode(y=y, tooltip=told),
        width=_WIDE,
        height=_HIGH,
    ).add_params(text)
