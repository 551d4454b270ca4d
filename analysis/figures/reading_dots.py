"""How far readings of a model agree with its default reading, beside the noise floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from analysis.figures import style

_ROW = 0.27  # Inches of a reading.
_PAD = 0.04  # Beyond the lowest and highest τ, of their distance.


@style.styled
def reading_dots(
    table: pl.DataFrame, labels: Sequence[tuple[str, str]], names: Mapping[str, str]
) -> style.Figure:
    """Kendall's τ with the default reading: a row per reading, a dot per model and prompt.

    Args:
      table: `conventions_readings.csv`.
      labels: reading and its name, in the order of the rows; the noise floor's come last.
      names: slug -> nickname; models without rows are left out.
    """
    models = [model for model in names if model in table["model"]]
    colours = style.colours(names)
    prompts = style.looks(table["prompt"].unique(maintain_order=True).to_list())
    figure = style.canvas(7.0, _ROW * len(labels) + 1.1)
    ax = figure.subplots()
    floor = table.filter("noise")["kendall"].fill_nan(None).drop_nulls()
    if len(floor):
        ax.axvspan(float(floor.to_numpy().min()), 1.0, color=style.GRID, linewidth=0)
        ax.axvline(float(floor.to_numpy().min()), color=style.FAINT, linewidth=1.0)
    for at, (reading, _) in enumerate(labels):
        own = table.filter(reading=reading)
        shift = np.linspace(-0.26, 0.26, own.height) if own.height > 1 else np.zeros(own.height)
        ax.axhline(at, color=style.GRID, linewidth=0.6, zorder=0)
        for place, row in zip(shift, own.iter_rows(named=True), strict=True):
            marker = prompts[row["prompt"]][1]
            colour = colours[row["model"]]
            ax.plot(row["kendall"], at + place, marker, color=colour, markersize=4)
    ax.set_yticks(range(len(labels)), [style.drawable(label, 44) for _, label in labels])
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    taus = table["kendall"].fill_nan(None).drop_nulls().to_numpy()
    if len(taus):
        low = float(taus.min())
        ax.set_xlim(low - _PAD * (1 - low) - 1e-6, 1 + _PAD * (1 - low) + 1e-6)
    ax.set_xlabel("Kendall’s τ with the default reading")
    shown = {style.name(names[m]): (colours[m], "s") for m in models if len(models) > 1}
    shown |= {p: (style.INK, marker) for p, (_, marker) in prompts.items() if len(prompts) > 1}
    if shown:
        style.legend(figure, shown)
    return figure
