"""What every chart shares: colours of models and prompts, type, and how tables become data."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt
import polars as pl

from analysis.sentences import cell
from engine import display

Chart: TypeAlias = Any  # a chart of Altair, of any of its classes

# The ten models of the paper, in the order in which it assigns them matplotlib's tab10.
_PAPER = {
    "qrm-gemma-2-27b": "#1f77b4",
    "skywork-reward-gemma-2-27b-v0.2": "#ff7f0e",
    "skywork-reward-gemma-2-27b": "#2ca02c",
    "skywork-reward-llama-3.1-8b-v0.2": "#d62728",
    "qrm-llama3.1-8b": "#9467bd",
    "urm-llama-3.1-8b": "#8c564b",
    "grm-llama3-8b-rewardmodel-ft": "#e377c2",
    "grm-llama3.2-3b-rewardmodel-ft": "#7f7f7f",
    "armorm-llama3-8b-v0.1": "#bcbd22",
    "grm-gemma2-2b-rewardmodel-ft": "#17becf",
}
# Paul Tol's "bright" and "muted" hues that stay apart in every common colour blindness, and are
# seen on white and on black.
_OTHERS = (
    "#4477aa",
    "#cc6677",
    "#228833",
    "#66b3e8",
    "#ccaa33",
    "#aa4488",
    "#44aa99",
    "#999933",
    "#8877cc",
)
# Okabe and Ito's colours, for what is not a model. Shapes distinguish the same without colour.
_HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777")
_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-left")
_KNOWN = {"greatest": 0, "worst": 1, "best": 2}

TOP = "#0f8a80"
BOTTOM = "#c2620c"
TYPE = 11  # Pixels of the smallest type.
STEP = 17  # Pixels of a row of dots or bars.
PANELS = 10  # At most. Where there is one for each model, more models are the rows of one chart.
FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"  # Metrics that vl-convert knows, too.


# A label of an axis, cut in the middle where it is long: names often differ at their ends. Half of
# its signs at most, on a phone and elsewhere.
_SIGNS = "(windowSize()[0] < 640 ? 11 : 19)"
WHOLE = (
    f"length(datum.label) <= 2 * {_SIGNS} ? datum.label : "
    f"slice(datum.label, 0, {_SIGNS}) + '…' + slice(datum.label, 1 - {_SIGNS})"
)


def config(dark: bool = False) -> dict[str, Any]:  # Any: JSON
    """The theme of Vega-Lite, for a light or a dark ground.

    Marks that are not data name a style instead of a colour: "ink" (means, fitted lines), "faint"
    (zero lines, guides).
    """
    ink, soft, faint, grid = (
        ("#e4e8ee", "#9aa5b4", "#66717f", "#2a323c")
        if dark
        else ("#1d2530", "#596373", "#9aa4b2", "#e9edf2")
    )
    axis = {"labelColor": soft, "titleColor": soft, "gridColor": grid, "domain": False}
    axis |= {
        "tickColor": grid,
        "labelFontSize": TYPE,
        "titleFontSize": TYPE,
        "titleFontWeight": 400,
    }
    header = {"labelColor": ink, "titleColor": soft, "labelFontSize": 12}
    legend = {"labelColor": soft, "titleColor": soft, "labelFontSize": TYPE, "titleFontSize": TYPE}
    return {
        "background": None,
        "font": FONT,
        "axis": axis | {"labelLimit": 240, "ticks": False, "labelPadding": 5},
        "header": header | {"labelFontWeight": 600, "labelAnchor": "start", "labelLimit": 230},
        "legend": legend | {"orient": "top", "labelLimit": 220, "columns": 5},
        "title": {"color": ink, "fontSize": 12, "anchor": "start"},
        "view": {"stroke": None, "continuousWidth": 230, "continuousHeight": 190},
        "facet": {"spacing": {"row": 20, "column": 12}},
        "concat": {"spacing": 22},
        "text": {"color": ink, "fontSize": TYPE},
        "style": {
            "ink": {"stroke": ink, "color": ink, "fill": None},
            "inked": {"fill": ink, "color": ink},
            "faint": {"stroke": faint, "color": faint},
        },
    }


def colours(models: Iterable[str]) -> dict[str, str]:
    """Colour of each model: the paper's for its ten, a colour-blind safe one for the others.

    Depends only on the set of slugs, so that a model looks the same in every chart of a report.
    Beyond nine others, colours repeat.
    """
    slugs = list(models)
    unlisted = sorted(slug for slug in slugs if slug not in _PAPER)
    chosen = {slug: _OTHERS[i % len(_OTHERS)] for i, slug in enumerate(unlisted)}
    return {slug: _PAPER.get(slug) or chosen[slug] for slug in slugs}


def by_model(
    names: Mapping[str, str], models: Sequence[str] = (), **other: Any
) -> alt.Color | alt.ColorValue:
    """The colour of each model, of rows whose column `name` is its nickname.

    One colour where two of the models would have the same: it would name neither.

    Args:
      names: slug -> nickname of every model of the report: the colours depend on the set.
      models: slugs of those that are drawn; all by default.
      other: arguments of `alt.Color`, such as `legend=None`.
    """
    shades = colours(names)
    shown = models or list(names)
    if len({shades[m] for m in shown}) < len(shown):
        return alt.ColorValue(_HUES[0])
    labels = unique(names)
    scale = alt.Scale(domain=[labels[m] for m in shown], range=[shades[m] for m in shown])
    return alt.Color("name:N", scale=scale, **({"title": None} | other))


def looks(kinds: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and shape of each prompt, method, base or developer; the paper's prompts keep theirs.

    A prompt's name may be in quotation marks. Beyond seven they repeat.
    """
    in_order = list(kinds)
    known = {kind: _KNOWN[kind.strip("“”")] for kind in in_order if kind.strip("“”") in _KNOWN}
    free = [place for place in range(len(_HUES)) if place not in known.values()]
    unknown = [kind for kind in in_order if kind not in known]
    places = {kind: free[i % len(free)] for i, kind in enumerate(unknown)} | known
    return {kind: (_HUES[places[kind]], _SHAPES[places[kind]]) for kind in in_order}


def by_kind(column: str, kinds: Sequence[str], **other: Any) -> alt.Color:
    """The colour of each of `kinds`, which are the values of a column."""
    scale = alt.Scale(domain=list(kinds), range=[colour for colour, _ in looks(kinds).values()])
    return alt.Color(f"{column}:N", scale=scale, **({"title": None} | other))


def shaped(column: str, kinds: Sequence[str], **other: Any) -> alt.Shape:
    """The shape of each of `kinds`; its legend is that of `by_kind` with the same arguments."""
    scale = alt.Scale(domain=list(kinds), range=[shape for _, shape in looks(kinds).values()])
    return alt.Shape(f"{column}:N", scale=scale, **({"title": None} | other))


def around_zero(most: float) -> alt.Scale:
    """The colours of numbers from -`most` (red) to `most` (blue)."""
    return alt.Scale(domain=[-most, most], scheme="redblue")


def unique(names: Mapping[str, str]) -> dict[str, str]:
    """Slug -> nickname, or the slug where two models have one nickname."""
    labels = list(names.values())
    return {slug: name if labels.count(name) == 1 else slug for slug, name in names.items()}


def with_names(frame: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """`frame` with the column `name`: the nickname of its `model`, or its slug."""
    return frame.with_columns(name=pl.col("model").replace(unique(names)))


def data(frame: pl.DataFrame, sparse: bool = False) -> alt.InlineData:
    """The rows of `frame` for a specification; numbers have five digits, and NaN is null.

    Args:
      frame: the rows.
      sparse: whether rows leave out what is null: data of several layers.
    """
    frame = frame.drop("model") if {"model", "name"} <= set(frame.columns) else frame
    rows = [{key: _short(cell) for key, cell in row.items()} for row in frame.to_dicts()]
    if sparse:
        rows = [{key: cell for key, cell in row.items() if cell is not None} for row in rows]
    return alt.InlineData(values=rows)


def _short(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.5g}") if math.isfinite(value) else None


def texts(table: pl.DataFrame, form: str, **keys: str) -> dict[str, pl.Series]:
    """Numbers for tooltips, as tables of the page print them.

    Args:
      table: the rows.
      form: as `columns.Column` has it.
      keys: name in the chart -> column of `table`; one that it lacks is left out.

    Returns:
      The columns that `told` shows.
    """
    return {
        f"{new}_text": pl.Series([cell(value, form, key) for value in table[key]], dtype=pl.String)
        for new, key in keys.items()
        if key in table.columns
    }


def told(**titles: str) -> list[alt.Tooltip]:
    """Tooltips of numbers by their name in the chart -> title, of a table with their `texts`."""
    return [alt.Tooltip(f"{name}_text:N", title=title) for name, title in titles.items()]


def faceted(
    chart: alt.Chart | alt.LayerChart,
    panels: Sequence[str],
    columns: int,
    column: str = "name",
    apart: str = "",
) -> Chart:
    """One panel for each value of a column, in the order of `panels`; at most `PANELS`.

    Args:
      chart: with data that has the column, without the panels that are left out.
      panels: values of the column, in order.
      columns: panels side by side, at most.
      column: its name.
      apart: axes that have a scale of their own in each panel: "x", "y" or "xy".
    """
    wide = chart.width if isinstance(chart.width, int) else 230
    lines = {panel: title(panel, wide - 12) for panel in panels}
    header = alt.Header(labelLimit=wide + 20, labelExpr=f"{json.dumps(lines)}[datum.label]")
    facet = alt.Facet(f"{column}:N", sort=list(panels[:PANELS]), title=None, header=header)
    rows = max(-(-len(panels[:PANELS]) // columns), 1)
    made: Chart = chart.facet(facet, columns=-(-len(panels[:PANELS]) // rows))
    if apart:
        made = made.resolve_scale(**dict.fromkeys(apart, "independent"))
    if len(panels) > PANELS:
        cut = f"the first {PANELS} of {len(panels)}; the others are in the table"
        made = made.properties(title=alt.TitleParams(cut, orient="bottom", fontWeight=400))
    return made.resolve_axis(x="independent")


def title(text: str, length: int) -> list[str]:
    """The title of an axis or a panel that is `length` pixels long, in lines."""
    return textwrap.wrap(text, max(length // 6, 12)) or [""]


def up(column: str, text: str, height: int, ticks: int = 4) -> alt.Y:
    """A vertical axis that ends at ticks, so that titles of panels side by side have one height."""
    scale = alt.Scale(zero=False, nice=ticks)
    return alt.Y(
        f"{column}:Q", title=title(text, height), scale=scale, axis=alt.Axis(tickCount=ticks)
    )


def token(text: str) -> str:
    """A token as a chart shows it, with invisible characters marked."""
    return display.plain(text)


def name(text: str, limit: int = 26) -> str:
    """A name, cut in the middle where it is longer than `limit`."""
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def specification(chart: Chart) -> dict[str, Any]:  # Any: JSON
    """The Vega-Lite specification of a chart, without a theme."""
    with alt.data_transformers.enable(consolidate_datasets=False):
        spec: dict[str, Any] = chart.to_dict(validate=False)
    for key in ("config", "$schema"):
        spec.pop(key, None)
    return spec


def text_of(spec: Mapping[str, Any]) -> str:
    """A specification as JSON that can stand in a script element."""
    text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
