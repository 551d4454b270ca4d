"""How far the models agree: rank correlations, a map of the models, and what explains them."""

from collections.abc import Mapping

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style


@style.styled()
def heat_map(matrix: pl.DataFrame, names: Mapping[str, str], label: str) -> Figure:
    """A table of correlations as an annotated heat map.

    Args:
      matrix: names, then a column of numbers each, such as `agreement.kendall_matrix` returns;
        square or not. NaN shows as a dash.
      names: slug -> nickname; what is not in it ("human") names itself.
      label: what the numbers are, for the colour bar.
    """
    models, rows = matrix.columns[1:], matrix[matrix.columns[0]].to_list()
    values = matrix.select(models).to_numpy()
    width, height = (0.62 * len(side) + 1.9 for side in (models, rows))
    figure = style.canvas(max(width + 0.6, 3.8), max(height - 0.5, 3.0))
    ax = figure.subplots()
    low = -1.0 if np.nanmin(np.append(values, 0.0)) < -0.05 else 0.0
    colours = matplotlib.colormaps["RdBu" if low else "YlGnBu"].with_extremes(bad="#eeeeee")
    image = ax.imshow(np.ma.masked_invalid(values), cmap=colours, vmin=low, vmax=1.0)
    labels, left = ([_label(m, names) for m in side] for side in (models, rows))
    ax.set_xticks(range(len(models)), labels, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(rows)), left)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for (i, j), value in np.ndenumerate(values):
        dark = np.isfinite(value) and (value > 0.6 or (low < 0 and value < -0.6))
        text = f"{value:.2f}".replace("-", "−") if np.isfinite(value) else "–"
        ink = "white" if dark else style.INK
        ax.text(j, i, text, ha="center", va="center", color=ink).set_in_layout(False)
    bar = figure.colorbar(image, ax=ax, shrink=0.75, pad=0.02)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return figure


def _label(what: str, names: Mapping[str, str]) -> str:
    """Nickname of a model; an objective names itself, at more length."""
    return style.name(names[what], 24) if what in names else style.name(what, 36)


@style.styled()
def mds(table: pl.DataFrame, models: pl.DataFrame, names: Mapping[str, str]) -> Figure:
    """The models as points whose distances are their disagreement: by base and by developer.

    Args:
      table: `mds_<prompt>.csv`: model, x, y, stress.
      models: `models.csv`.
      names: slug -> nickname.
    """
    figure = style.canvas(8.4, 4.9)
    points = table.join(models.select("model", "base", "developer"), on="model", how="left")
    for ax, trait in zip(figure.subplots(1, 2), ("base", "developer"), strict=True):
        _map(ax, points.with_columns(pl.col(trait).fill_null("unknown")), trait, names)
    stress = float(table["stress"][0])
    figure.supxlabel(f"1 − τ as distance; stress {stress:.2f}", fontsize=9)
    return figure


def _map(ax: Axes, points: pl.DataFrame, trait: str, names: Mapping[str, str]) -> None:
    looks = style.looks(points[trait].unique().sort())
    for kind, (colour, marker) in looks.items():
        part = points.filter(pl.col(trait) == kind)
        label = style.name(kind, 24)
        ax.plot(part["x"], part["y"], marker, color=colour, markersize=7, label=label)
    labels = [style.name(names[model], 22) for model in points["model"]]
    xy = points.select("x", "y").to_numpy()
    for label, point, (dx, dy) in zip(labels, xy, _offsets(xy, labels), strict=True):
        ax.annotate(
            label,
            (float(point[0]), float(point[1])),
            xytext=(6 * dx, 7 * dy),
            textcoords="offset points",
            ha="left" if dx > 0 else "right",
            va="center",
            fontsize=7.5,
        )
    ax.set_title(f"by {trait}", loc="left", fontsize=9, fontweight="bold")
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.24, 0.14)  # Room for the names at the sides.
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(True)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3, frameon=False, fontsize=8)


def _offsets(xy: np.ndarray, labels: list[str]) -> list[tuple[int, int]]:
    """The corner of each point at which its label covers least of what stands already."""
    spans = np.maximum(np.ptp(xy, axis=0), 1e-9)
    scale = min(2.0 / spans[0], 3.0 / spans[1])  # What the margins leave of a panel.
    inches = scale * (xy - (xy.min(axis=0) + xy.max(axis=0)) / 2)
    # Outside the frame nothing is free; then come the points, then the labels.
    boxes = [(-9.0, -9.0, -1.4, 9.0), (1.4, -9.0, 9.0, 9.0)]
    boxes += [(x - 0.06, y - 0.06, x + 0.06, y + 0.06) for x, y in inches]
    chosen = []
    for (x, y), label in zip(inches, labels, strict=True):
        width = 0.058 * len(label) + 0.1
        corners = [(1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0)]
        spots = {
            (dx, dy): (
                min(x, x + dx * width),
                y + 0.1 * dy - 0.06,
                max(x, x + dx * width),
                y + 0.1 * dy + 0.06,
            )
            for dx, dy in corners
        }
        best = min(corners, key=lambda c: (sum(_shared(spots[c], b) for b in boxes),))
        boxes.append(spots[best])
        chosen.append(best)
    return chosen


def _shared(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Area that two boxes (left, bottom, right, top) share."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(width, 0.0) * max(height, 0.0)


@style.styled()
def rsa(table: pl.DataFrame) -> Figure:
    """How well each trait of the models predicts who agrees with whom, alone and jointly.

    Args:
      table: `rsa_<prompt>.csv`.
    """
    figure = style.canvas(7.6, 0.42 * table.height + 1.1)
    left, right = figure.subplots(1, 2, sharey=True)
    _bars(left, table, "pearson_r", "mantel_p", "alone: Pearson’s r", style.TOP)
    _bars(right, table, "beta", "permutation_p", "jointly: standardised β", style.BOTTOM)
    left.set_yticks(range(table.height), [style.name(p) for p in table["predictor"]])
    left.invert_yaxis()
    return figure


def _bars(ax: Axes, table: pl.DataFrame, key: str, p_key: str, label: str, colour: str) -> None:
    values = np.array(table[key].cast(pl.Float64).fill_null(np.nan).to_list())
    ax.barh(range(table.height), np.nan_to_num(values), color=colour, height=0.62)
    reach = max(0.2, float(np.nanmax(np.abs(np.append(values, 0.0)))))
    for at, (value, p) in enumerate(zip(values, table[p_key], strict=True)):
        known = np.isfinite(value)
        text = f"{value:.2f}  ({style.p_value(p)})".replace("-", "−") if known else "undefined"
        ax.text(max(np.nan_to_num(value), 0) + 0.03 * reach, at, text, va="center", fontsize=8)
    ax.axvline(0, color=style.INK, linewidth=0.8)
    ax.set_xlim(min(0.0, float(np.nanmin(np.append(values, 0.0)))) - 0.05 * reach, 1.75 * reach)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(label)
