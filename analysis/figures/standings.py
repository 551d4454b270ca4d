"""Percentiles of the items of a list as colours, and which items of a long list are shown."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from analysis.figures import style
from engine import display

_ROW, _LEAST = 0.2, 1.8  # Inches of a row, and of all of them: room for the colour bar's label.
_WIDTH = 3.6  # Inches for the widest names of items, and the colour bar.
_MANY = 12  # Columns above which they are narrow, under upright names.


def shown_items(standing: pl.DataFrame, count: int) -> list[pl.DataFrame]:
    """The items to show of a long list: highest, most disputed and lowest, `count` of each.

    Args:
      standing: what `items_questions.over` returns of one list.
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


@style.styled
def standings(
    cells: pl.DataFrame,
    by: str,
    value: str,
    groups: Sequence[pl.DataFrame],
    columns: Mapping[str, str],
) -> style.Figure:
    """Percentiles of the items of one list as colours.

    Args:
      cells: item_id, and the columns `by` and `value`, one row per cell.
      by: the column of `cells` that names a column of the figure ("model" or "prompt").
      value: the column of percentiles, from 0 to 1.
      groups: the items shown, one row each, as `shown_items` returns; groups are set apart.
      columns: entry of `by` -> its label, in the order of the columns; entries without a cell are
        left out.
    """
    order = pl.concat(groups)
    named = [column for column in columns if column in cells[by]]
    wide = order.select("item_id").join(
        cells.select("item_id", by, value).pivot(by, index="item_id", values=value),
        on="item_id",
        how="left",
        validate="1:1",
        maintain_order="left",
    )
    many = len(named) > _MANY
    width, below = (0.19, 2.4) if many else (0.3, 1.2)  # inches of a column and its name
    height = max(_ROW * order.height, _LEAST) + below
    figure = style.canvas(width * len(named) + _WIDTH, height)
    ax = figure.subplots()
    values = 100 * wide.select(named).to_numpy().astype(np.float64)
    colours = style.gradient(style.BOTTOM, "#f6f4ee", style.TOP)
    image = ax.imshow(values, cmap=colours, vmin=0, vmax=100, aspect="auto")
    for edge in itertools.accumulate(group.height for group in groups[:-1]):
        ax.axhline(edge - 0.5, color="white", linewidth=5)
    items = [style.name(display.plain(item, len(item)), 24) for item in order["item"]]
    ax.set_yticks(range(order.height), items)
    labels = [style.name(columns[column], 32 if many else 22) for column in named]
    # Any: keywords of matplotlib.
    turned: dict[str, Any] = {"rotation": 90} if many else {"rotation": 30, "ha": "right"}
    ax.set_xticks(range(len(named)), labels, **turned)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = figure.colorbar(
        image, ax=ax, shrink=0.6 if order.height > 12 else 1.0, pad=0.02, ticks=[0, 50, 100]
    )
    bar.set_label("percentile in the list")
    bar.outline.set_visible(False)
    return figure
