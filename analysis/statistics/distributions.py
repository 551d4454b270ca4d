"""The shape of a distribution, and how two language models differ on the same replies."""

import math

import numpy as np
import scipy.ndimage
import scipy.special

from analysis.statistics import Array
from analysis.statistics.inference import (
    cluster_sums,
    two_sided_p,
)
from analysis.statistics.ranks import dot

# --- The shape of a distribution: moments and a kernel density -----------------------------------

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


def skewness_p(x: Array, clusters: Array) -> float:
    """The p-value of skewness 0 of `x` [N], clustered; `clusters` as in `inference`.

    It takes the error that the skewness has where it is 0 (a score test): with heavy tails the
    delta method finds too small an error, and 27 of 100 samples of 20 Laplace values would be
    called skewed. There is no interval, because a sample does not show its own tail: of 1,000
    exponential values, 83 of 100 intervals of the delta method hold the skewness. NaN for one
    cluster, or where all values are equal.
    """
    x = np.asarray(x, dtype=np.float64)
    if x.min() == x.max():
        return math.nan
    z = (x - x.mean()) / x.std()
    if_none = cluster_sums(z * z * z - 3 * z, clusters)
    return two_sided_p(float(if_none.sum()), math.sqrt(dot(if_none, if_none)), len(if_none))


def density(x: Array) -> tuple[Array, Array]:
    """256 values from the lowest to the highest of `x` [N >= 1], and its density at each.

    Gaussian kernels of Scott's bandwidth, as `scipy.stats.gaussian_kde` takes them, but on binned
    values: O(N). Per unit of `x`. Where all values are equal, that one value with density 1.
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


# --- How two language models differ on the same replies ------------------------------------------


def log_ratio(log_p: Array, log_q: Array) -> Array:
    """The mixture-weighted log-ratio 1/2 (p + q) (log q - log p), element by element; float64.

    High where q gives a likely token more probability than p does, low where p does.
    *Reward Models Inherit Value Biases from Pretraining* (ICLR 2026). Natural logarithms.
    """
    log_p, log_q = np.asarray(log_p, np.float64), np.asarray(log_q, np.float64)
    return np.asarray(0.5 * (np.exp(log_p) + np.exp(log_q)) * (log_q - log_p))
