"""Ranks and percentiles, and the correlations of Pearson and Spearman, in float64."""

import math
from collections.abc import Sequence

import numpy as np
import scipy.stats

from analysis.statistics import Array
from analysis.statistics.products import dot


def average_ranks(x: Array) -> Array:
    """Ranks of `x` [N] from 1 (lowest), ties sharing their mean rank; float64 [N].

    All NaN where a value is NaN. As `scipy.stats.rankdata`, in a quarter of its time.
    """
    if np.isnan(x).any():
        return np.full(len(x), math.nan)
    starts, ends = tied_spans(x)
    return np.asarray((starts + ends + 1) / 2)


def tied_spans(x: Array) -> tuple[Array, Array]:
    """How many values of `x` [N] are below each one, and how many are not above it; int64 [N]."""
    order = np.argsort(x)
    values = x[order]
    firsts = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(x)])
    ends = np.append(firsts, len(x))[1:]
    below, not_above = np.empty((2, len(x)), dtype=np.int64)
    below[order] = np.repeat(firsts, ends - firsts)
    not_above[order] = np.repeat(ends, ends - firsts)
    return below, not_above


def dense_ranks(x: Array) -> Array:
    """Ranks of `x` [N] from 1 with ties equal and no gaps; int32 [N]."""
    return np.asarray(scipy.stats.rankdata(x, method="dense"), np.int32)


def percentiles(x: Array) -> Array:
    """Share of `x` [N] below each value, ties counted half; float64 [N], in (0, 1), mean 1/2."""
    return (average_ranks(x) - 0.5) / max(len(x), 1)


def percentile_among(ascending: Array, value: float) -> float:
    """Share of the sorted float32 values `ascending` [N] below `value`, ties counted half.

    NaN for N = 0.
    """
    if len(ascending) == 0:
        return math.nan
    ends = (np.searchsorted(ascending, np.float32(value), side) for side in ("left", "right"))
    return float(sum(ends)) / (2 * len(ascending))


def spearman(x: Array, y: Array) -> float:
    """Spearman's rho of `x` and `y` [N]: Pearson's r of their average ranks.

    NaN where it is not defined: fewer than two values, or all values of one side equal.
    """
    return pearson(average_ranks(x), average_ranks(y))


def pearson(x: Array, y: Array) -> float:
    """Pearson's r of `x` and `y` [N], computed in float64; NaN where it is not defined."""
    if len(x) < 2:
        return math.nan
    x, y = (v.astype(np.float64) - v.mean(dtype=np.float64) for v in (x, y))
    scale = math.sqrt(dot(x, x) * dot(y, y))
    # Rounding can give a side of equal values a scale above zero, so the values are asked.
    if np.ptp(x) == 0 or np.ptp(y) == 0 or scale == 0:
        return math.nan
    return max(-1.0, min(1.0, dot(x, y) / scale))


def pearson_matrix(columns: Sequence[Array]) -> Array:
    """`pearson` of every two columns [N] of the same things; float64 [K, K]."""
    matrix = np.full((len(columns), len(columns)), math.nan)
    # Rounding can give a side of equal values a scale above zero, so the values are asked.
    varied = [k for k, x in enumerate(columns) if len(x) > 1 and np.ptp(x) > 0]
    centred = {k: columns[k].astype(np.float64) - columns[k].mean(dtype=np.float64) for k in varied}
    squares = {k: dot(x, x) for k, x in centred.items()}
    for at, i in enumerate(varied):
        for j in varied[: at + 1]:
            scale = math.sqrt(squares[i] * squares[j])
            if scale > 0:
                r = max(-1.0, min(1.0, dot(centred[i], centred[j]) / scale))
                matrix[i, j] = matrix[j, i] = r
    return matrix


def spearman_matrix(columns: Sequence[Array]) -> Array:
    """`spearman` of every two columns [N] of the same things; float64 [K, K]."""
    return pearson_matrix([average_ranks(x) for x in columns])


def extremes(x: Array, count: int, highest: bool) -> Array:
    """Indices of the `count` highest or lowest of `x` [N], most extreme first; int64 [<= count].

    Ties go to the lower index.
    """
    key = -x if highest else x
    indices = np.arange(len(x))
    if count < len(x):
        indices = np.flatnonzero(key <= np.partition(key, count - 1)[count - 1])
    return indices[np.argsort(key[indices], kind="stable")][:count]
