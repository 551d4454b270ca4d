"""One prompt against another: what a model says of good and bad about the same token."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from analysis.figures import style

# Starts well above white, for a hexagon of one token must show.
_COUNTS = LinearSegmentedColormap.from_list("counts", ["#b4cde6", "#3a7ab5", "#0a2440"])


@style.styled()
def contrast(
    pairs: Mapping[str, pl.DataFrame],
    pearson: Mapping[str, float],
    principal: pl.DataFrame,
    names: Mapping[str, str],
    prompts: tuple[str, str],
) -> Figure:
    """Rewards under one prompt against those under another, a panel of hexagons a model.

    Args:
      pairs: slug -> a frame with the columns x and y, the rewards of each token under
        `prompts[0]` and `prompts[1]`.
      pearson: slug -> Pearson's r of x and y, NaN where it is not defined.
      principal: `analysis.framing.framing_axis` of the same prompts.
      names: slug -> nickname, in the order of the panels; models without pairs are left out.
      prompts: the two prompt ids.
    """
    models = [model for model in names if model in pairs]
    figure, axes = style.panels(names, models, 5, (2.2, 2.35))
    for model, ax in axes.items():
        _hexagons(ax, pairs[model])
        _axes(ax, pairs[model], principal.filter(model=model))
        r = pearson[model]
        said = "r undefined" if np.isnan(r) else f"r = {r:.2f}".replace("-", "−")
        ax.text(
            0.04,
            0.95,
            said,
            transform=ax.transAxes,
            va="top",
            fontsize=8.5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
        )
    figure.supxlabel(style.drawable(f"reward under “{prompts[0]}”"), fontsize=9)
    figure.supylabel(style.drawable(f"reward under “{prompts[1]}”"), fontsize=9)
    return figure


def _hexagons(ax: Axes, pair: pl.DataFrame) -> None:
    x, y = (pair[axis].cast(pl.Float64).to_numpy() for axis in "xy")
    if np.ptp(x) == 0 or np.ptp(y) == 0:  # hexbin has no extent to cut into hexagons.
        ax.plot(x, y, "o", color=style.INK, markersize=3)
    else:
        ax.hexbin(x, y, gridsize=38, bins="log", mincnt=1, cmap=_COUNTS, linewidths=0.1)


def _axes(ax: Axes, pair: pl.DataFrame, principal: pl.DataFrame) -> None:
    """The principal axes through the mean, two standard deviations each way."""
    points = pair.select("x", "y").cast(pl.Float64).to_numpy()
    middle = points.mean(axis=0)
    for row in principal.iter_rows(named=True):
        along = np.array([row["loading_a"], row["loading_b"]])
        reach = 2 * np.std((points - middle) @ along) * along
        ends = np.stack([middle - reach, middle + reach])
        colour = style.BOTTOM if row["axis_kind"] == "same" else style.TOP
        ax.plot(*ends.T, color="white", linewidth=2.6)
        ax.plot(*ends.T, color=colour, linewidth=1.4)
