"""Found replies against the models and prompts that score them, as a heat map."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from analysis.figures import style

_ARROWS = {"max": "↑", "min": "↓"}
_REPLY = ["source", "source_prompt", "direction", "method", "seed", "text"]  # keys of a row


@style.styled
def transfer_map(matrix: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """Standardised rewards of replies (rows) under each model and prompt (columns).

    Args:
      matrix: rows of `transfer.transfer_matrix` whose `standardised` is known; a cell without one
        shows as a dash.
      names: slug -> nickname.
    """
    rows = matrix.select(_REPLY).unique(maintain_order=True).rows()
    columns = matrix.select("target", "prompt").unique(maintain_order=True).sort("target", "prompt")
    cells = {
        (row[:6], row[6:8]): row[8]
        for row in matrix.select(*_REPLY, "target", "prompt", "standardised").iter_rows()
    }
    values = np.array(
        [[cells.get((row, column), np.nan) for column in columns.rows()] for row in rows],
        dtype=float,
    )
    width, height = 0.62 * len(columns) + 3.6, 0.34 * len(rows) + 1.9
    figure = style.canvas(max(width, 4.4), max(height, 2.6))
    ax = figure.subplots()
    most = max(float(np.nanmax(np.abs(values))), 1.0)
    image = ax.imshow(
        np.ma.masked_invalid(values),
        cmap=style.colormap("RdBu"),
        vmin=-most,
        vmax=most,
        aspect="auto",
    )
    prompts = columns["prompt"].n_unique() > 1
    across = [
        style.name(names.get(model, model), 24)
        + (f" · {style.name(prompt, 16)}" if prompts else "")
        for model, prompt in columns.rows()
    ]
    down = [_label(row, names) for row in rows]
    ax.set_xticks(range(len(across)), across, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(down)), down)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for (i, j), value in np.ndenumerate(values):
        known = np.isfinite(value)
        ink = "white" if known and abs(value) > 0.6 * most else style.INK
        text = style.minus(f"{round(value, 1) + 0.0:.1f}") if known else "–"
        ax.text(j, i, text, ha="center", va="center", color=ink).set_in_layout(False)
    bar = figure.colorbar(image, ax=ax, shrink=0.75, pad=0.02)
    bar.set_label("reward, sd of single tokens")
    bar.outline.set_visible(False)
    return figure


def _label(row: tuple[str, ...], names: Mapping[str, str]) -> str:
    source, _, direction, _, _, text = row
    return (
        f"{_ARROWS[direction]} {style.name(names.get(source, source), 16)}: {style.name(text, 20)}"
    )
