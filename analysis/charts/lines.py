"""Lines over a number (layers, nats, steps), with bands where there are intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from analysis.charts import look

_COLUMNS = 5


def lines(
    table: pl.DataFrame,
    names: Mapping[str, str],
    titles: tuple[str, str],
    *,
    x: str,
    y: str,
    band: Sequence[str] = (),
    points: pl.DataFrame | None = None,
    line: str = "name",
    panel: str = "name",
    dashed: str = "",
    marks: Sequence[float] = (),
    log: bool = False,
    form: str = "number",
    apart: str = "",
) -> look.Chart:
    """A line for each value of a column, in a panel for each model or in one.

    Args:
      table: rows in the order of each line, with the column `model`.
      names: slug -> nickname, in the order of the panels; the column `name` of the chart is that
        of `model`.
      titles: of both axes.
      x: column of the horizontal axis.
      y: column of the vertical axis; rows where it is not known are left out.
      band: columns of the lower and the upper end of an interval, drawn as a band.
      points: rows like those of `table` that are drawn as points.
      line: column that colours the lines: "name" in the models' colours.
      panel: column whose values are the panels, in the order of their rows; "" draws one.
      dashed: column whose second value, of two, has dashed lines; its values are in the legend.
      marks: heights with a line of reference.
      log: whether the horizontal axis is logarithmic.
      form: how the table prints the numbers of `y`, as `columns.Column` has it.
      apart: as of `look.faceted`.
    """
    keep = [key for key in (panel, line, dashed) if key]
    numbers = dict(zip(("x", "y", "low", "high"), (x, y, *band), strict=False))
    frames = [_drawn(table, names, keep, numbers, form)]
    if points is not None:
        frames.append(_drawn(points, names, keep, numbers, form).with_columns(dot=True))
    shown = pl.concat(frames, how="diagonal")
    panels = _names(shown, names) if panel == "name" else _values(shown, panel)
    wide, high = (164, 150) if panel else (380, 240)
    if panel:
        shown = shown.filter(pl.col(panel).is_in(panels[: look.PANELS]))
    count = {"tickCount": 4, "format": "~s", "grid": False} if log else {"tickCount": 5}
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    told = _tooltips(keep, titles, bool(band))
    base = alt.Chart().encode(
        x=alt.X("x:Q", title=look.title(titles[0], wide), scale=scale, axis=alt.Axis(**count)),
        y=look.up("y", titles[1], high, 5),
        color=_paint(names, shown, line, line != panel),
    )
    layers = [
        alt.Chart().mark_rule(style="faint", strokeDash=[2, 3]).encode(y=alt.YDatum(mark))
        for mark in marks
    ]
    lined = base.transform_filter("!datum.dot").encode(detail=[f"{key}:N" for key in keep])
    if band:
        ends = {"y": alt.Y("low:Q"), "y2": alt.Y2("high:Q")}
        layers.append(lined.mark_area(opacity=0.2).encode(**ends))
    layers.append(_stroked(lined, shown, dashed))
    layers.append(base.mark_point(size=70, opacity=0, filled=True).encode(tooltip=told))
    if points is not None:
        dots = base.transform_filter("datum.dot").mark_point(filled=True, size=26, opacity=1)
        layers.append(dots.encode(tooltip=told))
    layered = alt.LayerChart(layer=layers, data=look.data(shown), width=wide, height=high)
    if panel:
        return look.faceted(layered, panels, _COLUMNS, panel, apart)
    return layered


def _drawn(
    table: pl.DataFrame,
    names: Mapping[str, str],
    keep: Sequence[str],
    numbers: Mapping[str, str],
    form: str,
) -> pl.DataFrame:
    """The columns name, those of `keep`, and the numbers by their axis, of rows with a y."""
    shown = look.with_names(table, names).with_columns(
        pl.col(key).cast(pl.Float64).alias(axis) for axis, key in numbers.items()
    )
    told = look.texts(table, "number", x=numbers["x"])
    told |= look.texts(table, form, **{axis: key for axis, key in numbers.items() if axis != "x"})
    columns = dict.fromkeys(("name", *keep, *numbers))
    return shown.select(*columns, **told).filter(pl.col("y").is_finite())


def _values(shown: pl.DataFrame, column: str) -> list[str]:
    return shown[column].unique(maintain_order=True).to_list() if column else []


def _names(shown: pl.DataFrame, names: Mapping[str, str]) -> list[str]:
    return [name for name in look.unique(names).values() if name in shown["name"]]


def _paint(
    names: Mapping[str, str], shown: pl.DataFrame, line: str, with_legend: bool
) -> alt.Color | alt.ColorValue:
    legend = alt.Legend(columns=4, symbolOpacity=1) if with_legend else None
    if line != "name":
        return look.by_kind(line, _values(shown, line), legend=legend)
    labels, present = look.unique(names), _names(shown, names)
    return look.by_model(names, [m for m in names if labels[m] in present], legend=legend)


def _stroked(lined: alt.Chart, shown: pl.DataFrame, dashed: str) -> look.Chart:
    drawn = lined.mark_line().encode(strokeWidth=alt.value(1.5))
    if not dashed:
        return drawn
    dashes = alt.Scale(domain=_values(shown, dashed), range=[[1, 0], [4, 3]])
    return drawn.encode(strokeDash=alt.StrokeDash(f"{dashed}:N", scale=dashes, title=None))


def _tooltips(keep: Sequence[str], titles: tuple[str, str], band: bool) -> list[alt.Tooltip]:
    ends = {"low": "95% from", "high": "to"} if band else {}
    names = [alt.Tooltip(f"{key}:N") for key in dict.fromkeys(("name", *keep))]
    return [*names, *look.told(x=titles[0], y=titles[1], **ends)]
