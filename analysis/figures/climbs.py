"""Gain of mean rewards against the KL from the reference policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from analysis.figures import style

_PANEL = (2.5, 2.2)  # Inches.
_COLUMNS = 4
MOST = 12  # Panels; more models would be too small to read.


@style.styled
def gains(optimal: pl.DataFrame, best: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """The optimal policies of each model as lines, best-of-n as points.

    Args:
      optimal: rows of `policies.csv` of one set of replies and prompt.
      best: the same, of best-of-n; n = 1 is the reference policy, from which the lines start, and
        has no point.
      names: slug -> nickname.
    """
    models = [model for model in names if model in optimal["model"]]
    best = best.filter(pl.col("n") > 1)
    figure = style.canvas(6.4, 3.6)
    ax = figure.subplots()
    shades = style.colours(names)
    for model in models:
        line, points = (table.filter(model=model).sort("kl") for table in (optimal, best))
        ax.plot(*_from_zero(line), color=shades[model], linewidth=1.4)
        ax.plot(points["kl"], points["gain"], "o", color=shades[model], markersize=3.2)
    ax.set_xlabel("KL from the language model, nats")
    ax.set_ylabel("gain of the mean reward, sd")
    ax.grid(color=style.GRID, linewidth=0.7)
    style.legend(figure, {names[model]: (shades[model], "o") for model in models}, lines=True)
    return figure


@style.styled
def crossed(table: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """One panel per optimised model: the gains of all models.

    Args:
      table: rows of `overoptimisation.csv` of one set of replies and prompt.
      names: slug -> nickname.
    """
    models = [model for model in names if model in table["optimised"]]
    figure, axes = style.panels(names, models[:MOST], _COLUMNS, _PANEL)
    shades = style.colours(names)
    for optimised, ax in axes.items():
        for read in models:
            own = table.filter(optimised=optimised, read=read)
            width = 2.6 if read == optimised else 1.0
            ax.plot(*_from_zero(own), color=shades[read], linewidth=width)
        _finish(ax)
    style.legend(figure, {names[model]: (shades[model], "o") for model in models}, lines=True)
    return _labelled(figure)


def _from_zero(own: pl.DataFrame) -> tuple[Sequence[float], Sequence[float]]:
    """KL and gain, from the reference policy on."""
    return (
        np.append(0.0, own["kl"].to_numpy()).tolist(),
        np.append(0.0, own["gain"].to_numpy()).tolist(),
    )


def _finish(ax: style.Axes) -> None:
    ax.axhline(0, color=style.INK, linewidth=0.8)


def _labelled(figure: style.Figure) -> style.Figure:
    figure.supxlabel("KL from the language model, nats", fontsize=9)
    figure.supylabel("gain, sd", fontsize=9)
    return figure
