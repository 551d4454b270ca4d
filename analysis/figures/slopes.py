"""Slopes of the reward: along the sentiment of a word and along its frequency."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style

_Z = 1.96
_REACH = {"positive": 5.0, "negative": -5.0}  # AFINN runs from -5 to 5.


@style.styled()
def fans(table: pl.DataFrame, names: Mapping[str, str], prompts: Sequence[str]) -> Figure:
    """Reward against the valence of a word, a line a prompt and side of zero, a panel a model.

    Lines start at zero: they show slopes, not levels. Bands are 95% intervals of the slope.

    Args:
      table: `sentiment_slopes.csv`.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
      prompts: prompt ids, in the order of the legend.
    """
    models = [model for model in names if model in table["model"]]
    figure, axes = style.panels(names, models, 5, (2.1, 2.3))
    looks = style.looks(prompts)
    for model, ax in axes.items():
        for row in table.filter(pl.col("slope").is_finite(), model=model).to_dicts():
            if row["prompt"] in looks:
                _fan(ax, row, *looks[row["prompt"]])
        ax.axhline(0, color=style.INK, linewidth=0.7)
        ax.axvline(0, color=style.INK, linewidth=0.7)
        ax.set_xticks([-5, 0, 5], ["−5", "0", "+5"])
    figure.supxlabel("valence of the word (AFINN)", fontsize=9)
    figure.supylabel("change of reward", fontsize=9)
    style.legend(figure, {p: looks[p] for p in prompts if p in table["prompt"]}, lines=True)
    return figure


def _fan(ax: Axes, row: dict, colour: str, marker: str) -> None:
    x = np.array([0.0, _REACH[row["valence"]]])
    error = _Z * (row["stderr"] if np.isfinite(row["stderr"] or np.nan) else 0.0)
    ax.fill_between(
        x, (row["slope"] - error) * x, (row["slope"] + error) * x, color=colour, alpha=0.18, lw=0
    )
    ax.plot(x, row["slope"] * x, color=colour, marker=marker, markevery=[1], markersize=4.5)


@style.styled()
def dots(
    table: pl.DataFrame, names: Mapping[str, str], prompts: Sequence[str], label: str
) -> Figure:
    """Slopes with their 95% intervals, a row a prompt, a panel a model with its own scale.

    Args:
      table: model, prompt, slope, stderr, such as `frequency_slopes.csv`.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
      prompts: prompt ids, from the top.
      label: what the slope is, for the axis.
    """
    models = [model for model in names if model in table["model"]]
    shown = [prompt for prompt in prompts if prompt in table["prompt"]]
    figure, axes = style.panels(names, models, 5, (2.1, 0.26 * len(shown) + 0.95))
    looks = style.looks(prompts)
    for at, (model, ax) in enumerate(axes.items()):
        for place, prompt in enumerate(shown):
            part = table.filter(pl.col("slope").is_finite(), model=model, prompt=prompt)
            for slope, stderr in part.select("slope", "stderr").iter_rows():
                colour, marker = looks[prompt]
                ax.errorbar(
                    slope, place, xerr=_Z * (stderr or 0), fmt=marker, color=colour, markersize=5
                )
        ax.axvline(0, color=style.INK, linewidth=0.8)
        first = at % style.grid_shape(len(models), 5)[1] == 0
        labels = [style.name(p, 16) for p in shown] if first else [""] * len(shown)
        ax.set_yticks(range(len(shown)), labels)
        ax.set_ylim(len(shown) - 0.5, -0.5)
        ax.locator_params(axis="x", nbins=4)
    figure.supxlabel(style.drawable(label), fontsize=9)
    return figure
