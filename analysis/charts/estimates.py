"""Estimates with their intervals, as dots on lines: the chart of most tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from analysis.charts import look


def estimates(
    table: pl.DataFrame,
    names: Mapping[str, str],
    label: str,
    *,
    value: str,
    row: str = "name",
    panel: str = "",
    colour: str = "name",
    kinds: Sequence[str] = (),
    zero: float | None = 0.0,
    scale: float = 1.0,
    form: str = "",
    shared: bool = True,
    columns: int = 4,
    width: int = 0,
    mean: str = "",
    beside: bool = True,
) -> look.Chart:
    """A dot for each row of a table, with a line from ci_low to ci_high where both are known.

    Args:
      table: rows in the order in which they are drawn; with the column `model`, or without.
      names: slug -> nickname; the column `name` of the chart is that of `model`.
      label: what the number is, for the axis.
      value: column of the estimate.
      row: column whose values are the rows of the chart.
      panel: column whose values are panels side by side; "" draws one.
      colour: column that colours the dots: "name" in the models' colours, another in `kinds`.
      kinds: values of `colour`, where it is not "name".
      zero: value without an effect, drawn as a line; None draws none.
      scale: what numbers are multiplied by, such as 100 for percentile points.
      form: how the table prints the numbers, as `columns.Column` has it; "share" where `scale` is
        100, and "fixed" otherwise.
      shared: whether panels have one scale.
      columns: panels side by side, at most.
      width: of a panel in pixels; 0 chooses.
      mean: column of whose values the mean is a stroke: in its row for `row`, else in its colour
        through all rows.
      beside: whether the dots of a row stand below one another; else they share a line.
    """
    form = form or ("share" if scale == 100 else "fixed")
    keys = {"value": value, "low": "ci_low", "high": "ci_high"}
    shown = _drawn(table, names, keys, scale, form)
    if "name" in shown.columns and shown["name"].n_unique() > look.PANELS:
        row, panel, colour, shown = _models_down(shown, row, panel, colour, beside)
    panels = shown[panel].unique(maintain_order=True).to_list() if panel else []
    if panel:
        shown = shown.filter(pl.col(panel).is_in(panels[: look.PANELS]))
    rows = shown[row].unique(maintain_order=True).to_list()
    y = alt.Y(f"{row}:N", sort=rows, title=None, axis=alt.Axis(grid=True, labelExpr=look.WHOLE))
    wide = width or (140 if panels else 300)
    axis = alt.Axis(tickCount=5)
    x = alt.X("value:Q", title=look.title(label, wide), scale=alt.Scale(zero=False), axis=axis)
    told = colour in (row, panel)  # by the axis or the panels
    legend = None if told else alt.Legend()
    paint: alt.Color | alt.ColorValue = look.by_kind(colour, kinds, legend=legend)
    shape: Any = look.shaped(colour, kinds, legend=legend)  # Any: a channel or none
    if colour == "name":
        present = [model for model in names if model in table["model"]]
        paint, shape = look.by_model(names, present, legend=legend), alt.Undefined
    apart = beside and not told and isinstance(paint, alt.Color)
    offset = alt.YOffset(f"{colour}:N", sort=paint["scale"]["domain"]) if apart else alt.Undefined
    base = alt.Chart().encode(y=y, color=paint, tooltip=_tooltips(shown, label), yOffset=offset)
    lines = base.mark_rule(strokeWidth=1.6).encode(x=alt.X("low:Q"), x2="high:Q")
    solid = 1 if isinstance(paint, alt.Color) else 0.6
    dots = base.mark_point(filled=True, size=46, opacity=solid).encode(x=x, shape=shape)
    layers: list[alt.Chart] = [lines, dots] if shown["low"].is_finite().any() else [dots]
    if zero is not None:
        guide = alt.Chart().mark_rule(style="faint").encode(x=alt.XDatum(zero * scale))
        layers.insert(0, guide)
    if mean:
        layers.append(_mean(label).encode(y=y) if mean == row else _mean(label, paint))
    offsets = shown[colour].n_unique() if apart else 1
    height = max(len(rows), 1) * max(look.STEP, 9 * offsets)
    layered = alt.LayerChart(layer=layers, data=look.data(shown), height=height, width=wide)
    if not panels:
        return layered
    return look.faceted(layered, panels, columns, panel, "" if shared else "x")


def _models_down(
    shown: pl.DataFrame, row: str, panel: str, colour: str, beside: bool
) -> tuple[str, str, str, pl.DataFrame]:
    """Row, panel and colour of a chart of many models, and its rows: models from above to below.

    What the rows or the colours were are then the panels, unless they are many or have others; the
    first panel sorts the models.
    """
    other = row if row != "name" else colour
    if panel == "name" or (
        not panel and beside and other != "name" and shown[other].n_unique() <= look.PANELS
    ):
        first = shown.filter(pl.col(other) == shown[other][0]).sort("value", descending=True)
        order = pl.Enum([*dict.fromkeys([*first["name"], *shown["name"]])])
        shown = shown.sort(pl.col("name").cast(order), maintain_order=True)
        return "name", other, "name", shown
    return row, panel, colour, shown


def _mean(label: str, paint: alt.Color | alt.ColorValue | None = None) -> look.Chart:
    """Strokes at means: of each row in ink, or of each colour through all rows."""
    value = alt.Tooltip("mean(value):Q", title=f"mean of {label}", format=".3~g")
    chart = alt.Chart().encode(x=alt.X("mean(value):Q"), tooltip=[value])
    if paint is None:
        return chart.mark_tick(style="inked", thickness=2.4, size=13)
    return chart.mark_rule(strokeWidth=3, opacity=0.45).encode(color=paint)


def _drawn(
    table: pl.DataFrame,
    names: Mapping[str, str],
    keys: Mapping[str, str],
    scale: float,
    form: str,
) -> pl.DataFrame:
    """`table` with the columns name, value, low and high, of rows whose value is known."""
    numbers = {
        new: pl.col(key).cast(pl.Float64) * scale if key in table.columns else pl.lit(None)
        for new, key in keys.items()
    }
    shown = look.with_names(table, names) if "model" in table.columns else table
    texts = [pl.col(key) for key, kind in shown.schema.items() if kind == pl.String]
    told = look.texts(table, form, **keys)
    return shown.select(*texts, **numbers, **told).filter(pl.col("value").is_finite())


def _tooltips(shown: pl.DataFrame, label: str) -> list[alt.Tooltip]:
    texts = [key for key, kind in shown.schema.items() if kind == pl.String and key != "model"]
    numbers = {"value": label, "low": "95% from", "high": "to"}
    told = look.told(**{key: title for key, title in numbers.items() if f"{key}_text" in texts})
    return [*(alt.Tooltip(f"{key}:N") for key in texts if not key.endswith("_text")), *told]
