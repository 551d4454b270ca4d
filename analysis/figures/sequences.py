"""The searches for longer replies: how the reward climbed, and where it ended."""

from collections.abc import Mapping

import polars as pl
from matplotlib import ticker
from matplotlib.figure import Figure

from analysis.figures import style

_STROKES = {"max": "-", "min": "--"}


@style.styled()
def traces(table: pl.DataFrame, names: Mapping[str, str]) -> Figure:
    """The best reward so far against the step of the search, a panel a model.

    Full lines seek the highest reward, dashed ones the lowest; a line a seed.

    Args:
      table: model, prompt, direction, method, seed, step, reward, best.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    models = [model for model in names if model in table["model"]]
    figure, axes = style.panels(names, models, 4, (2.6, 2.4))
    looks = style.looks(table["method"].unique().sort())
    keys = ["prompt", "direction", "method", "seed"]
    for model, ax in axes.items():
        parts = table.filter(model=model).partition_by(keys, as_dict=True)
        for (_, direction, method, _), part in sorted(parts.items(), key=lambda pair: str(pair[0])):
            part, colour = part.sort("step"), looks[str(method)][0]
            ax.plot(part["step"], part["best"], _STROKES[str(direction)], color=colour, lw=1.1)
    figure.supxlabel("step of the search", fontsize=9)
    figure.supylabel("best reward so far", fontsize=9)
    style.legend(figure, {m: (c, "") for m, (c, _) in looks.items()}, lines=True)
    return figure


@style.styled()
def budgets(table: pl.DataFrame, names: Mapping[str, str]) -> Figure:
    """The best reward so far against the floating-point operations spent, a panel a model.

    A line is the median of a method's searches, the band around it their range.

    Args:
      table: model, direction, method, flops, median, low, high: `spending`.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    models = [model for model in names if model in table["model"]]
    figure, axes = style.panels(names, models, 2, (5.6, 3.6))
    looks = style.looks(table["method"].unique().sort())
    for model, ax in axes.items():
        parts = table.filter(model=model).partition_by("direction", "method", as_dict=True)
        for (direction, method), part in sorted(parts.items(), key=lambda pair: str(pair[0])):
            part, colour = part.sort("flops"), looks[str(method)][0]
            flops = part["flops"] / 1e12
            ax.fill_between(flops, part["low"], part["high"], color=colour, alpha=0.15, lw=0)
            ax.plot(flops, part["median"], _STROKES[str(direction)], color=colour, lw=1.6)
        ax.set_xscale("log")
    figure.supxlabel("TFLOP spent by the search", fontsize=9)
    figure.supylabel("best reward so far", fontsize=9)
    style.legend(figure, {m: (c, "") for m, (c, _) in looks.items()}, lines=True)
    return figure


@style.styled()
def costs(table: pl.DataFrame, names: Mapping[str, str]) -> Figure:
    """The reward that each search ended with against what it cost, a panel a model.

    Args:
      table: `sequences.csv`.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    table = table.filter(pl.col("flops") > 0)
    models = [model for model in names if model in table["model"]]
    figure, axes = style.panels(names, models, 4, (2.6, 2.4))
    looks = style.looks(table["method"].unique().sort())
    for model, ax in axes.items():
        for direction, filled in (("max", True), ("min", False)):
            for method, (colour, marker) in looks.items():
                part = table.filter(model=model, method=method, direction=direction)
                face = colour if filled else "white"
                ax.plot(
                    part["flops"], part["reward"], marker, color=colour, markerfacecolor=face, ms=5
                )
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(ticker.LogLocator(numticks=4))
        ax.xaxis.set_minor_formatter(ticker.NullFormatter())
    figure.supxlabel("floating-point operations of the search", fontsize=9)
    figure.supylabel("final reward", fontsize=9)
    style.legend(figure, looks)
    return figure
