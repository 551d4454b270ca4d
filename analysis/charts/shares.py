"""Shares of a whole as stacked bars."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import polars as pl

from analysis.charts import look


def shares(
    table: pl.DataFrame,
    names: Mapping[str, str],
    label: str,
    kinds: Mapping[str, str],
    *,
    row: str = "name",
    panel: str = "",
) -> look.Chart:
    """A bar for each row, split into kinds; a share below 0 is drawn as 0, and told as it is.

    Args:
      table: component (the kind), share (1 is the whole), ci_low, ci_high; `model` for the rows
        "name".
      names: slug -> nickname, in the order of the rows "name".
      label: what the shares are of, for the axis.
      kinds: kind -> its colour, in the order of a bar.
      row: column whose values are bars.
      panel: column whose values are panels side by side; "" draws one.
    """
    named = look.named(table, names) if "model" in table.columns else table
    place = pl.col("component").replace_strict({each: at for at, each in enumerate(kinds)})
    shown = named.select(
        *dict.fromkeys((row, "component", panel or row)),
        place=place,
        drawn=100 * pl.max_horizontal("share", pl.lit(0.0)),
        **look.texts(named, "share", percent="share", low="ci_low", high="ci_high"),
    )
    labels = look.unique(names).values() if row == "name" else named[row]
    rows = [each for each in dict.fromkeys(labels) if each in named[row]]
    scale = alt.Scale(domain=list(kinds), range=list(kinds.values()))
    x = alt.X("drawn:Q", title=None if panel else label, axis=alt.Axis(tickCount=5))
    numbers = look.told(percent="share", low="95% from", high="to")
    high, wide = max(len(rows), 1) * look.STEP, 230 if panel else 420
    chart = alt.Chart(look.data(shown), height=high, width=wide).mark_bar(height=11)
    chart = chart.encode(
        x=x,
        y=alt.Y(f"{row}:N", sort=rows, title=None),
        color=alt.Color("component:N", scale=scale, title=None),
        order=alt.Order("place:Q"),
        tooltip=[f"{row}:N", "component:N", *numbers],
    )
    if not panel:
        return chart
    panels = named[panel].unique(maintain_order=True).to_list()
    return look.faceted(chart, panels, 3, panel, label)
