"""Many cells as colours: places of the items of a list, and agreement between prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from analysis.charts import look
from engine import display

_TITLES = (["all"], ["highest", "lowest"], ["highest", "differ most", "lowest"])  # Of groups.
_BESIDE = 7  # Columns up to which the groups stand side by side.
_MANY = 12  # Columns above which they are narrow, under upright names.
_QUESTIONS = 8  # Up to which a panel names them.
_WRITTEN = 4  # Up to which it writes their numbers.
_PANEL = 126  # Pixels of a panel.


def standings(
    cells: pl.DataFrame,
    by: str,
    value: str,
    groups: Sequence[pl.DataFrame],
    columns: Mapping[str, str],
) -> look.Chart:
    """Percentiles of the items of one list.

    Args:
      cells: item_id, and the columns `by` and `value`, one row per cell.
      by: the column of `cells` that names a column of the chart ("model" or "question").
      value: the column of percentiles, from 0 to 1.
      groups: the items shown, one row each, as `items.shown_items` returns; groups are
        set apart.
      columns: entry of `by` -> its label, in the order of the columns; entries without a cell are
        left out.
    """
    titles = _TITLES[len(groups) - 1]
    order = pl.concat(
        part.select("item_id", "item", group=pl.lit(title))
        for title, part in zip(titles, groups, strict=True)
    )
    labels = look.unique(columns)
    across = [labels[entry] for entry in columns if entry in cells[by]]
    shown = order.join(cells.select("item_id", by, value), on="item_id", maintain_order="left")
    shown = shown.filter(pl.col(by).is_in(list(columns))).select(
        "group",
        item=pl.col("item").map_elements(lambda item: display.plain(item, len(item)), pl.String),
        column=pl.col(by).replace(labels),
        percentile=100 * pl.col(value),
    )
    rows = shown["item"].unique(maintain_order=True).to_list()
    few, many = len(across) <= _BESIDE, len(across) > _MANY
    scale = alt.Scale(domain=[0, 50, 100], range=[look.BOTTOM, "#f6f4ee", look.TOP])
    step = alt.Step(15 if many else 30)
    chart = alt.Chart(look.data(shown), width=step, height=alt.Step(15)).mark_rect()
    chart = chart.encode(
        x=_across("column:N", across, -90 if many else -40),
        y=alt.Y("item:N", sort=rows, title=None, axis=alt.Axis(grid=False, labelLimit=150)),
        color=_paint("percentile", scale, "percentile in the list"),
        tooltip=["item:N", "column:N", alt.Tooltip("percentile:Q", format=".1f")],
    )
    return look.faceted(chart, titles, 3 if few else 1, "group", apart="y")


def between_prompts(table: pl.DataFrame, names: Mapping[str, str]) -> look.Chart:
    """Mean tau between the prompts of every two questions, one panel per model.

    Args:
      table: rows of `items_between_prompts.csv` of one list.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    both = pl.concat([table["question_a"], table["question_b"]])
    questions = both.unique(maintain_order=True).to_list()
    panels = [name for model, name in look.unique(names).items() if model in table["model"]]
    few = len(questions) <= _QUESTIONS
    named = look.named(table, names).select("name", "question_a", "question_b", "kendall")
    base = alt.Chart().encode(
        x=_across("question_a:N", questions, -40, few),
        y=alt.Y("question_b:N", sort=questions, title=None, axis=alt.Axis(grid=False, labels=few)),
    )
    squares = base.mark_rect().encode(
        color=_paint("kendall", look.around_zero(1.0), "Kendall’s τ"),
        tooltip=[
            *("name:N", "question_a:N", "question_b:N"),
            alt.Tooltip("kendall:Q", title="mean τ", format=".3f"),
        ],
    )
    ink = alt.condition("abs(datum.kendall) > 0.6", alt.value("#ffffff"), alt.value("#1d2530"))
    numbers = base.mark_text(fontSize=10.5).encode(
        text=alt.Text("kendall:Q", format=".2f"), color=ink
    )
    layers = [squares, numbers] if len(questions) <= _WRITTEN else [squares]
    chart = alt.LayerChart(layer=layers, data=look.data(named), width=_PANEL, height=_PANEL)
    return look.faceted(chart, panels, 5)


def _paint(field: str, scale: alt.Scale, label: str) -> alt.Color:
    return alt.Color(f"{field}:Q", scale=scale, title=label, legend=alt.Legend(gradientLength=140))


def _across(field: str, order: Sequence[str], angle: int, labels: bool = True) -> alt.X:
    axis = alt.Axis(labelAngle=angle, grid=False, labels=labels)
    return alt.X(field, sort=list(order), title=None, axis=axis)
