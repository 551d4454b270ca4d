"""Correlations by name; intervals of Pearson's r and of a difference of two, clustered."""

import math

import numpy as np

from analysis.statistics import Array, ranks
from analysis.statistics.clustered import clustered_error, half_width, two_sided_p
from analysis.statistics.kendall import tau_b

_NEAREST = 1 - 1e-12  # To 1 that r is taken to be, so that its Fisher transform is finite.


def correlations(x: Array, y: Array) -> dict[str, float]:
    """Pearson's r, Spearman's rho and Kendall's tau-b of `x` and `y` [N], by name."""
    return {
        "pearson": ranks.pearson(x, y),
        "spearman": ranks.spearman(x, y),
        "kendall": tau_b(x, y),
    }


def standardised(x: Array) -> Array:
    """`x` [N] with mean 0 and standard deviation 1; float64 [N], NaN where all are equal."""
    x = np.asarray(x, dtype=np.float64)
    if np.ptp(x) == 0:
        return np.full(len(x), math.nan)
    return np.asarray((x - x.mean()) / x.std())


def influence(a: Array, b: Array) -> Array:
    """What each point adds to Pearson's r, times N; float64 [N].

    Args:
      a: one side, `standardised`; float64 [N].
      b: the other one.
    """
    r = float(np.mean(a * b))
    return np.asarray(a * b - r / 2 * (a**2 + b**2))


def pearson_interval(r: float, points: Array, clusters: Array) -> tuple[float, float, float]:
    """95 % interval of Pearson's r, and the p-value of r = 0; whole clusters are resampled.

    Delta method on Fisher's scale, where the error is at least that of as many unrelated normal
    pairs as there are clusters, 1 / sqrt(clusters − 3).

    Args:
      r: Pearson's r.
      points: its `influence`; float64 [N].
      clusters: number of the cluster of each point, such as the stem of a token, from 0 without
        gaps; int64 [N].

    Returns:
      Both ends and p; NaN for fewer than four clusters, or where r is not defined.
    """
    count = int(clusters.max()) + 1
    if math.isnan(r) or count < 4:
        return math.nan, math.nan, math.nan
    r = max(-_NEAREST, min(_NEAREST, r))
    error = max(clustered_error(points, clusters) / (1 - r**2), 1 / math.sqrt(count - 3))
    half, centre = half_width(error, count), math.atanh(r)
    p = two_sided_p(centre, error, count)
    return math.tanh(centre - half), math.tanh(centre + half), p


def difference_interval(
    difference: float, points: Array, clusters: Array
) -> tuple[float, float, float]:
    """95 % interval of the difference of two r of the same points, and p of no difference.

    Args:
      difference: of the two r.
      points: difference of their `influence`; float64 [N].
      clusters: as in `pearson_interval`.

    Returns:
      Both ends and p; NaN for fewer than four clusters, or where an r is not defined.
    """
    count = int(clusters.max()) + 1
    if math.isnan(difference) or count < 4:
        return math.nan, math.nan, math.nan
    error = clustered_error(points, clusters)
    half = half_width(error, count)
    return difference - half, difference + half, two_sided_p(difference, error, count)
