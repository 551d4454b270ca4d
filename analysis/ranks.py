"""Rank statistics in plain numpy: only the order of the rewards counts, never their scale.

SciPy 1.18 computes in the dtype of its input, earlier versions in float64. Whatever goes to SciPy
is therefore cast to float64 here.
"""

import math

import numpy as np
import scipy.stats


def average_ranks(x: np.ndarray) -> np.ndarray:
    """Ranks of `x` [N] from 1 (lowest), ties sharing their mean rank; float64 [N]."""
    return scipy.stats.rankdata(np.asarray(x, np.float64), method="average")


def dense_ranks(x: np.ndarray) -> np.ndarray:
    """Ranks of `x` [N] from 1 with ties equal and no gaps; int32 [N]."""
    return scipy.stats.rankdata(x, method="dense").astype(np.int32)


def percentiles(x: np.ndarray) -> np.ndarray:
    """Share of `x` [N] below each value, ties counted half; float64 [N], in (0, 1), mean 1/2."""
    return (average_ranks(x) - 0.5) / max(len(x), 1)


def kendall_tau(x: np.ndarray, y: np.ndarray) -> float:
    """Kendall's tau-b of `x` and `y` [N], ties corrected, in O(N log N) (`scipy.stats`).

    NaN where it is not defined: fewer than two values, or one side all equal.
    """
    if len(x) < 2:
        return math.nan
    sides = (np.asarray(side, np.float64) for side in (x, y))
    return float(scipy.stats.kendalltau(*sides, variant="b").statistic)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rho of `x` and `y` [N]: Pearson's r of their average ranks.

    NaN where it is not defined: fewer than two values, or one side all equal.
    """
    return pearson(average_ranks(x), average_ranks(y))


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's r of `x` and `y` [N], computed in float64; NaN where it is not defined."""
    if len(x) < 2:
        return math.nan
    x, y = (v.astype(np.float64) - v.mean(dtype=np.float64) for v in (x, y))
    scale = math.sqrt(float(x @ x) * float(y @ y))
    # An all-equal side can leave rounding in place of zero, so ask the values, not the scale.
    if np.ptp(x) == 0 or np.ptp(y) == 0 or scale == 0:
        return math.nan
    return max(-1.0, min(1.0, float(x @ y) / scale))


def extremes(x: np.ndarray, count: int, highest: bool) -> np.ndarray:
    """Places of the `count` highest or lowest of `x` [N], from the extreme; int64 [<= count].

    Ties go to the earlier place.
    """
    key = -x if highest else x
    places = np.arange(len(x))
    if count < len(x):
        places = np.flatnonzero(key <= np.partition(key, count - 1)[count - 1])
    return places[np.argsort(key[places], kind="stable")][:count]
