"""Both ends of each model's ranking: tokens with their numbers as bars."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from analysis.figures import style


@style.styled
def top_bottom(
    table: pl.DataFrame, quantiles: pl.DataFrame, names: Mapping[str, str], count: int
) -> style.Figure:
    """The highest and lowest tokens of each model under one prompt, one panel per model.

    Bars start at the model's median reward, so their length is the distance from it.

    Args:
      table: `top_bottom_<prompt>.csv`.
      quantiles: rows of `distributions.quantiles_table` for that prompt.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
      count: tokens shown at each end.
    """
    models = [model for model in names if model in table["model"]]
    figure, axes = style.panels(names, models, 4, _size(count))
    for model, ax in axes.items():
        median = quantiles.filter(model=model)["median"].item()
        _panel(ax, table.filter(model=model), median, count)
    figure.supxlabel("reward (bars start at the model's median)", fontsize=9)
    return figure


@style.styled
def ends(
    table: pl.DataFrame, names: Mapping[str, str], count: int, value: str, label: str
) -> style.Figure:
    """Tokens at both ends of any number, one panel per model; bars start midway between the ends.

    Args:
      table: model, end ("top" or "bottom"), rank, token, and the column `value`, such as
        `framing_sum.csv` or `logprobs_<prompt>.csv`.
      names: slug -> nickname, in the order of the panels; a model that is not in it comes last,
        under its slug.
      count: tokens shown at each end.
      value: the column that is drawn.
      label: what it is, for the axis.
    """
    known = table["model"].unique(maintain_order=True).to_list()
    models = [m for m in names if m in known] + [m for m in known if m not in names]
    figure, axes = style.panels({m: m for m in models} | dict(names), models, 4, _size(count))
    for model, ax in axes.items():
        rows = table.filter(model=model).rename({value: "reward"} if value != "reward" else {})
        drawn = rows.filter(pl.col("rank") <= count)
        low, high = (drawn.filter(end=end)["reward"] for end in ("bottom", "top"))
        middle = (float(max(low)) + float(min(high))) / 2 if len(low) and len(high) else 0.0
        _panel(ax, rows, middle, count)
    figure.supxlabel(style.drawable(f"{label} (bars start midway between the ends)"), fontsize=9)
    return figure


def _size(count: int) -> tuple[float, float]:
    """Width and height in inches of a panel with `count` tokens at each end."""
    return 2.75, 0.17 * 2 * count + 0.85


def _panel(ax: style.Axes, table: pl.DataFrame, median: float, count: int) -> None:
    shown = table.filter(pl.col("rank") <= count)
    reach = max(abs(reward - median) for reward in shown["reward"]) or 1.0
    # A bar leaves one side of the median free. Its token stands there, so labels need no margin.
    for end, side, colour in (("top", 1, style.TOP), ("bottom", -1, style.BOTTOM)):
        rows = shown.filter(end=end).sort("rank")
        ys = [rank - 1 if side > 0 else 2 * count + 0.8 - rank for rank in rows["rank"]]
        ax.barh(
            ys,
            rows["reward"].cast(pl.Float64) - median,
            left=median,
            color=colour,
            height=0.68,
            alpha=0.9,
        )
        for y, token in zip(ys, rows["token"], strict=True):
            ax.text(
                median - side * 0.03 * reach,
                y,
                style.token(token),
                ha="right" if side > 0 else "left",
                va="center",
                fontsize=8,
            ).set_in_layout(False)
    ax.axvline(median, color=style.INK, linewidth=0.8)
    ax.set_xlim(median - 1.04 * reach, median + 1.04 * reach)
    ax.set_ylim(2 * count + 0.4, -0.8)
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)
    ax.locator_params(axis="x", nbins=4)
