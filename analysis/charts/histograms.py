"""How many margins lie in each range: bars."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import polars as pl

from analysis.charts import look

_BINS = 30


def histograms(table: pl.DataFrame, names: Mapping[str, str]) -> look.Chart:
    """One panel for each model: how many pairs have which margin, with a line at zero.

    Args:
      table: model and margin; each model has bins of its own.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    models = [model for model in names if model in table["model"]]
    labels, bins = look.unique(names), []
    for model in models[: look.PANELS]:
        counts, edges = np.histogram(table.filter(model=model)["margin"].to_numpy(), _BINS)
        columns = {"low": edges[:-1], "high": edges[1:], "count": counts}
        bins.append(pl.DataFrame(columns).with_columns(model=pl.lit(model)))
    shown = look.with_names(pl.concat(bins), names)
    ends = [alt.Tooltip(f"{end}:Q", format=".3~g") for end in ("low", "high")]
    bars = alt.Chart().mark_bar(binSpacing=0)
    bars = bars.encode(
        x=alt.X("low:Q", title="margin", bin="binned", axis=alt.Axis(tickCount=5)),
        x2="high:Q",
        y=look.up("count", "pairs", 120),
        color=look.by_model(names, models[: look.PANELS], legend=None),
        tooltip=["name:N", alt.Tooltip("count:Q", title="pairs"), *ends],
    )
    zero = alt.Chart().mark_rule(style="ink").encode(x=alt.XDatum(0))
    layered = alt.LayerChart(layer=[bars, zero], data=look.data(shown), width=190, height=120)
    return look.faceted(layered, [labels[m] for m in models], 4, apart="xy")
