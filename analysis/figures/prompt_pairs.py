"""Orders of a list under different prompts: agreement inside each model, and item by item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from analysis.figures import style
from analysis.statistics import Array

_LABELS = 8  # Questions up to which a panel names them.
_PANEL = 1.7  # Inches of a panel of colours.


@style.styled
def kinds_of_pairs(
    table: pl.DataFrame, names: Mapping[str, str], kinds: Sequence[str]
) -> style.Figure:
    """Tau between two prompts, by what distinguishes them: one row per model, with intervals.

    Args:
      table: rows of `items_prompt_kinds.csv` of one list.
      names: slug -> nickname, in the order of the rows; other entries of the column `model` follow.
      kinds: the kinds that are drawn.
    """
    there = table["model"].unique(maintain_order=True).to_list()
    rows = [m for m in names if m in there] + [m for m in there if m not in names]
    figure = style.canvas(6.8, 0.3 * len(rows) + 1.2)
    ax = figure.subplots()
    drawn = [kind for kind in kinds if kind in table["kind"]]
    looks = style.looks(drawn)
    for kind, (colour, marker) in looks.items():
        for row in table.filter(kind=kind).iter_rows(named=True):
            at, low, high = rows.index(row["model"]), row["ci_low"], row["ci_high"]
            if low is not None and high is not None:
                ax.plot([low, high], [at, at], color=colour, linewidth=1.3)
            ax.plot(row["kendall"], at, marker, color=colour, markersize=5)
    ax.axvline(0, color=style.INK, linewidth=0.8)
    ax.set_yticks(range(len(rows)), [style.name(names.get(m, m), 28) for m in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=style.GRID, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.set_xlabel("Kendall’s τ between two prompts of one model, 95% interval over the items")
    style.legend(figure, looks)
    return figure


@style.styled
def between_prompts(table: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """Mean tau between the prompts of every two questions, one panel of colours per model.

    Args:
      table: rows of `items_between_prompts.csv` of one list.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    both = pl.concat([table["question_a"], table["question_b"]])
    questions = both.unique(maintain_order=True).to_list()
    models = [model for model in names if model in table["model"]]
    figure, axes = style.panels(names, models, 5, (_PANEL, _PANEL + 0.25))
    colours = style.colormap("RdBu")
    across = style.grid_shape(len(models), 5)[1]
    labels = [style.name(c, 16) for c in questions] if len(questions) <= _LABELS else []
    for at, (model, ax) in enumerate(axes.items()):
        values = _square(table.filter(model=model), questions)
        ax.grid(visible=False)
        image = ax.imshow(np.ma.masked_invalid(values), cmap=colours, vmin=-1.0, vmax=1.0)
        places = range(len(labels))
        last = at + across >= len(models)
        ax.set_xticks(places, labels if last else [""] * len(labels), rotation=90, fontsize=7)
        ax.set_yticks(places, [""] * len(labels) if at % across else labels, fontsize=7)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=list(axes.values()), shrink=0.7, pad=0.02)
    bar.set_label("Kendall’s τ")
    bar.outline.set_visible(False)
    return figure


def _square(table: pl.DataFrame, questions: Sequence[str]) -> Array:
    values = np.full((len(questions), len(questions)), np.nan)
    for a, b, kendall in table.select("question_a", "question_b", "kendall").iter_rows():
        i, j = questions.index(a), questions.index(b)
        values[i, j] = values[j, i] = kendall
    return values


@style.styled
def both_framings(table: pl.DataFrame, count: int) -> style.Figure:
    """Where each item stands under positive and under negative prompts; the corners are named.

    Args:
      table: rows of `items_framing.csv` of one list.
      count: items that are named at each end of `kept` and of `turned`.
    """
    figure = style.canvas(6.4, 5.6)
    ax = figure.subplots()
    x, y = (100 * table[name].to_numpy() for name in ("positive", "negative"))
    style.cloud(ax, x, y, style.TOP)
    for item, at, side in _labels(table, count):
        ax.annotate(
            item,
            at,
            xytext=(4 * side, 2),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            fontsize=7,
        )
    for line in (ax.axvline, ax.axhline):
        line(50, color=style.FAINT, linewidth=0.8, linestyle=":")
    ax.set_xlim(0, 100)
    ax.set_ylim(0, 100)
    ax.set_xlabel("mean percentile under the positive prompts")
    ax.set_ylabel("mean percentile under the negative prompts")
    return figure


def _labels(table: pl.DataFrame, count: int) -> list[tuple[str, tuple[float, float], int]]:
    """Text, point (in percent) and side of the labels of the corners; none covers another."""
    ordered = [table.sort(by, "item_id") for by in ("kept", "turned")]
    ends = [end for rows in ordered for end in (rows.reverse().head(count), rows.head(count))]
    shown: list[tuple[str, tuple[float, float], int]] = []
    taken: list[tuple[float, float, float]] = []  # Left, right and height of each label.
    for item, good, bad in pl.concat(ends).select("item", "positive", "negative").iter_rows():
        text, x, y = style.token(item, 20), 100 * good, 100 * bad
        side = 1 if x <= 50 else -1
        left, right = sorted((x, x + side * (1.2 * len(text) + 1)))
        if all(right < a or b < left or abs(y - at) > 2.4 for a, b, at in taken):
            taken.append((left, right, y))
            shown.append((text, (x, y), side))
    return shown
