"""Charts as tests look at them: rendered, and the rows that they show."""

import collections
import json
from typing import Any

import vl_convert

from analysis.charts import look
from analysis.report.drawing import Drawn


def svg(chart: look.Chart) -> str:
    """The chart as the report writes it; a specification that Vega-Lite refuses raises."""
    text: str = vl_convert.vegalite_to_svg(
        json.dumps(look.specification(chart)), config=look.config(), allowed_base_urls=[]
    )
    return text


def rows(chart: look.Chart) -> list[dict[str, Any]]:  # Any: cells
    """The rows of its data."""
    values: list[dict[str, Any]] = look.specification(chart)["data"]["values"]
    return values


class Undrawn(collections.defaultdict[str, Drawn]):
    """A chart of any name, for pages whose charts are not drawn."""

    def __missing__(self, key: str) -> Drawn:
        return Drawn(text="{}", width=0, height=0, formats=("svg",), image=f"data:{key}", view="")
