"""What moves a token's percentile: shares of the variance, and other numbers with intervals."""

from collections.abc import Mapping

import polars as pl
from matplotlib.figure import Figure

from analysis.figures import style


@style.styled()
def shares(table: pl.DataFrame) -> Figure:
    """Shares of the variance with their intervals.

    Args:
      table: component, share, ci_low, ci_high.
    """
    figure = style.canvas(6.2, 0.4 * table.height + 0.9)
    ax = figure.subplots()
    for at, (share, low, high) in enumerate(table.select("share", "ci_low", "ci_high").rows()):
        ax.barh(at, 100 * share, color=style.TOP, height=0.6)
        if low is not None and high is not None:
            ax.plot([100 * low, 100 * high], [at, at], color=style.INK, linewidth=1.2)
        ax.text(100 * max(share, high or 0, 0) + 1, at, f"{100 * share:.1f}%", va="center")
    ax.set_yticks(range(table.height), [style.name(c, 40) for c in table["component"]])
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.14)
    ax.set_xlabel("share of the variance of percentiles, %")
    return figure


@style.styled()
def effects(table: pl.DataFrame, names: Mapping[str, str], label: str) -> Figure:
    """An area under the curve with its interval, a row a model, a marker a prompt.

    Args:
      table: model, prompt, auc, ci_low, ci_high.
      names: slug -> nickname, in the order of the rows.
      label: what it is, for the axis.
    """
    models = [model for model in names if model in table["model"]]
    looks = style.looks(table["prompt"].unique(maintain_order=True))
    figure = style.canvas(6.2, 0.2 * len(models) * len(looks) + 1.3)
    ax = figure.subplots()
    for at, model in enumerate(models):
        for nth, (prompt, (colour, marker)) in enumerate(looks.items()):
            y = at + 0.8 * ((nth + 0.5) / len(looks) - 0.5)
            part = table.filter(model=model, prompt=prompt)
            for auc, low, high in part.select("auc", "ci_low", "ci_high").iter_rows():
                ax.plot([low, high], [y, y], color=colour, linewidth=1.4)
                ax.plot(auc, y, marker, color=colour, markersize=5)
    ax.axvline(0.5, color=style.INK, linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(models)), [style.name(names[m], 28) for m in models])
    ax.invert_yaxis()
    ax.grid(axis="x", color=style.GRID, linewidth=0.7)
    ax.set_xlabel(style.drawable(label))
    style.legend(figure, looks)
    return figure
