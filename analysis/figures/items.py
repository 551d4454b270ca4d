"""Where the items of a list stand under each prompt or each model."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from analysis.figures import style

_COLUMN, _ROW, _LABELS = 0.3, 0.2, 2.6  # Inches; what names of items and the colour bar take.
_COLOURS = LinearSegmentedColormap.from_list("standing", [style.BOTTOM, "#f6f4ee", style.TOP])


@style.styled()
def standings(
    points: pl.DataFrame, groups: Sequence[pl.DataFrame], names: Mapping[str, str]
) -> Figure:
    """Percentiles of a list's items as colours: a column a model, or a prompt of several.

    Under several prompts a column is the mean over the models.

    Args:
      points: rows of `items.items_points` of one list.
      groups: the items shown, a row each, as `items.telling` returns; a gap is between groups.
      names: slug -> nickname.
    """
    order = pl.concat(groups)
    prompts = points["prompt"].unique(maintain_order=True).to_list()
    by = "prompt" if len(prompts) > 1 else "model"
    columns = prompts if len(prompts) > 1 else [m for m in names if m in points["model"]]
    shown = points.join(order.select("item_id"), on="item_id", how="semi")
    cells = shown.group_by("item_id", by).agg(pl.col("percentile").mean())
    wide = order.select("item_id").join(
        cells.pivot(by, index="item_id", values="percentile"),
        on="item_id",
        how="left",
        validate="1:1",
        maintain_order="left",
    )
    values = 100 * wide.select(columns).to_numpy().astype(np.float64)
    size = (_COLUMN * len(columns) + _LABELS, _ROW * order.height + 1.2)
    figure = style.canvas(max(size[0], 4.2), size[1])
    ax = figure.subplots()
    image = ax.imshow(values, cmap=_COLOURS, vmin=0, vmax=100, aspect="auto")
    for edge in itertools.accumulate(group.height for group in groups[:-1]):
        ax.axhline(edge - 0.5, color="white", linewidth=5)
    ax.set_yticks(range(order.height), [style.token(item, 30) for item in order["item"]])
    labels = [style.name(names.get(column, column), 22) for column in columns]
    ax.set_xticks(range(len(columns)), labels, rotation=90 if len(columns) > 12 else 30, ha="right")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=ax, shrink=0.6, pad=0.02, ticks=[0, 50, 100])
    bar.set_label("percentile in the list")
    bar.outline.set_visible(False)
    return figure
