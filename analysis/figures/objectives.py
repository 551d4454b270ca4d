"""What a reward is made of: how its objectives are weighed, and which of them it follows."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style

_PANELS = (
    ("spearman", "Spearman’s ρ with the reward", style.TOP),
    ("weight", "weight in the gate", style.FAINT),
    ("share", "share of the reward’s variance", style.BOTTOM),
)


@style.styled()
def makeup(table: pl.DataFrame, names: Mapping[str, str]) -> Figure:
    """Objectives of each model: correlation with the reward, weight, and share of its variance.

    A row of panels a model. What is not known (the weights of a model without a gate) stays empty.

    Args:
      table: rows of `objectives.csv` for one prompt.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    parts = {m: table.filter(model=m) for m in names if m in table["model"]}
    sizes = [0.19 * part.height + 0.75 for part in parts.values()]
    figure = style.canvas(9.0, sum(sizes) + 0.2)
    axes = figure.subplots(len(parts), len(_PANELS), squeeze=False, height_ratios=sizes)
    colours = style.colours(names)
    for row, (model, part) in zip(axes, parts.items(), strict=True):
        for ax, (key, label, colour) in zip(row, _PANELS, strict=True):
            _bars(ax, part[key], colour)
            ax.set_xlabel(label)
        row[0].set_yticks(range(part.height), [style.name(o, 30) for o in part["objective"]])
        style.title(row[0], names[model], colours[model])
    return figure


def _bars(ax: Axes, values: pl.Series, colour: str) -> None:
    numbers = values.cast(pl.Float64).fill_null(np.nan).to_numpy()
    known = np.isfinite(numbers)
    ax.set_yticks([])
    ax.set_ylim(len(numbers) - 0.4, -0.6)
    if not known.any():
        ax.text(0.5, 0.5, "not known", transform=ax.transAxes, ha="center", color=style.FAINT)
        ax.set_xticks([])
        return
    places = np.arange(len(numbers))[known]
    ax.barh(places, numbers[known], color=colour, height=0.66)
    ax.axvline(0, color=style.INK, linewidth=0.8)
    ax.grid(axis="x", color=style.GRID, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.locator_params(axis="x", nbins=5)
