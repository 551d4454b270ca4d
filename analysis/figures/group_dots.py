"""Groups of words as rows: where they stand in each model and over models, beside other kinds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import polars as pl

from analysis.figures import style

_PANELS = {
    "contrast": "minus the other groups of the axis",
    "difference": "minus neutral words of the same form",
}
_BAND = "#e8ebef"


@style.styled
def group_dots(over: pl.DataFrame, each: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """Two panels, one row per group: its difference from its axis, and from neutral words.

    A small dot is a model, and a diamond the mean over models with its interval; for one model, the
    dot has its own. The grey band holds the means of nine of ten placebo kinds.

    Args:
      over: rows of `identity_models.csv` for one prompt.
      each: rows of `identity.csv` for that prompt.
      names: slug -> nickname of every model of the report.
    """
    models = [model for model in names if model in each["model"]]
    groups = over.select("axis", "group").rows()
    figure = style.canvas(9.2, 0.2 * len(groups) + 1.2)
    panels = figure.subplots(1, 2, sharey=True)
    colours = style.colours(names)
    for ax, (measure, title) in zip(panels, _PANELS.items(), strict=True):
        ax.set_axisbelow(True)
        ax.grid(axis="x", color=style.GRID, linewidth=0.7)
        ax.axvline(0, color=style.INK, linewidth=0.8, linestyle=":")
        for place, row in enumerate(over.iter_rows(named=True)):
            _band(ax, place, row, measure)
            own = each.filter(axis=row["axis"], group=row["group"])
            for cell in own.iter_rows(named=True):
                _model(ax, place, cell, measure, colours[cell["model"]], alone=len(models) == 1)
            if len(models) > 1:
                _mean(ax, place, row, measure)
        ax.set_title(title, loc="left", fontsize=9)
    _rows(panels[0], groups)
    _separate(panels, groups)
    figure.supxlabel("percentile points", fontsize=9)
    shown = {names[model]: (colours[model], "o") for model in models}
    if len(models) > 1:
        shown["mean over models"] = (style.INK, "D")
    style.legend(figure, shown)
    return figure


Cell = Mapping[str, float]


def _known(value: float | None) -> bool:
    return value is not None and value == value


def _band(ax: style.Axes, place: int, row: Cell, measure: str) -> None:
    low, high = row[f"{measure}_placebo_low"], row[f"{measure}_placebo_high"]
    if _known(low):
        ax.barh(place, 100 * (high - low), left=100 * low, height=0.84, color=_BAND)


def _model(ax: style.Axes, place: int, cell: Cell, measure: str, colour: str, alone: bool) -> None:
    value = cell[measure]
    if not _known(value):
        return
    if alone and measure == "contrast" and _known(cell["contrast_low"]):
        ends = (100 * cell["contrast_low"], 100 * cell["contrast_high"])
        ax.hlines(place, *ends, color=colour, linewidth=1.4)
    ax.plot(100 * value, place, "o", color=colour, ms=5 if alone else 3.6)


def _mean(ax: style.Axes, place: int, row: Cell, measure: str) -> None:
    value = row[measure]
    if not _known(value):
        return
    if _known(row[f"{measure}_low"]):
        ends = (100 * row[f"{measure}_low"], 100 * row[f"{measure}_high"])
        ax.hlines(place, *ends, color=style.INK, linewidth=1.2)
    ax.plot(100 * value, place, "D", color=style.INK, ms=5)


def _rows(ax: style.Axes, groups: Sequence[tuple[str, str]]) -> None:
    ax.set_yticks(range(len(groups)), [style.name(group, 24) for _, group in groups])
    ax.set_ylim(len(groups) - 0.4, -0.6)


def _separate(panels: Sequence[style.Axes], groups: Sequence[tuple[str, str]]) -> None:
    """Draws a line between axes, and names each at the right."""
    for ax in panels:
        ax.tick_params(axis="y", length=0)
        for at, (before, after) in enumerate(itertools.pairwise(groups)):
            if before[0] != after[0]:
                ax.axhline(at + 0.5, color=style.FAINT, linewidth=0.8)
    named = panels[-1].secondary_yaxis("right")
    middles = {}
    for axis, places in itertools.groupby(range(len(groups)), key=lambda at: groups[at][0]):
        own = list(places)
        middles[axis] = (own[0] + own[-1]) / 2
    named.set_yticks(list(middles.values()), [style.name(axis, 24) for axis in middles])
    named.tick_params(axis="y", length=0)
    named.spines["right"].set_visible(False)
