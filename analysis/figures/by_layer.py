"""Lines over the layers of each model: what the reward lens reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import polars as pl

from analysis.figures import style

MOST = 12  # Panels; more models would be too small to read.
_PANEL = (2.5, 2.1)  # Inches.
_COLUMNS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One line of every panel.

    Attributes:
      name: in the legend; lines of one name have one entry.
      rows: model, layer, and the columns below; of all models.
      value: column of the line.
      band: columns of the ends of its interval, or ().
      look: colour and marker in the legend.
      dashed: whether it is dashed.
    """

    name: str
    rows: pl.DataFrame
    value: str
    band: Sequence[str]
    look: tuple[str, str]
    dashed: bool = False


@style.styled
def by_layer(
    lines: Sequence[Line],
    names: Mapping[str, str],
    label: str,
    marks: Sequence[float] = (),
) -> style.Figure:
    """One panel per model, the layers across.

    Args:
      lines: of every panel.
      names: slug -> nickname, in the order of the panels; models without rows are left out, and
        those after the twelfth, which the figure says.
      label: of the vertical axis.
      marks: values with a dotted line.
    """
    drawn = pl.concat([line.rows["model"] for line in lines])
    every = [model for model in names if model in drawn]
    models = every[:MOST]
    figure, axes = style.panels(names, models, _COLUMNS, _PANEL)
    for model, ax in axes.items():
        for mark in marks:
            ax.axhline(mark, color=style.FAINT, linewidth=0.8, linestyle=":")
        for line in lines:
            own, (colour, marker) = line.rows.filter(model=model).sort("layer"), line.look
            layers = own["layer"].to_numpy()
            if line.band:
                low, high = (own[name].to_numpy() for name in line.band)
                ax.fill_between(layers, low, high, color=colour, alpha=0.2, linewidth=0)
            dashes = "--" if line.dashed else "-"
            gap = max(1, len(layers) // 8)
            ax.plot(
                layers,
                own[line.value].to_numpy(),
                dashes,
                color=colour,
                marker=marker,
                markersize=3.2,
                markevery=gap,
                linewidth=1.4,
            )
    _alike(list(axes.values()))
    style.legend(figure, {line.name: line.look for line in lines}, lines=True)
    cut = f" (the first {MOST} of {len(every)} models)" if len(every) > MOST else ""
    figure.supxlabel(f"after layer{cut}", fontsize=9)
    figure.supylabel(label, fontsize=9)
    return figure


def _alike(axes: Sequence[style.Axes]) -> None:
    """Gives panels one vertical scale, and whole numbers across."""
    limits = [ax.get_ylim() for ax in axes]
    for ax in axes:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        ax.locator_params(axis="x", integer=True)
