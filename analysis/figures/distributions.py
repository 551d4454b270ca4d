"""The shape of each model's rewards: a violin a prompt, a panel a model."""

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style

_HALF = 0.42


@style.styled()
def violins(
    densities: pl.DataFrame,
    quantiles: pl.DataFrame,
    names: Mapping[str, str],
    prompts: Sequence[str],
) -> Figure:
    """Violins of the rewards, a panel a model, each on its own axis.

    Rewards of two models have no common unit, so only shapes, and prompts within one model,
    can be compared; one axis for all would flatten most models to a line.

    Args:
      densities: the table of `distributions.density_table`.
      quantiles: the table of `distributions.quantiles_table`.
      names: slug -> nickname, in the order of the panels.
      prompts: prompt ids in the order of the violins.
    """
    figure, axes = style.panels(names, list(names), 5, (2.1, 2.7))
    colours = style.colours(names)
    for model, ax in axes.items():
        for place, prompt in enumerate(prompts):
            shape = densities.filter(model=model, prompt=prompt).sort("reward")
            if shape.height:
                spread = quantiles.filter(model=model, prompt=prompt).row(0, named=True)
                _violin(ax, place, shape, spread, colours[model])
        ax.set_xticks(range(len(prompts)), [style.name(p, 14) for p in prompts])
        ax.set_xlim(-0.6, len(prompts) - 0.4)
        ax.grid(visible=False, axis="x")
    figure.supylabel("reward", fontsize=9)
    return figure


def _violin(ax: Axes, place: int, shape: pl.DataFrame, spread: dict, colour: str) -> None:
    reward, height = shape["reward"].to_numpy(), shape["density"].to_numpy()
    half = _HALF * height / height.max()
    if len(reward) == 1:  # All rewards equal: a line says so better than a flat violin.
        ax.plot([place - _HALF, place + _HALF], [reward[0]] * 2, color=colour)
    ax.fill_betweenx(reward, place - half, place + half, color=colour, alpha=0.45, linewidth=0.6)
    ax.vlines(place, spread["q05"], spread["q95"], color=style.INK, linewidth=0.9)
    ax.vlines(place, spread["q25"], spread["q75"], color=style.INK, linewidth=3.6)
    ax.plot(place, spread["median"], "o", color="white", markersize=2, zorder=4)
