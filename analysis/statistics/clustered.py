"""Standard errors where observations come in clusters, such as the forms of one word."""

import functools
import math

import numpy as np
import scipy.special
import scipy.stats

from analysis.statistics import Array
from analysis.statistics.products import dot


def cluster_sums(values: Array, clusters: Array) -> Array:
    """Sum of `values` [N] over each cluster; float64 [C].

    Args:
      values: float64 [N].
      clusters: number of the cluster of each value, from 0 without gaps; int [N].
    """
    return np.bincount(clusters, weights=values)


def clustered_error(influence: Array, clusters: Array) -> float:
    """Standard error of a statistic whose influence values are `influence`; NaN for one cluster.

    The delta method with clusters resampled as wholes: to first order, the standard deviation that
    a bootstrap over clusters finds.

    Args:
      influence: what each observation adds to the statistic, times N; mean 0; float64 [N].
      clusters: number of the cluster of each observation, from 0 without gaps; int [N].
    """
    sums = cluster_sums(influence, clusters)
    count = len(sums)
    if count < 2:
        return math.nan
    return math.sqrt(count / (count - 1) * dot(sums, sums)) / len(influence)


def half_width(error: float, clusters: int, tests: int = 1) -> float:
    """Half the width of a 95 % interval: Student's t with `clusters` − 1 degrees, times `error`.

    Args:
      error: standard error.
      clusters: number of clusters it rests on.
      tests: number of intervals that hold together with 95 % (Bonferroni).
    """
    if clusters < 2:
        return math.nan
    return _quantile(1 - 0.025 / tests, clusters - 1) * error


@functools.cache
def _quantile(probability: float, degrees: int) -> float:
    """Of Student's t; SciPy takes as long for one as a correlation of 50,000 pairs does."""
    return float(scipy.stats.t.ppf(probability, degrees))


def two_sided_p(estimate: float, error: float, clusters: int) -> float:
    """P-value of `estimate` being 0, by Student's t; NaN without a standard error above 0."""
    if clusters < 2 or not error > 0:
        return math.nan
    # `scipy.stats.t.sf` calls this too, after fifty times as long.
    return 2 * float(scipy.special.stdtr(clusters - 1, -abs(estimate) / error))
