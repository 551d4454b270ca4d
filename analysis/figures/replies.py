"""A list of replies: the reward of each against how probable a language model finds it."""

from collections.abc import Mapping

import matplotlib
import polars as pl
from matplotlib.figure import Figure

from analysis.figures import style

_LONGEST = 4  # Tokens; longer replies share its colour.


@style.styled()
def against_logprobs(points: pl.DataFrame, names: Mapping[str, str]) -> Figure:
    """Reward of each item against its log-probability, a panel a model, darker for longer items.

    Args:
      points: what `item_logprobs.item_logprobs_points` returns.
      names: slug -> nickname, in the order of the panels; models without a column are left out.
    """
    models = [model for model in names if model in points.columns]
    figure, axes = style.panels(names, models, 4, (2.6, 2.4))
    lengths = range(1, min(_LONGEST, points["tokens"].to_numpy().max()) + 1)
    shades = matplotlib.colormaps["viridis_r"]
    looks = {n: matplotlib.colors.to_hex(shades(0.08 + 0.9 * n / _LONGEST)) for n in lengths}
    for model, ax in axes.items():
        for length, colour in looks.items():
            own = points.filter(pl.col("tokens").clip(1, _LONGEST) == length)
            style.cloud(ax, own["logprob"].to_numpy(), own[model].to_numpy(), colour)
    figure.supxlabel("log-probability of the item (natural)", fontsize=9)
    figure.supylabel("reward", fontsize=9)
    said = {
        n: f"{n} token{'s' if n > 1 else ''}{' or more' if n == _LONGEST else ''}" for n in looks
    }
    style.legend(figure, {said[n]: (colour, "o") for n, colour in looks.items()})
    return figure
