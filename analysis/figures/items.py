"""Where the items of a list stand with each model, or under each prompt."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from analysis import display
from analysis.figures import style

_ROW, _LEAST = 0.2, 1.8  # Inches of a row, and of all of them: what the colour bar's label takes.
_LABELS = 3.6  # Inches for the widest names of items, and the colour bar.
_MANY = 12  # Columns above which they are narrow, under upright names.
_COLOURS = LinearSegmentedColormap.from_list("standing", [style.BOTTOM, "#f6f4ee", style.TOP])


@style.styled()
def standings(
    cells: pl.DataFrame,
    by: str,
    value: str,
    groups: Sequence[pl.DataFrame],
    columns: Mapping[str, str],
) -> Figure:
    """Percentiles of the items of one list as colours.

    Args:
      cells: item_id, and the columns `by` and `value`, a row a cell.
      by: the column of `cells` that names a column of the figure ("model" or "prompt").
      value: percentile, from 0 to 1.
      groups: the items shown, a row each, as `items.telling` returns; a gap is between groups.
      columns: what stands in `by` -> its label, in the order of the columns; those that no cell
        has are left out.
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
    figure = style.canvas(width * len(named) + _LABELS, height)
    ax = figure.subplots()
    values = 100 * wide.select(named).to_numpy().astype(np.float64)
    image = ax.imshow(values, cmap=_COLOURS, vmin=0, vmax=100, aspect="auto")
    for edge in itertools.accumulate(group.height for group in groups[:-1]):
        ax.axhline(edge - 0.5, color="white", linewidth=5)
    items = [style.name(display.plain(item, len(item)), 24) for item in order["item"]]
    ax.set_yticks(range(order.height), items)
    labels = [style.name(columns[column], 32 if many else 22) for column in named]
    turned = {"rotation": 90} if many else {"rotation": 30, "ha": "right"}
    ax.set_xticks(range(len(named)), labels, **turned)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = figure.colorbar(
        image, ax=ax, shrink=0.6 if order.height > 12 else 1.0, pad=0.02, ticks=[0, 50, 100]
    )
    bar.set_label("percentile in the list")
    bar.outline.set_visible(False)
    return figure
