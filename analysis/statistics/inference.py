"""Errors of means whose observations come in clusters, Student's t, the bootstrap, and q."""

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


def clustered_error(influence: Array, clusters: Array) -> float:
    """Standard error of a statistic whose influence values are `influence`; NaN for one cluster.

    Those are what each observation adds to the statistic, times N; mean 0; float64 [N]. The delta
    method: to first order, the standard deviation that a bootstrap over clusters finds.
    """
    sums = cluster_sums(influence, clusters)
    count = len(sums)
    if count < 2:
        return math.nan
    return math.sqrt(count / (count - 1) * dot(sums, sums)) / len(influence)


def half_width(error: float, clusters: int, tests: int = 1) -> float:
    """Half the width of a 95 % interval: Student's t with `clusters` − 1 degrees, times `error`.

    `tests` is the number of intervals that hold together with 95 % (Bonferroni).
    """
    if clusters < 2:
        return math.nan
    return _quantile(1 - 0.025 / tests, clusters - 1) * error


@functools.cache
def _quantile(probability: float, degrees: int) -> float:
    """Of Student's t; SciPy takes as long for one as a correlation of 50,000 pairs does."""
    return float(scipy.stats.t.ppf(probability, degrees))


def two_sided_p(estimate: float, error: float, clusters: int) -> float:
    """P-value of `estimate` being 0, by Student's t with `clusters` − 1 degrees.

    NaN without a standard error above 0.
    """
    if clusters < 2 or not error > 0:
        return math.nan
    # `scipy.stats.t.sf` calls this too, after fifty times as long.
    return 2 * float(scipy.special.stdtr(clusters - 1, -abs(estimate) / error))


def student(value: float, error: float, clusters: int) -> Estimate:
    """`value` with the interval of `half_width` and the p of `two_sided_p`."""
    half = half_width(error, clusters)
    return Estimate(value, value - half, value + half, two_sided_p(value, error, clusters))


def clustered(value: float, influence: Array, clusters: Array, least: int = 2) -> Estimate:
    """A statistic with the interval and p of its `clustered_error`.

    For fewer than `least` clusters there is neither.
    """
    count = int(clusters.max()) + 1
    if count < least:
        return Estimate(value)
    return student(value, clustered_error(influence, clusters), count)


def clustered_share(hit: Array, clusters: Array, tests: int = 1) -> Estimate:
    """Share of `hit` (bool [N]) with its interval, without p; `tests` as of `half_width`.

    Wilson's interval (1927) with Student's t, so that shares of 0 and 1 have one too. Its number of
    draws is that of the clusters, or as many as have the clustered error where they are fewer.
    """
    share, count = float(hit.mean()), int(clusters.max()) + 1
    if count < 2:
        return Estimate(share)
    variance, error = share * (1 - share), clustered_error(hit - share, clusters)
    draws = min(count, variance / error**2) if error > 0 else count
    square = half_width(1.0, count, tests) ** 2 / draws
    centre = (share + square / 2) / (1 + square)
    half = math.sqrt(square * (variance + square / 4)) / (1 + square)
    # At 0 and 1 an end is the share itself, but for rounding.
    low, high = min(share, centre - half), max(share, centre + half)
    return Estimate(share, max(0.0, low), min(1.0, high))


# --- The mean of a few numbers, such as one per model, with its interval and its test ------------


def t_test(values: Array) -> Estimate:
    """Mean of `values` [M], its t interval, and p (two-sided) of a mean of 0.

    All but the mean are NaN for one value, and p also where the values are equal.
    """
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean)
    return student(mean, float(values.std(ddof=1)) / math.sqrt(len(values)), len(values))


# --- The median ----------------------------------------------------------------------------------


def median_interval(x: Array) -> Estimate:
    """The median of `x` [N] with an interval that holds it in at least 95 % of samples, without p.

    Both ends are values of the sample, chosen by the binomial distribution, so that nothing is
    assumed of the shape. They are NaN for fewer than six values: their extremes hold it less often.
    """
    median = float(np.median(x))
    if len(x) < 6:
        return Estimate(median)
    test = scipy.stats.quantile_test(np.asarray(x, np.float64), p=0.5)
    low, high = test.confidence_interval(0.95)
    return Estimate(median, float(low), float(high))


# --- Bootstrap intervals -------------------------------------------------------------------------


def bootstrap_means(values: Array, units: Array, rng: np.random.Generator, draws: int) -> Estimates:
    """The mean of each column with a bootstrap interval; ends are NaN for fewer than two units.

    Units are drawn with all their rows. The interval is Student's t times the bootstrap standard
    error, corrected by sqrt(U / (U-1)) for U units (Hesterberg 2015, "What teachers should know
    about the bootstrap", 3.1 and 4.2): percentile intervals of six values hold the mean in 85 of
    100 cases, this one in 95. `values` are float64 [N, C]; the same draws serve all columns. Rows
    of one label of `units` [N] are drawn together.
    """
    names, unit = np.unique(units, return_inverse=True)
    count, mean = len(names), values.mean(axis=0)
    if count < 2:
        return Estimates(mean, *np.full((2, len(mean)), math.nan))
    times = rng.multinomial(count, np.full(count, 1 / count), size=draws)[:, unit].astype(float)
    means = (times / times.sum(axis=1, keepdims=True)) @ values
    error = means.std(axis=0, ddof=1) * math.sqrt(count / (count - 1))
    half = half_width(1.0, count) * error
    return Estimates(mean, mean - half, mean + half)


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
