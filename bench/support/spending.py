"""The best rewards of searches by the operations they spent, as a table and as a figure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from analysis.figures import style
from engine.runs.schema import Columns

_SEARCH = ["model", "prompt", "direction", "method", "seed"]
_SPENDING: Columns = {
    **dict.fromkeys(("model", "prompt", "direction", "method"), pl.String),
    **dict.fromkeys(("flops", "median", "low", "high"), pl.Float64),
    "n": pl.UInt32,
}


def spending(traces: pl.DataFrame, points: int = 80) -> pl.DataFrame:
    """The best rewards of each method's searches by the operations they had spent.

    Args:
      traces: what `sequence_traces` returns.
      points: numbers of operations, evenly spaced in logarithm over the range of the traces.

    Returns:
      model, prompt, direction, method, flops, median, low, high (of the best rewards so far) and n,
      the searches that had found anything by then; points without any are left out.
    """
    spent = traces.filter(pl.col("flops") > 0)
    if not spent.height:
        return pl.DataFrame(schema=_SPENDING)
    flops = spent["flops"].to_numpy()
    # geomspace includes its ends exactly, so the last steps count.
    grid = pl.DataFrame(
        {"flops": np.geomspace(flops.min(), flops.max(), points)}, schema={"flops": pl.Float64}
    )
    searches = spent.select(_SEARCH).unique(maintain_order=True)
    reached = (
        searches.join(grid, how="cross")
        .sort("flops")
        .join_asof(
            spent.select(*_SEARCH, "flops", "best").sort("flops"),
            on="flops",
            by=_SEARCH,
            strategy="backward",
            check_sortedness=False,
        )
        .drop_nulls("best")
    )
    keys = ["model", "prompt", "direction", "method", "flops"]
    best = pl.col("best")
    each = reached.group_by(keys).agg(
        median=best.median(), low=best.min(), high=best.max(), n=pl.len()
    )
    return each.cast(pl.Schema(_SPENDING)).sort(keys)


@style.styled
def budgets(spent: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """The best reward so far against the floating-point operations spent, one panel per model.

    A line is the median of a method's searches, the band around it their range.

    Args:
      spent: what `spending` returns.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    models = [model for model in names if model in spent["model"]]
    figure, axes = style.panels(names, models, 2, (5.6, 3.6))
    looks = style.looks(spent["method"].unique().sort())
    for model, ax in axes.items():
        parts = spent.filter(model=model).partition_by("direction", "method", as_dict=True)
        for (direction, method), part in sorted(parts.items(), key=lambda pair: str(pair[0])):
            part, colour = part.sort("flops"), looks[str(method)][0]
            flops = part["flops"] / 1e12
            ax.fill_between(flops, part["low"], part["high"], color=colour, alpha=0.15, lw=0)
            ax.plot(
                flops, part["median"], "-" if direction == "max" else "--", color=colour, lw=1.6
            )
        ax.set_xscale("log")
    figure.supxlabel("TFLOP spent by the search", fontsize=9)
    figure.supylabel("best reward so far", fontsize=9)
    style.legend(figure, {m: (c, "") for m, (c, _) in looks.items()}, lines=True)
    return figure
