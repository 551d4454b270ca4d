"""Places of the items of a list, as colours."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import polars as pl

from analysis.charts import look
from engine import display

_TITLES = (["all"], ["highest", "lowest"], ["highest", "differ most", "lowest"])  # Of groups.
_BESIDE = 7  # Columns up to which the groups stand side by side.
_MANY = 12  # Columns above which they are narrow, under upright names.


def standings(
    cells: pl.DataFrame, by: str, columns: Mapping[str, str], *, count: int
) -> look.Chart:
    """Percentiles of the items of one list; of a long list, the `shown_items`.

    Args:
      cells: item_id, item, mean_percentile (0 to 1), and the column `by`, one row per cell.
      by: the column of `cells` that names a column of the chart ("model" or "question").
      columns: entry of `by` -> its label, in the order of the columns; entries without a cell are
        left out.
      count: items at each end of a long list.
    """
    groups = shown_items(over(cells), count)
    titles = _TITLES[len(groups) - 1]
    order = pl.concat(
        part.select("item_id", "item", group=pl.lit(title))
        for title, part in zip(titles, groups, strict=True)
    )
    labels = look.unique(columns)
    across = [labels[entry] for entry in columns if entry in cells[by]]
    shown = cells.select("item_id", by, "mean_percentile")
    shown = order.join(shown, on="item_id", maintain_order="left")
    shown = shown.filter(pl.col(by).is_in(list(columns))).select(
        "group",
        item=pl.col("item").map_elements(lambda item: display.plain(item, len(item)), pl.String),
        column=pl.col(by).replace(labels),
        percentile=100 * pl.col("mean_percentile"),
    )
    rows = shown["item"].unique(maintain_order=True).to_list()
    few, many = len(across) <= _BESIDE, len(across) > _MANY
    scale = alt.Scale(domain=[0, 50, 100], range=[look.BOTTOM, "#f6f4ee", look.TOP])
    step = alt.Step(15 if many else 30)
    axis = alt.Axis(labelAngle=-90 if many else -40, grid=False)
    legend = alt.Legend(gradientLength=140)
    colour = alt.Color("percentile:Q", scale=scale, title="percentile in the list", legend=legend)
    chart = alt.Chart(look.data(shown), width=step, height=alt.Step(15)).mark_rect()
    chart = chart.encode(
        x=alt.X("column:N", sort=across, title=None, axis=axis),
        y=alt.Y("item:N", sort=rows, title=None, axis=alt.Axis(grid=False, labelLimit=150)),
        color=colour,
        tooltip=["item:N", "column:N", alt.Tooltip("percentile:Q", format=".1f")],
    )
    return look.faceted(chart, titles, 3 if few else 1, "group", apart="y")


def over(cells: pl.DataFrame) -> pl.DataFrame:
    """item_id, item, mean, lowest and highest of the percentiles; from the highest mean down.

    Means that differ only by rounding are ties, which go to the lower item_id.
    """
    values = pl.col("mean_percentile")
    by_item = cells.group_by("item_id", "item", maintain_order=True).agg(
        mean=values.mean(), lowest=values.min(), highest=values.max()
    )
    return by_item.sort(pl.col("mean").round(12), "item_id", descending=[True, False])


def shown_items(standing: pl.DataFrame, count: int) -> list[pl.DataFrame]:
    """The items to show of a long list: highest, most disputed and lowest, `count` of each.

    Args:
      standing: what `over` returns of one list.
      count: items in each group.

    Returns:
      The groups, each from the highest mean down. Disputed are those of the rest whose lowest and
      highest percentile are furthest apart; where no item of the rest varies, that group is left
      out. A list of at most three times `count` items is one group.
    """
    if standing.height <= 3 * count:
        return [standing]
    width = (pl.col("highest") - pl.col("lowest")).round(12)
    rest = standing[count:-count].with_row_index("at").filter(width > 0)
    widest = rest.sort(width, "at", descending=[True, False]).head(count)
    groups = [standing.head(count), widest.sort("at").drop("at"), standing.tail(count)]
    return [group for group in groups if group.height]
