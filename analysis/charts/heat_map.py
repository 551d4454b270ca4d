"""A table of numbers as a heat map."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import polars as pl

from analysis.charts import look

_MANY = 12


def heat_map(matrix: pl.DataFrame, names: Mapping[str, str], label: str) -> look.Chart:
    """A table of numbers, each written in its cell; one that is not defined is a dash.

    Of more than `_MANY` columns, no number is written.

    Args:
      matrix: names, then one column of numbers each, such as `agreement.kendall_matrix` returns;
        square or not.
      names: slug -> nickname; a name that is not in it ("human") is shown as it is.
      label: what the numbers are, for the legend.
    """
    labels = look.unique(names)
    first, columns = matrix.columns[0], matrix.columns[1:]
    cells = matrix.unpivot(index=first, variable_name="column", value_name="value").select(
        row=pl.col(first).replace(labels), column=pl.col("column").replace(labels), value="value"
    )
    across = [labels.get(name, name) for name in columns]
    down = cells["row"].unique(maintain_order=True).to_list()
    signed = (cells["value"].fill_nan(None) < -0.05).any()
    plain = alt.Scale(domain=[0, 1], scheme="yellowgreenblue")
    scale = look.around_zero(1) if signed else plain
    paint = alt.Color("value:Q", scale=scale, title=label, legend=alt.Legend(gradientLength=140))
    many = len(across) > _MANY
    axis = alt.Axis(labelAngle=-90 if many else -40, grid=False, labelExpr=look.WHOLE)
    base = alt.Chart(look.data(cells)).encode(
        x=alt.X("column:N", sort=across, title=None, axis=axis),
        y=alt.Y(
            "row:N",
            sort=down,
            title=None,
            axis=alt.Axis(grid=False, labelLimit=280, labelExpr=look.WHOLE),
        ),
    )
    tooltip = ["row:N", "column:N", alt.Tooltip("value:Q", title=label, format=".3f")]
    squares = base.mark_rect().encode(color=paint, tooltip=tooltip)
    dark = "isValid(datum.value) && abs(datum.value) > 0.6"
    text = alt.Text("text:N")
    number = "replace(format(datum.value, '.2f'), '-', '−')"
    numbers = base.transform_calculate(text=f"isValid(datum.value) ? {number} : '–'")
    ink = alt.condition(dark, alt.value("#ffffff"), alt.value("#1d2530"))
    written = numbers.mark_text(fontSize=look.TYPE).encode(text=text, color=ink)
    layers = [squares] if many else [squares, written]
    width, height = (20, 18) if many else (46, 30)
    step, high = max(width, 120 / len(across)), max(height * len(down), 90)  # kept on a phone
    return alt.LayerChart(layer=layers, width=alt.Step(step), height=high)
