"""Where the items of a list stand with each model, or under each prompt."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from analysis import display
from analysis.figures import style

_COLUMN, _ROW = 0.3, 0.2  # Inches.
_LABELS = 3.6  # Inches for the widest names of items, and the colour bar.
_STEEP = 12  # Columns above which their names stand upright.
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
    figure = style.canvas(_COLUMN * len(named) + _LABELS, _ROW * order.height + 1.2)
    ax = figure.subplots()
    values = 100 * wide.select(named).to_numpy().astype(np.float64)
    image = ax.imshow(values, cmap=_COLOURS, vmin=0, vmax=100, aspect="auto")
    for edge in itertools.accumulate(group.height for group in groups[:-1]):
        ax.axhline(edge - 0.5, color="white", linewidth=5)
    items = [style.name(display.plain(item, len(item)), 24) for item in order["item"]]
    ax.set_yticks(range(order.height), items)
    labels = [style.name(columns[column], 22) for column in named]
    turned = {"rotation": 90} if len(named) > _STEEP else {"rotation": 30, "ha": "right"}
    ax.set_xticks(range(len(named)), labels, **turned)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=ax, shrink=0.6, pad=0.02, ticks=[0, 50, 100])
    bar.set_label("percentile in the list")
    bar.outline.set_visible(False)
    return figure
