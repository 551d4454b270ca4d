"""What each model ranks first and last: token lists with their rewards as bars."""

from collections.abc import Mapping

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style


@style.styled()
def top_bottom(
    table: pl.DataFrame, quantiles: pl.DataFrame, names: Mapping[str, str], count: int
) -> Figure:
    """The highest and lowest tokens of each model under one prompt, a panel a model.

    Bars start at the model's median reward: how far a token stands from the ordinary one.

    Args:
      table: `top_bottom_<prompt>.csv` (`tokens.top_bottom`).
      quantiles: rows of `distributions.quantiles_table` for that prompt.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
      count: tokens shown an end.
    """
    models = [model for model in names if model in table["model"]]
    rows, columns = style.grid_shape(len(models), 4)
    height = rows * (0.17 * 2 * count + 0.85)
    figure = style.canvas(max(2.75 * columns, 3.6), height)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    colours = style.colours(names)
    for ax, model in zip(axes, models, strict=False):
        median = quantiles.filter(model=model)["median"].item()
        _panel(ax, table.filter(model=model), median, count)
        style.title(ax, names[model], colours[model])
    for ax in axes[len(models) :]:
        ax.set_visible(False)
    figure.supxlabel("reward (bars start at the model's median)", fontsize=9)
    return figure


def _panel(ax: Axes, table: pl.DataFrame, median: float, count: int) -> None:
    shown = table.filter(pl.col("rank") <= count)
    reach = max(abs(reward - median) for reward in shown["reward"]) or 1.0
    # A bar leaves one side of the median free: its token stands there, so no label needs a margin.
    for end, side, colour in (("top", 1, style.TOP), ("bottom", -1, style.BOTTOM)):
        rows = shown.filter(end=end).sort("rank")
        for rank, token, reward in rows.select("rank", "token", "reward").iter_rows():
            y = rank - 1 if side > 0 else 2 * count + 0.8 - rank
            ax.barh(y, reward - median, left=median, color=colour, height=0.68, alpha=0.9)
            ax.text(
                median - side * 0.03 * reach,
                y,
                style.token(token),
                ha="right" if side > 0 else "left",
                va="center",
                fontsize=8,
            )
    ax.axvline(median, color=style.INK, linewidth=0.8)
    ax.set_xlim(median - 1.04 * reach, median + 1.04 * reach)
    ax.set_ylim(2 * count + 0.4, -0.8)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.locator_params(axis="x", nbins=4)
