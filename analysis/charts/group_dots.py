"""Groups of words as rows: each model and their mean, in front of the range of ordinary kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from analysis.charts import look

_STEP = 15  # Pixels of a group.


def group_dots(
    over: pl.DataFrame, each: pl.DataFrame, names: Mapping[str, str], measure: str, label: str
) -> look.Chart:
    """A panel for each axis and a row for each of its groups, from the highest to the lowest.

    A dot is a model, and a diamond the mean over models with its interval; one model alone has its
    own interval. The band holds the means of nine of ten ordinary kinds.

    Args:
      over: rows of `identity_models.csv` of one prompt.
      each: rows of `identity.csv` of that prompt.
      names: slug -> nickname of every model of the report.
      measure: "contrast" (with the other groups of the axis) or "difference" (from neutral words).
      label: what that is, for the axis.
    """
    over, each = (table.filter(pl.col(measure).is_not_nan()) for table in (over, each))
    models = [model for model in names if model in each["model"]]
    rows = over.sort(measure, "group", descending=[True, False])["group"].to_list()
    panels = over.group_by("axis").len().sort("len", "axis", descending=[True, False])["axis"]
    shown = pl.concat(
        [_means(over, measure, several=len(models) > 1), _models(each, names, measure)],
        how="diagonal",
    )
    base = alt.Chart().encode(y=alt.Y("group:N", sort=rows, title=None))
    ends = look.told(low="95% from", high="to") if "low" in shown.columns else []
    kinds = [alt.Tooltip("kinds_lower:Q", title="ordinary kinds lower"), alt.Tooltip("kinds:Q")]
    dots = ["group:N", "name:N", *look.told(value="percentile points"), *ends]
    axis: dict[str, Any] = {"title": None, "axis": alt.Axis(tickCount=5)}
    rule = base.mark_rule(style="ink", strokeWidth=1.4)
    lines = [rule.encode(x=alt.X("low:Q", **axis), x2="high:Q")] if ends else []
    layers = [
        base.mark_bar(style="band", height=_STEP - 2).encode(x=alt.X("from:Q"), x2="to:Q"),
        alt.Chart().mark_rule(style="faint").encode(x=alt.XDatum(0)),
        *lines,
        base.mark_point(filled=True, size=24, opacity=0.9).encode(
            x=alt.X("value:Q", **axis), color=look.by_model(names, models), tooltip=dots
        ),
    ]
    if len(models) > 1:
        means = base.mark_point(style="inked", shape="diamond", filled=True, size=52)
        tooltip = ["group:N", *look.told(mean="percentile points"), *ends, *kinds]
        layers.append(means.encode(x=alt.X("mean:Q", **axis), tooltip=tooltip))
    known = [{k: v for k, v in row.items() if v is not None} for row in look.data(shown).values]
    data = alt.InlineData(values=known)
    chart = alt.LayerChart(layer=layers, data=data, height=alt.Step(_STEP), width=190)
    made = look.faceted(chart, panels.to_list(), 3, "axis", label, apart="y")
    return made.resolve_axis(x="independent")  # Panels below one another may be moved sideways.


def _means(over: pl.DataFrame, measure: str, several: bool) -> pl.DataFrame:
    """The band of each group, and its mean where there are several models."""
    band = {"from": f"{measure}_placebo_low", "to": f"{measure}_placebo_high"}
    mean = {"mean": measure, "low": f"{measure}_low", "high": f"{measure}_high"} if several else {}
    numbers = {new: 100 * pl.col(key) for new, key in (band | mean).items()}
    kinds = ("kinds_lower", "kinds") if several else ()
    return over.select("axis", "group", *kinds, **numbers, **look.texts(over, "share", **mean))


def _models(each: pl.DataFrame, names: Mapping[str, str], measure: str) -> pl.DataFrame:
    """The dot of each model; with its interval where it is the only one and has one."""
    alone = each["model"].n_unique() == 1 and f"{measure}_low" in each.columns
    ends = {"low": f"{measure}_low", "high": f"{measure}_high"} if alone else {}
    keys = {"value": measure} | ends
    numbers = {new: 100 * pl.col(key) for new, key in keys.items()}
    told = look.texts(each, "share", **keys)
    return look.named(each, names).select("axis", "group", "name", **numbers, **told)
