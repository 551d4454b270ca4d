"""The shape of a distribution, and how far two differ."""

import math

import numpy as np
import scipy.ndimage
import scipy.special

from analysis.statistics import Array, ranks
from analysis.statistics.inference import Estimate, cluster_sums, clustered, two_sided_p
from analysis.statistics.permutation_tests import degrees_of_freedom
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


def skewness_interval(x: Array, clusters: Array) -> Estimate:
    """The skewness of `x` [N] with its interval, and the p-value of skewness 0, clustered.

    The interval is by the delta method. The p-value takes the error that the skewness has where it
    is 0 (a score test): with heavy tails the delta method finds too small an error, and 27 of 100
    samples of 20 Laplace values would be called skewed. The interval is widened to reach 0 where p
    is 0.05 or more. All NaN for one cluster, or where all values are equal. `clusters` as in
    `inference`.
    """
    x = np.asarray(x, dtype=np.float64)
    count = int(clusters.max()) + 1
    if x.min() == x.max() or count < 2:
        return Estimate(math.nan)
    z = (x - x.mean()) / x.std()
    squares = z * z
    cubes = squares * z
    skewness = float(np.mean(cubes))
    if_none = cluster_sums(cubes - 3 * z, clusters)
    p = two_sided_p(float(if_none.sum()), math.sqrt(dot(if_none, if_none)), count)
    points = cubes - skewness - 3 * z - 1.5 * skewness * (squares - 1)
    estimate = clustered(skewness, points, clusters)._replace(p=p)
    return estimate if p < 0.05 else estimate.reaching_zero()


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


# --- How far two samples differ: Cohen's d and the area under the ROC curve ----------------------

_FEWEST = 5  # Clusters on a side: with fewer, intervals miss the truth too often.


def cohens_d(x: Array, y: Array) -> float:
    """Cohen's d of `x` against `y`: difference of means over the pooled deviation (ddof 1)."""
    n, m = len(x), len(y)
    if n < 2 or m < 2:
        return math.nan
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    pooled = math.sqrt(((n - 1) * x.var(ddof=1) + (m - 1) * y.var(ddof=1)) / (n + m - 2))
    return float(x.mean() - y.mean()) / pooled if pooled > 0 else math.nan


def auc(x: Array, y: Array, x_groups: Array, y_groups: Array) -> Estimate:
    """Probability that a value of `x` exceeds one of `y`, ties counted half, in O(N log N).

    The common-language effect size with its interval and the p of 1/2, by Obuchowski's variance for
    clustered data (1997), which is DeLong's (1988) where each value is a cluster of its own, and
    Student's t with Satterthwaite's degrees of freedom. The ends and p are NaN where a side has
    fewer than five clusters, the probability where a side has no value. `x` is [N], `y` is [M], and
    their groups are any labels of clusters, each of which lies on one side.
    """
    n, m = len(x), len(y)
    sides = [np.unique(groups, return_inverse=True)[1] for groups in (x_groups, y_groups)]
    if min(n, m) == 0:
        return Estimate(math.nan)
    both = ranks.average_ranks(np.concatenate([x, y]))
    above = (both[:n] - ranks.average_ranks(x)) / m
    below = 1 - (both[n:] - ranks.average_ranks(y)) / n
    chance = float(above.mean())
    free = np.array([side.max() for side in sides])
    if free.min() + 1 < _FEWEST:
        return Estimate(chance)
    parts = np.array([_mean_variance(above, sides[0]), _mean_variance(below, sides[1])])
    error = math.sqrt(parts.sum())
    degrees = degrees_of_freedom(parts[:, None], free)[0]
    half = float(scipy.special.stdtrit(degrees, 0.975)) * error
    t = abs(chance - 0.5) / error if error > 0 else math.nan
    p = 2 * float(scipy.special.stdtr(degrees, -t))
    return Estimate(chance, chance - half, chance + half, p).within(0.0, 1.0)


def _mean_variance(x: Array, clusters: Array) -> float:
    """Variance of the mean of `x` [N], whose values are correlated inside `clusters` (0, 1, …)."""
    sums = np.bincount(clusters, x - x.mean())
    return float(sums @ sums) * len(sums) / (len(sums) - 1) / len(x) ** 2


# --- How two language models differ on the same replies ------------------------------------------


def log_ratio(log_p: Array, log_q: Array) -> Array:
    """The mixture-weighted log-ratio 1/2 (p + q) (log q - log p), element by element; float64.

    High where q gives a likely token more probability than p does, low where p does.
    *Reward Models Inherit Value Biases from Pretraining* (ICLR 2026). Natural logarithms.
    """
    log_p, log_q = np.asarray(log_p, np.float64), np.asarray(log_q, np.float64)
    return np.asarray(0.5 * (np.exp(log_p) + np.exp(log_q)) * (log_q - log_p))
