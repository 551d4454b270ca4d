"""Models against people: how far they agree on a list of things, and on what they do not."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style

_HUMAN = "human"
_INSET = 1000


@style.styled()
def correlation(table: pl.DataFrame, names: Mapping[str, str]) -> Figure:
    """Rank correlation of each model with the people, best first.

    Args:
      table: rows of `humans_correlation.csv` for one list and prompt.
      names: slug -> nickname.
    """
    table = table.sort("spearman", "model", descending=[True, False], nulls_last=True)
    figure = style.canvas(5.4, 0.3 * table.height + 0.9)
    ax = figure.subplots()
    colours = style.colours(names)
    for at, (model, rho, tau) in enumerate(table.select("model", "spearman", "kendall").rows()):
        if rho is not None and np.isfinite(rho):
            ax.barh(at, rho, color=colours[model], height=0.66)
            ax.plot(tau, at, "D", color="white", markeredgecolor=style.INK, markersize=4.5)
            text = f"{rho:.2f}".replace("-", "−")
            ax.text(max(rho, 0) + 0.01, at, text, va="center", fontsize=8)
    ax.set_yticks(range(table.height), [style.name(names[m], 28) for m in table["model"]])
    ax.invert_yaxis()
    ax.axvline(0, color=style.INK, linewidth=0.8)
    ax.margins(x=0.12)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("Spearman’s ρ with the people (bar), Kendall’s τ (diamond)")
    return figure


@style.styled()
def gaps(table: pl.DataFrame, count: int) -> Figure:
    """What the models rank most unlike the people: both ranks, joined by a line.

    Args:
      table: rows of `humans_gap.csv` for one list and prompt.
      count: items an end.
    """
    table = table.sort("gap", "item", descending=[True, False])
    count = min(count, (table.height + 1) // 2)
    figure = style.canvas(7.2, 0.25 * 2 * count + 1.5)
    ends = (
        (table.head(count), "the models rank these lower than people do"),
        (table.tail(count)[::-1], "and these higher"),
    )
    for ax, (part, said), colour in zip(
        figure.subplots(2, 1, sharex=True), ends, (style.BOTTOM, style.TOP), strict=True
    ):
        _dumbbells(ax, part, colour)
        ax.set_title(said, loc="left", fontsize=9, fontweight="bold", color=colour)
    figure.supxlabel("rank (1 is best): ring people, dot median of the models", fontsize=9)
    return figure


def _dumbbells(ax: Axes, part: pl.DataFrame, colour: str) -> None:
    for at, (human, model) in enumerate(part.select("human_rank", "model_rank").iter_rows()):
        ax.plot([human, model], [at, at], color=colour, linewidth=1.6, alpha=0.6)
        ax.plot(human, at, "o", color="white", markeredgecolor=style.INK, markersize=5.5)
        ax.plot(model, at, "o", color=colour, markersize=5.5)
    ax.set_yticks(range(part.height), [style.token(item, 34) for item in part["item"]])
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=style.GRID, linewidth=0.7)
    ax.set_axisbelow(True)


@style.styled()
def trajectories(table: pl.DataFrame, names: Mapping[str, str], items: Sequence[str]) -> Figure:
    """The rank of some items under the people and under each model; below, the first 1,000.

    Args:
      table: item_id, item, human_rank, then a column a model with its rank (1 is best).
      names: slug -> nickname, in the order of the columns of the figure.
      items: the items that are drawn and named.
    """
    models = [model for model in names if model in table.columns]
    columns = ["human_rank", *models]
    chosen = table.filter(pl.col("item").is_in(list(items))).unique("item").sort("human_rank")
    figure = style.canvas(0.72 * len(columns) + 3.4, 6.6)
    whole, inset = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    looks = style.looks(chosen["item"].to_list())
    for ax in (whole, inset):
        for at, row in enumerate(chosen.to_dicts()):
            colour, marker = looks[row["item"]]
            ranks = [row[column] for column in columns]
            style_ = "-" if at < 7 else "--"
            label = style.token(row["item"], 26)
            ax.plot(ranks, style_, marker=marker, color=colour, markersize=4.5, lw=1.3, label=label)
        ax.grid(color=style.GRID, linewidth=0.7)
        ax.axvline(0.5, color=style.FAINT, linewidth=0.8, linestyle=":")
    whole.set_ylim(table.height * 1.02, -0.02 * table.height)
    inset.set_yscale("log")
    inset.set_ylim(min(_INSET, table.height) * 1.1, 0.9)
    labels = [_HUMAN, *(style.name(names[model], 18) for model in models)]
    inset.set_xticks(range(len(columns)), labels, rotation=45, ha="right", rotation_mode="anchor")
    whole.set_ylabel("rank (1 is best)")
    inset.set_ylabel("the first 1,000, log scale")
    whole.legend(loc="center left", bbox_to_anchor=(1.01, 0.3), frameon=False, fontsize=8)
    return figure
