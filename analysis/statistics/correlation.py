"""Correlations with their intervals: Pearson's and Spearman's."""

import math

import numpy as np
import scipy.special

from analysis.statistics import Array, ranks
from analysis.statistics.inference import (
    Estimate,
    clustered_error,
    effective_clusters,
    student,
)
from analysis.statistics.kendall import tau_of
from analysis.statistics.ranks import ranking

# --- Correlations by name; the interval of Pearson's r, clustered ---------------------------------

LEAST_CLUSTERS = 4  # Of which an interval is made.
LEAST_FOR_A_DIFFERENCE = 50  # Of which that of a difference of two r is made.
_NEAREST = 1 - 1e-12  # To 1 that r is taken to be, so that its Fisher transform is finite.


def correlations(x: Array, y: Array) -> dict[str, float]:
    """Pearson's r, Spearman's rho and Kendall's tau-b of `x` and `y` [N], by name."""
    a, b = ranking(x), ranking(y)
    return {
        "pearson": ranks.pearson(x, y),
        "spearman": ranks.pearson(a.average, b.average),
        "kendall": tau_of(a, b),
    }


def standardised(x: Array) -> Array:
    """`x` [N] with mean 0 and standard deviation 1; float64 [N], NaN where all are equal."""
    x = np.asarray(x, dtype=np.float64)
    if np.ptp(x) == 0:
        return np.full(len(x), math.nan)
    return np.asarray((x - x.mean()) / x.std())


def influence(a: Array, b: Array) -> Array:
    """What each point adds to Pearson's r of two `standardised` sides [N], times N; float64 [N]."""
    r = float(np.mean(a * b))
    return np.asarray(a * b - r / 2 * (a**2 + b**2))


def pearson_interval(r: float, points: Array, clusters: Array) -> Estimate:
    """Pearson's r with its interval and the p of r = 0; whole clusters are resampled.

    Delta method on Fisher's scale, where the error is at least that of as many unrelated normal
    pairs as there are clusters, 1 / sqrt(clusters − 3). There is none for fewer than
    `LEAST_CLUSTERS`. A difference of two r has the interval of `inference.clustered`, by the
    difference of their influence, and none for fewer than `LEAST_FOR_A_DIFFERENCE`.

    Args:
      r: Pearson's r.
      points: its `influence`; float64 [N].
      clusters: number of the cluster of each point, as in `inference`; int64 [N].
    """
    count = int(clusters.max()) + 1
    if math.isnan(r) or count < LEAST_CLUSTERS:
        return Estimate(r)
    slope = 1 - _inside(r) ** 2
    error = max(clustered_error(points, clusters, 2) / slope, 1 / math.sqrt(count - 3))
    return _on_fishers_scale(r, error, effective_clusters(clusters))


def _inside(r: float) -> float:
    return max(-_NEAREST, min(_NEAREST, r))


def _on_fishers_scale(r: float, error: float, clusters: float) -> Estimate:
    """A correlation whose `error` is that of its Fisher transform."""
    _, low, high, p = student(math.atanh(_inside(r)), error, clusters)
    return Estimate(r, math.tanh(low), math.tanh(high), p)


# --- Spearman's rank correlation with an interval and a p-value -------------------------------


def spearman_intervals(
    x: Array, others: Array, rng: np.random.Generator, draws: int
) -> list[Estimate]:
    """Spearman's rho of `x` with each of `others`, with a bootstrap interval over items, and p.

    Items are drawn with replacement, and ranked again in each draw. The interval is Student's t
    times the standard deviation of the drawn values on Fisher's scale, around rho itself, so that
    it stays inside -1 and 1; there is none for fewer than four items. `x` is [N] and `others`
    [M, N]; all intervals take the same draws of items.
    """
    size = len(x)
    values = [ranks.spearman(x, y) for y in others]
    if size < 4:
        return [Estimate(rho, p=spearman_p(rho, size)) for rho in values]
    places = [_places(side) for side in (x, *others)]
    drawn = np.empty((draws, len(values)))
    for draw in range(draws):
        counts = np.bincount(rng.integers(0, size, size), minlength=size)
        first, *rest = (_drawn_ranks(place, counts) for place in places)
        drawn[draw] = [_correlation(first, other, counts) for other in rest]
    return [_interval(value, drawn[:, at], size) for at, value in enumerate(values)]


def spearman_p(rho: float, size: int) -> float:
    """Two-sided p of Spearman's rho of `size` items against zero (Student's t, as in SciPy)."""
    if math.isnan(rho) or size < 3:
        return math.nan
    if abs(rho) >= 1:
        return 0.0
    t = rho * math.sqrt((size - 2) / (1 - rho**2))
    return float(2 * scipy.special.stdtr(size - 2, -abs(t)))


def _places(x: Array) -> Array:
    """Place of each value among the different ones, from 0; int64 [N]."""
    return np.asarray(np.unique(np.asarray(x, np.float64), return_inverse=True)[1])


def _drawn_ranks(places: Array, counts: Array) -> Array:
    """Average rank of each item [N], less the mean, where item i is drawn `counts[i]` times."""
    ties = np.bincount(places, counts)
    ends = np.cumsum(ties)
    return np.asarray((ends - (ties - 1) / 2 - (ends[-1] + 1) / 2)[places])


def _correlation(x: Array, y: Array, counts: Array) -> float:
    weighted = counts * x
    scale = math.sqrt(float(weighted @ x) * float((counts * y) @ y))
    return float(weighted @ y) / scale if scale > 0 else math.nan


def _interval(rho: float, drawn: Array, size: int) -> Estimate:
    if math.isnan(rho):
        return Estimate(rho)
    near = np.clip(drawn[~np.isnan(drawn)], -_NEAREST, _NEAREST)
    error = float(np.arctanh(near).std(ddof=1)) if len(near) > 1 else 0.0
    return _on_fishers_scale(rho, error, size)._replace(p=spearman_p(rho, size))
