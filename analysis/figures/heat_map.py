"""A table of correlations as a heat map."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from analysis.figures import style


@style.styled
def heat_map(matrix: pl.DataFrame, names: Mapping[str, str], label: str) -> style.Figure:
    """A table of correlations as an annotated heat map.

    Args:
      matrix: names, then one column of numbers each, such as `agreement.kendall_matrix` returns;
        square or not. NaN shows as a dash.
      names: slug -> nickname; a name that is not in it ("human") is shown as it is.
      label: what the numbers are, for the colour bar.
    """
    models, rows = matrix.columns[1:], matrix[matrix.columns[0]].to_list()
    values = matrix.select(models).to_numpy()
    width, height = (0.62 * len(side) + 1.9 for side in (models, rows))
    figure = style.canvas(max(width + 0.6, 3.8), max(height - 0.5, 3.0))
    ax = figure.subplots()
    low = -1.0 if np.nanmin(np.append(values, 0.0)) < -0.05 else 0.0
    colours = style.colormap("RdBu" if low else "YlGnBu")
    image = ax.imshow(np.ma.masked_invalid(values), cmap=colours, vmin=low, vmax=1.0)
    labels, left = ([_label(m, names) for m in side] for side in (models, rows))
    ax.set_xticks(range(len(models)), labels, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(rows)), left)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for (i, j), value in np.ndenumerate(values):
        dark = np.isfinite(value) and (value > 0.6 or (low < 0 and value < -0.6))
        text = style.minus(f"{value:.2f}") if np.isfinite(value) else "–"
        ink = "white" if dark else style.INK
        ax.text(j, i, text, ha="center", va="center", color=ink).set_in_layout(False)
    bar = figure.colorbar(image, ax=ax, shrink=0.75, pad=0.02)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return figure


def _label(what: str, names: Mapping[str, str]) -> str:
    """Nickname of a model, or the name of an objective, which may be longer."""
    return style.name(names[what], 24) if what in names else style.name(what, 36)
