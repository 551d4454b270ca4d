"""The shape of a distribution: moments and a kernel density."""

import math

import numpy as np
import scipy.ndimage

from analysis.statistics import Array
from analysis.statistics.clustered import (
    cluster_sums,
    clustered_error,
    half_width,
    two_sided_p,
)
from analysis.statistics.products import dot

_BINS = 1024
_POINTS = 256  # At which the density is given.


def moments(x: Array) -> dict[str, float]:
    """Moments of `x` [N >= 1], computed in float64.

    Returns:
      n, mean, variance (ddof 0), skewness (biased: m3 / m2^1.5), kurtosis (excess and biased:
      m4 / m2^2 - 3, so 0 for a normal distribution), min, max, distinct_rewards (different
      values). Skewness and kurtosis are NaN where all values are equal. These are the definitions
      of the paper's Table 3 (`scipy.stats.skew` and `kurtosis` with their defaults).
    """
    x = np.asarray(x, dtype=np.float64)
    centred = x - x.mean()
    squares = centred * centred  # NumPy takes 30 times as long for a power of 3 or 4.
    m2 = float(np.mean(squares))
    flat = bool(x.min() == x.max())
    return {
        "n": len(x),
        "mean": float(x.mean()),
        "variance": 0.0 if flat else m2,
        "skewness": math.nan if flat else float(np.mean(squares * centred)) / m2**1.5,
        "kurtosis": math.nan if flat else float(np.mean(squares * squares)) / m2**2 - 3.0,
        "min": float(x.min()),
        "max": float(x.max()),
        "distinct_rewards": len(np.unique(x)),
    }


def skewness_interval(x: Array, clusters: Array) -> tuple[float, float, float]:
    """95 % interval of the skewness of `x` [N], and the p-value of skewness 0, clustered.

    The interval is by the delta method. The p-value takes the error that the skewness has where it
    is 0 (a score test): with heavy tails the delta method finds too small an error, and 27 of 100
    samples of 20 Laplace values would be called skewed. The interval is widened to reach 0 where p
    is 0.05 or more.

    Args:
      x: the values.
      clusters: number of the cluster of each value, such as the stem of a token, from 0 without
        gaps; int64 [N].

    Returns:
      Both ends and p; NaN for one cluster, or where all values are equal.
    """
    x = np.asarray(x, dtype=np.float64)
    count = int(clusters.max()) + 1
    if x.min() == x.max() or count < 2:
        return math.nan, math.nan, math.nan
    z = (x - x.mean()) / x.std()
    squares = z * z
    cubes = squares * z
    skewness = float(np.mean(cubes))
    if_none = cluster_sums(cubes - 3 * z, clusters)
    p = two_sided_p(float(if_none.sum()), math.sqrt(dot(if_none, if_none)), count)
    points = cubes - skewness - 3 * z - 1.5 * skewness * (squares - 1)
    half = half_width(clustered_error(points, clusters), count)
    low, high = skewness - half, skewness + half
    return (low, high, p) if p < 0.05 else (min(low, 0.0), max(high, 0.0), p)


def density(x: Array) -> tuple[Array, Array]:
    """Gaussian kernel density of `x` [N >= 1], between its lowest and highest value.

    Scott's bandwidth, as `scipy.stats.gaussian_kde` takes it, but on binned values: O(N).

    Returns:
      256 values and the density at each, per unit of `x`. Where all values are equal, that one
      value with density 1.
    """
    x = np.asarray(x, dtype=np.float64)
    low, high = float(x.min()), float(x.max())
    step = (high - low) / (_BINS - 1)
    if step == 0 or not low < low + step:
        return np.array([low]), np.array([1.0])
    width = float(x.std(ddof=1)) * len(x) ** -0.2
    edges = low + step * (np.arange(_BINS + 1) - 0.5)
    counts, _ = np.histogram(x, bins=edges)
    smooth = scipy.ndimage.gaussian_filter1d(
        counts / (len(x) * step), width / step, mode="constant", truncate=6.0
    )
    grid = np.linspace(low, high, _POINTS)
    return grid, np.interp(grid, low + step * np.arange(_BINS), smooth)
