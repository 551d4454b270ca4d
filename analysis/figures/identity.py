"""Where each model puts the words for groups of people."""

import itertools
from collections.abc import Mapping

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style


@style.styled()
def groups(table: pl.DataFrame, names: Mapping[str, str]) -> Figure:
    """Mean percentile of each group's words with its interval, a panel a model.

    A filled dot: q below 0.05 against matched neutral words. Rows go by axis, then by the mean
    over the models.

    Args:
      table: rows of `identity.with_q` for one prompt; its percentiles run from 0 to 1.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    models = [model for model in names if model in table["model"]]
    order = table.group_by("axis", "group").agg(pl.col("mean_percentile").mean())
    order = order.sort("axis", "mean_percentile", "group", descending=[False, True, False])
    places = {key: at for at, key in enumerate(order.select("axis", "group").iter_rows())}
    figure, axes = style.panels(names, models, 5, (2.15, 0.21 * len(places) + 0.9))
    across = style.grid_shape(len(models), 5)[1]
    colours = style.colours(names)
    for at, (model, ax) in enumerate(axes.items()):
        _dots(ax, table.filter(model=model), places, colours[model])
        _rows(ax, list(places), named=at % across == 0)
    figure.supxlabel("mean percentile of the group’s words, 95% interval", fontsize=9)
    return figure


def _dots(ax: Axes, part: pl.DataFrame, places: Mapping, colour: str) -> None:
    place = np.array([places[key] for key in part.select("axis", "group").iter_rows()])
    keys = ("ci_low", "mean_percentile", "ci_high")
    low, mean, high = (100 * part[key].to_numpy() for key in keys)
    ax.hlines(place, low, high, color=colour, linewidth=1.4)
    sure = (part["q"].fill_null(1.0).fill_nan(1.0) < 0.05).to_numpy()
    for these, face in ((sure, colour), (~sure, "white")):
        ax.plot(mean[these], place[these], "o", color=colour, markerfacecolor=face, ms=5)


def _rows(ax: Axes, places: list[tuple[str, str]], named: bool) -> None:
    labels = [style.name(group, 24) for _, group in places] if named else []
    ax.set_yticks(range(len(labels)), labels)
    for at, (before, after) in enumerate(itertools.pairwise(places)):
        if before[0] != after[0]:
            ax.axhline(at + 0.5, color=style.FAINT, linewidth=0.8)
    ax.axvline(50, color=style.INK, linewidth=0.8, linestyle=":")
    ax.set_xlim(-3, 103)  # Room for the dots at the ends.
    ax.set_xticks([0, 25, 50, 75, 100])
    ax.set_ylim(len(places) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
