"""Errors of means whose observations come in clusters, Student's t, the bootstrap, and q."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import polars as pl
import scipy.special
import scipy.stats

from analysis.statistics import Array
from analysis.statistics.ranks import dot

# --- Standard errors where observations come in clusters, such as the forms of one word ----------


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
    """P-value of `estimate` being 0, by Student's t with `clusters` − 1 degrees.

    NaN without a standard error above 0.
    """
    if clusters < 2 or not error > 0:
        return math.nan
    # `scipy.stats.t.sf` calls this too, after fifty times as long.
    return 2 * float(scipy.special.stdtr(clusters - 1, -abs(estimate) / error))


def clustered_share(hit: Array, clusters: Array, tests: int = 1) -> tuple[float, float, float]:
    """Share of `hit` [N], and its 95 % interval; whole clusters are resampled.

    Wilson's interval (1927) with Student's t, so that shares of 0 and 1 have one too. Its number of
    draws is that of the clusters, or as many as have the clustered error where they are fewer.

    Args:
      hit: whether each observation counts; bool [N].
      clusters: number of the cluster of each, from 0 without gaps; int [N].
      tests: as of `half_width`.
    """
    share, count = float(hit.mean()), int(clusters.max()) + 1
    if count < 2:
        return share, math.nan, math.nan
    variance, error = share * (1 - share), clustered_error(hit - share, clusters)
    draws = min(count, variance / error**2) if error > 0 else count
    square = half_width(1.0, count, tests) ** 2 / draws
    centre = (share + square / 2) / (1 + square)
    half = math.sqrt(square * (variance + square / 4)) / (1 + square)
    # At 0 and 1 an end is the share itself, but for rounding.
    return share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


# --- The mean of a few numbers, such as one per model, with its interval and its test ------------


def t_test(values: Array) -> tuple[float, float, float, float]:
    """Mean of `values` [M], its 95 % t interval, and p (two-sided) of a mean of 0.

    All but the mean are NaN for one value, and p also where the values are equal.
    """
    mean = float(values.mean())
    if len(values) < 2:
        return mean, math.nan, math.nan, math.nan
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    half = half_width(error, len(values))
    return mean, mean - half, mean + half, two_sided_p(mean, error, len(values))


# --- Bootstrap intervals -------------------------------------------------------------------------


def bootstrap_means(
    values: Array, units: Array, rng: np.random.Generator, draws: int
) -> tuple[Array, Array]:
    """95 % bootstrap intervals of the mean of each column; NaN for fewer than two units.

    Units are drawn with all their rows. The interval is Student's t times the bootstrap standard
    error, corrected by sqrt(U / (U-1)) for U units (Hesterberg 2015, "What teachers should know
    about the bootstrap", 3.1 and 4.2): percentile intervals of six values hold the mean in 85 of
    100 draws, this one in 95.

    Args:
      values: float64 [N, C]; the same draws serve all columns.
      units: any label [N]; rows of one label are drawn together.
      rng: draws the units.
      draws: number of draws.

    Returns:
      The lower and the upper ends, float64 [C] each.
    """
    names, unit = np.unique(units, return_inverse=True)
    count = len(names)
    if count < 2:
        return np.full(values.shape[1], math.nan), np.full(values.shape[1], math.nan)
    times = rng.multinomial(count, np.full(count, 1 / count), size=draws)[:, unit].astype(
        np.float64
    )
    means = (times / times.sum(axis=1, keepdims=True)) @ values
    error = means.std(axis=0, ddof=1) * math.sqrt(count / (count - 1))
    half = half_width(1.0, count) * error
    return values.mean(axis=0) - half, values.mean(axis=0) + half


# --- Correction for many tests: the false discovery rate -----------------------------------------


def with_q(
    table: pl.DataFrame, within: Sequence[str] = (), p: str = "p", q: str = "q"
) -> pl.DataFrame:
    """`table` with a column `q` right behind its column `p`.

    Args:
      table: one row per test; the column `p` may hold NaN or null, which stay NaN.
      within: columns that name the family of a test; by default all rows are one family.
      p: name of the column of p-values.
      q: name of the new column.
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
