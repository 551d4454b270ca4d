"""How far the models agree: the square of their rank correlations."""

from collections.abc import Mapping

import matplotlib
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from analysis.figures import style


@style.styled()
def heat_map(matrix: pl.DataFrame, names: Mapping[str, str], label: str) -> Figure:
    """A square table of correlations as an annotated heat map.

    Args:
      matrix: model, then a column a model, such as `agreement.kendall_matrix` returns. NaN
        shows as a dash.
      names: slug -> nickname.
      label: what the numbers are, for the colour bar.
    """
    models = matrix.columns[1:]
    values = matrix.select(models).to_numpy()
    size = 0.62 * len(models) + 1.9
    figure = style.canvas(max(size + 0.6, 3.8), max(size - 0.5, 3.0))
    ax = figure.subplots()
    low = -1.0 if np.nanmin(np.append(values, 0.0)) < -0.05 else 0.0
    colours = matplotlib.colormaps["RdBu" if low else "YlGnBu"].with_extremes(bad="#eeeeee")
    image = ax.imshow(np.ma.masked_invalid(values), cmap=colours, vmin=low, vmax=1.0)
    labels = [style.name(names[model], 24) for model in models]
    ax.set_xticks(range(len(models)), labels, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(models)), labels)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for (i, j), value in np.ndenumerate(values):
        dark = np.isfinite(value) and (value > 0.6 or (low < 0 and value < -0.6))
        text = f"{value:.2f}" if np.isfinite(value) else "–"
        ax.text(j, i, text, ha="center", va="center", color="white" if dark else style.INK)
    bar = figure.colorbar(image, ax=ax, shrink=0.75, pad=0.02)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return figure
