"""Errors of means whose observations come in clusters, Student's t, and q."""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import scipy.special
import scipy.stats

from analysis.statistics import Array
from analysis.statistics.ranks import dot

# --- An estimate with its interval ---------------------------------------------------------------


class Estimate(NamedTuple):
    """A number, both ends of its 95 % interval, and the p of no effect; NaN where undefined."""

    value: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan

    def within(self, least: float, most: float) -> "Estimate":
        """The same with an interval that does not go beyond what is possible."""
        return self._replace(low=max(self.low, least), high=min(self.high, most))

    def reaching_zero(self) -> "Estimate":
        """The same with an interval that is widened to hold 0."""
        return self._replace(low=min(self.low, 0.0), high=max(self.high, 0.0))


class Estimates(NamedTuple):
    """The fields of `Estimate` for several columns at once; float64 [C] each, or p alone NaN."""

    value: Array
    low: Array
    high: Array
    p: Array = np.array(math.nan)  # Without a test.


# --- Standard errors where observations come in clusters, such as the forms of one word ----------
# `clusters` is the number of the cluster of each observation, such as the stem of a token, from 0
# without gaps; int [N]. Whole clusters are taken as a random sample.


def cluster_sums(values: Array, clusters: Array) -> Array:
    """Sum of `values` [N] over each cluster; float64 [C]."""
    return np.bincount(clusters, weights=values)


def effective_clusters(clusters: Array) -> float:
    """Kish's (1965) effective number of clusters: their number where all are of one size."""
    sizes = np.bincount(clusters)
    return len(clusters) ** 2 / float(sizes @ sizes)


def clustered_error(influence: Array, clusters: Array, order: int = 1) -> float:
    """Standard error of a statistic whose influence values are `influence`; NaN for one cluster.

    Those are what each observation adds to the statistic, times N; mean 0; float64 [N]. It is the
    error of the jackknife over clusters (CR3), to first order. `order` is 1 for a mean, and 2 for a
    statistic of pairs or of squares, which loses more by a cluster that is left out.
    """
    sums = cluster_sums(influence, clusters)
    count = len(sums)
    if count < 2:
        return math.nan
    left = sums / (1 - np.bincount(clusters) / len(clusters)) ** order
    return math.sqrt((count - 1) / count * dot(left, left)) / len(influence)


def half_width(error: float, clusters: float, tests: int = 1) -> float:
    """Half the width of a 95 % interval: Student's t with `clusters` − 1 degrees, times `error`.

    `clusters` is their effective number; NaN for fewer than two. `tests` is the number of intervals
    that hold together with 95 % (Bonferroni).
    """
    if clusters < 2:
        return math.nan
    return _quantile(1 - 0.025 / tests, clusters - 1) * error


@functools.cache
def _quantile(probability: float, degrees: float) -> float:
    """Of Student's t; SciPy takes as long for one as a correlation of 50,000 pairs does."""
    return float(scipy.stats.t.ppf(probability, degrees))


def two_sided_p(estimate: float, error: float, clusters: float) -> float:
    """P-value of `estimate` being 0, by Student's t with `clusters` − 1 degrees.

    NaN without a standard error above 0.
    """
    if clusters < 2 or not error > 0:
        return math.nan
    # `scipy.stats.t.sf` calls this too, after fifty times as long.
    return 2 * float(scipy.special.stdtr(clusters - 1, -abs(estimate) / error))


def student(value: float, error: float, clusters: float) -> Estimate:
    """`value` with the interval of `half_width` and the p of `two_sided_p`."""
    half = half_width(error, clusters)
    return Estimate(value, value - half, value + half, two_sided_p(value, error, clusters))


def clustered(
    value: float, influence: Array, clusters: Array, least: int = 2, order: int = 1
) -> Estimate:
    """A statistic with the interval and p of its `clustered_error`.

    For fewer than `least` clusters, or fewer than two effective ones, there is neither.
    """
    if int(clusters.max()) + 1 < least:
        return Estimate(value)
    error = clustered_error(influence, clusters, order)
    return student(value, error, effective_clusters(clusters))


def detectable(estimate: Estimate, clusters: Array, power: float = 0.8) -> float:
    """The size of an effect that would have p < .05 with probability `power`.

    That is, with the error of an estimate that `clustered` returned; NaN where it has none.
    """
    degrees = effective_clusters(clusters) - 1
    if not degrees >= 1:
        return math.nan
    within = _quantile(0.975, degrees)
    return (estimate.high - estimate.low) / 2 * (1 + _quantile(power, degrees) / within)


def clustered_share(hit: Array, clusters: Array, tests: int = 1) -> Estimate:
    """Share of `hit` (bool [N]) with its interval, without p; `tests` as of `half_width`.

    Wilson's interval of the effective number of draws, with Student's t; see `clustered_draws`.
    """
    share = float(hit.mean())
    square = half_width(1.0, effective_clusters(clusters), tests) ** 2
    return wilson(share, square / clustered_draws(hit, clusters))


def paired_difference(first: Array, second: Array, clusters: Array) -> Estimate:
    """The share of `first` less that of `second` (bool [N]) with its interval, without p.

    The interval of Bonett and Price (2012) for paired shares, with the draws of `clustered_draws`
    and Student's t; it is never of width 0.
    """
    apart = first.astype(np.float64) - second
    draws = clustered_draws(apart, clusters)
    more, less = (
        (float(np.mean(alone)) * draws + 1) / (draws + 2) for alone in (apart > 0, apart < 0)
    )
    error = math.sqrt((more + less - (more - less) ** 2) / (draws + 2))
    half = half_width(error, effective_clusters(clusters))
    middle = more - less
    return Estimate(float(apart.mean()), middle - half, middle + half).within(-1.0, 1.0)


def sign_test(x: Array, clusters: Array) -> float:
    """Exact two-sided p that sums of `x` [N] over clusters are as often above 0 as below.

    Sums of 0 say nothing; 1 where all are.
    """
    signs = np.sign(cluster_sums(x, clusters))
    fewer = min(int((signs > 0).sum()), int((signs < 0).sum()))
    count = int((signs != 0).sum())
    return min(1.0, 2 * float(scipy.special.bdtr(fewer, count, 0.5))) if count else 1.0


def clustered_draws(x: Array, clusters: Array) -> float:
    """How many independent draws give the mean of `x` [N] its clustered error; N at most.

    Only clusters with a value that is not the commonest one show how alike the values of a cluster
    are; where two are as common, the fewer clusters, so that a share of 1/2 and its complement have
    one answer. Values that are equal inside each cluster, which have the effective number of
    clusters as draws, count as half such a cluster more (as Jeffreys' prior does for shares), and
    alone where all values are equal.
    """
    values, counts = np.unique(x, return_counts=True)
    commonest = values[counts == counts.max()]
    one_or_two = commonest if len(commonest) == 2 else commonest[:1]
    telling = min(len(np.unique(clusters[x != value])) for value in one_or_two)
    error = clustered_error(x - x.mean(), clusters)
    inverse = max(error**2 / float(x.var()), 1 / len(x)) if telling else 0.0
    return (telling + 0.5) / (telling * inverse + 0.5 / effective_clusters(clusters))


def wilson(share: float, square: float) -> Estimate:
    """Wilson's interval (1927) of a share, which is never of width 0, without p.

    `square` is the squared quantile over the number of draws; where it is NaN, so are the ends.
    """
    if math.isnan(square):
        return Estimate(share)
    centre = (share + square / 2) / (1 + square)
    half = math.sqrt(square * (share * (1 - share) + square / 4)) / (1 + square)
    # At 0 and 1 an end is the share itself, but for rounding.
    low, high = min(share, centre - half), max(share, centre + half)
    return Estimate(share, max(0.0, low), min(1.0, high))


# --- Correction for many tests: the false discovery rate -----------------------------------------


def with_q(
    table: pl.DataFrame, within: Sequence[str] = (), p: str = "p", q: str = "q"
) -> pl.DataFrame:
    """`table`, one row per test, with a column `q` right behind its column of p-values, `p`.

    NaN and null give NaN. `within` names the columns that say the family of a test; by default all
    rows are one family.
    """
    numbers = pl.col(p).cast(pl.Float64).fill_null(np.nan)
    corrected = numbers.map_batches(_step_up, return_dtype=pl.Float64).alias(q)
    family = corrected.over(*within) if within else corrected
    at = table.columns.index(p) + 1
    return table.select(*table.columns[:at], family, *table.columns[at:])


def _step_up(p: pl.Series) -> pl.Series:
    """Q of each p-value of one family (Benjamini & Hochberg 1995); NaN stays NaN."""
    q, tested = p.to_numpy(writable=True), ~np.isnan(p.to_numpy())
    if tested.any():
        q[tested] = scipy.stats.false_discovery_control(q[tested])
    return pl.Series(q)
