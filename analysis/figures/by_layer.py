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
      rows: model, layer, and the columns below; of all models.
      value: column of the line.
      band: columns of the ends of its interval, or ().
      look: colour and marker in the legend.
      dashed: whether it is dashed.
    """

    rows: pl.DataFrame
    value: str
    band: Sequence[str]
    look: tuple[str, str]
    dashed: bool = False


@style.styled
def by_layer(
    lines: Mapping[str, Line],
    names: Mapping[str, str],
    label: str,
    marks: Sequence[float] = (),
) -> style.Figure:
    """One panel per model, the layers across.

    Args:
      lines: name in the legend -> line.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
      label: of the vertical axis.
      marks: values with a dotted line.
    """
    drawn = pl.concat([line.rows["model"] for line in lines.values()])
    models = [model for model in names if model in drawn][:MOST]
    figure, axes = style.panels(names, models, _COLUMNS, _PANEL)
    for model, ax in axes.items():
        for mark in marks:
            ax.axhline(mark, color=style.FAINT, linewidth=0.8, linestyle=":")
        for line in lines.values():
            own, (colour, marker) = line.rows.filter(model=model).sort("layer"), line.look
            layers = own["layer"].to_numpy()
            if line.band:
                ends = (own[name].to_numpy() for name in line.band)
                ax.fill_between(layers, *ends, color=colour, alpha=0.2, linewidth=0)
            dashes = "--" if line.dashed else "-"
            every = max(1, len(layers) // 8)
            ax.plot(
                layers,
                own[line.value].to_numpy(),
                dashes,
                color=colour,
                marker=marker,
                markersize=3.2,
                markevery=every,
                linewidth=1.4,
            )
    style.legend(figure, {name: line.look for name, line in lines.items()}, lines=True)
    figure.supxlabel("after layer", fontsize=9)
    figure.supylabel(label, fontsize=9)
    return figure
