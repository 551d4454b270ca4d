"""Words as points: reward against sentiment (Fig 3A-C, A4), frequency (3D) and Bing (A3)."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style

_PANEL = (2.1, 2.2)
_JITTER = 0.32  # Of the valences, which are whole numbers.
_LEVELS = 60  # Slices of the rewards in which a swarm spreads.
_HALF = 0.44
_SIDES = {"positive": style.TOP, "negative": style.BOTTOM}


@style.styled()
def sentiment(points: pl.DataFrame, slopes: pl.DataFrame, names: Mapping[str, str]) -> Figure:
    """Reward of each word against its valence, with the fitted line a side, a panel a model.

    Points are moved sideways by up to a third of a valence, so that they do not hide each other.

    Args:
      points: rows of `sentiment.sentiment_points` for one prompt.
      slopes: rows of `sentiment_slopes.csv` for that prompt.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    sides = {"positive": pl.col("value") > 0, "negative": pl.col("value") <= 0}
    figure, axes = _panels(points, names)
    for model, ax in axes.items():
        for side, chosen in sides.items():
            part = points.filter(chosen, model=model).sort("value", "token_id")
            x, y = part["value"].to_numpy(), part["reward"].to_numpy()
            style.cloud(ax, x + _jitter(len(x)), y, _SIDES[side])
            slope = slopes.filter(model=model, valence=side)["slope"]
            _line(ax, x, y, slope, _SIDES[side])
        ax.set_xticks([-5, 0, 5], ["−5", "0", "+5"])
        ax.set_xlim(-5.6, 5.6)
    figure.supxlabel("valence of the word (AFINN)", fontsize=9)
    figure.supylabel("reward", fontsize=9)
    return figure


@style.styled()
def frequency(points: pl.DataFrame, slopes: pl.DataFrame, names: Mapping[str, str]) -> Figure:
    """Reward of each word, less the part of its valence, against its frequency.

    Args:
      points: rows of `sentiment.frequency_points` for one prompt.
      slopes: rows of `frequency_slopes.csv` for that prompt.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    figure, axes = _panels(points, names)
    shades = style.colours(names)
    for model, ax in axes.items():
        part = points.filter(model=model)
        x, y = part["log_frequency"].to_numpy(), part["residual"].to_numpy()
        style.cloud(ax, x, y, shades[model])
        _line(ax, x, y, slopes.filter(model=model)["slope"], style.INK)
    figure.supxlabel("natural logarithm of the occurrences in a million words", fontsize=9)
    figure.supylabel("reward, sentiment taken out", fontsize=9)
    return figure


@style.styled()
def swarms(points: pl.DataFrame, names: Mapping[str, str]) -> Figure:
    """Rewards of the negative and of the positive words as two swarms, a panel a model.

    A swarm is as wide as there are words of about that reward; the bar is the median.

    Args:
      points: rows of `sentiment.sentiment_points` of the Bing lexicon, for one prompt.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    figure, axes = _panels(points, names)
    for model, ax in axes.items():
        own = points.filter(model=model)
        ends = np.quantile(own["reward"].to_numpy(), (0, 1))
        for place, side in enumerate(("negative", "positive")):
            y = own.filter(valence=side)["reward"].sort().to_numpy()
            if len(y):
                style.cloud(ax, place + _spread(y, ends), y, _SIDES[side])
                ax.hlines(np.median(y), place - _HALF, place + _HALF, color=style.INK, lw=1.4)
        ax.set_xticks([0, 1], ["negative", "positive"])
        ax.set_xlim(-0.55, 1.55)
    figure.supylabel("reward", fontsize=9)
    return figure


def _panels(points: pl.DataFrame, names: Mapping[str, str]) -> tuple[Figure, dict[str, Axes]]:
    there = set(points["model"].unique())
    return style.panels(names, [model for model in names if model in there], 5, _PANEL)


def _line(ax: Axes, x: np.ndarray, y: np.ndarray, slope: pl.Series, colour: str) -> None:
    """The least-squares line of the points: its slope is known, and it meets their means."""
    known = slope.drop_nulls().drop_nans()
    if len(known) == 1:
        ends = np.array([x.min(), x.max()])
        ax.plot(ends, y.mean() + known[0] * (ends - x.mean()), color="white", linewidth=3.4)
        ax.plot(ends, y.mean() + known[0] * (ends - x.mean()), color=colour, linewidth=1.8)


def _jitter(count: int) -> np.ndarray:
    """`count` offsets that fill their range evenly, the same every time (golden ratio)."""
    return _JITTER * (2 * (np.arange(count) * 0.618034 % 1) - 1)


def _spread(ascending: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Offsets of a swarm: the values of one slice stand side by side, from the middle outwards."""
    low, high = ends
    slices = np.floor((ascending - low) / max(high - low, 1e-30) * (_LEVELS - 1)).astype(int)
    counts = np.bincount(slices, minlength=_LEVELS)
    within = np.arange(len(slices)) - (np.cumsum(counts) - counts)[slices]
    side = np.where(within % 2 == 1, 1, -1) * ((within + 1) // 2)
    return side * 2 * _HALF / max(counts.max(), 12)
