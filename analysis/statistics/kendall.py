"""Kendall's tau-b of two columns and of many, and the pairs that it counts.

Of many things each column is sorted once, and each pair of columns counted in O(N log N). Of few
things all pairs of things are compared at once.
"""

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.stats
from scipy.stats._stats import _kendall_dis

from analysis.statistics import Array
from analysis.statistics.inference import (
    Estimate,
    clustered_error,
    effective_clusters,
    half_width,
)
from analysis.statistics.ranks import Ranking, pairs_of_equals, ranking

_SMALL = 1_000  # Things up to which every pair of them is compared at once.
_BLOCK = 4_000_000  # Comparisons held in memory.


def tau_b(x: Array, y: Array) -> float:
    """Kendall's tau-b of `x` and `y` [N], ties corrected, in O(N log N).

    NaN where it is not defined: fewer than two values, a NaN, or all values of one side equal.
    """
    return tau_of(ranking(x), ranking(y))


def tau_b_matrix(columns: Sequence[Array] | Array) -> Array:
    """`tau_b` of every two columns [N] of the same things; float64 [K, K].

    The diagonal is NaN where a column has no tau.
    """
    return tau_matrix([ranking(x) for x in columns])


def tau_matrix(columns: Sequence[Ranking]) -> Array:
    """`tau_b_matrix` of columns that were sorted already."""
    if len(columns) and len(columns[0].ranks) <= _SMALL:
        return _of_few(np.array([column.ranks for column in columns], dtype=np.float32))
    matrix = np.full((len(columns), len(columns)), math.nan)

    def fill(row: int) -> None:
        for column in range(row + 1):
            value = tau_of(columns[row], columns[column])
            matrix[row, column] = matrix[column, row] = value

    # The count releases the interpreter. The longest rows go first, so that no thread is left over.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(fill, reversed(range(len(columns)))))
    return matrix


def dense_rows(x: Array) -> Array:
    """Ranks of each row of `x` [K, N], ties equal and no gaps, float32; 0 in a row with a NaN."""
    dense = scipy.stats.rankdata(x, method="dense", axis=1).astype(np.float32)
    return np.where(np.isnan(x).any(axis=1, keepdims=True), np.float32(0), dense)


def signs(x: Array) -> Iterator[tuple[slice, Array]]:
    """Sign of the difference of every two things in each row of `x`, a block of things at a time.

    `x` is float32 [K, N], as `dense_rows` returns it. Yields a slice of the things, and float32
    [K, that many, N].
    """
    count, size = x.shape
    step = max(1, _BLOCK // max(count * size, 1))
    for start in range(0, size, step):
        at = slice(start, min(start + step, size))
        yield at, np.sign(x[:, at, None] - x[:, None, :])


def tau_of(a: Ranking, b: Ranking) -> float:
    """`tau_b` of two columns that were sorted already."""
    size = len(a.ranks)
    pairs = size * (size - 1) // 2
    if size < 2 or pairs in (a.ties, b.ties):
        return math.nan
    ranks_by_a = b.ranks[a.order].astype(np.int64)
    discordant = 0 if a is b else int(_kendall_dis(a.ascending, ranks_by_a))
    difference = pairs - a.ties - b.ties + _common_ties(a, b) - 2 * discordant
    tau = difference / math.sqrt(pairs - a.ties) / math.sqrt(pairs - b.ties)
    return max(-1.0, min(1.0, tau))


def _of_few(x: Array) -> Array:
    """`tau_b_matrix` of few things, of the ranks `x` [K, N] without gaps, float32."""
    count = len(x)
    products = np.zeros((count, count))
    for _, block in signs(x):
        flat = block.reshape(count, -1)
        products += flat @ flat.T
    untied = np.diag(products)
    scale = np.divide(1, np.sqrt(untied), out=np.full(count, math.nan), where=untied > 0)
    taus: Array = np.clip(products * scale[:, None] * scale[None, :], -1.0, 1.0)
    np.fill_diagonal(taus, np.where(untied > 0, 1.0, math.nan))
    return taus


def _common_ties(a: Ranking, b: Ranking) -> int:
    """Pairs whose values are equal on both sides."""
    if a is b:
        return a.ties
    places = min(a.tied, b.tied, key=len)
    joint = a.ranks[places].astype(np.int64) * (len(b.ranks) + 1) + b.ranks[places]
    return pairs_of_equals(np.unique(joint, return_counts=True)[1])


# --- Intervals of Kendall's tau-b: of two orders, and of weighted sums over many orders ----------
# Tau is a mean over pairs of things. Its interval takes the things (or clusters of them) as a
# random sample (Hoeffding 1948: the variance of such a mean is four times that of its projection on
# single things, over their number). The models and prompts that give the orders are fixed.

FEWEST = 10  # Things of which a claim is made: of fewer, many orders agree by luck.
_BINS = 128


@dataclasses.dataclass(frozen=True)
class Order:
    """The order of one model's values, prepared once for all pairs.

    Attributes:
      ranking: the values, sorted.
      bins: place in that order, in 128 bins of equal size; each value has its own bin where N is
        128 or less; int64 [N].
      apart: share of the values in other bins than each one; float64 [N].
      spread: what the bins contribute to the error of unrelated orders.
    """

    ranking: Ranking
    bins: Array
    apart: Array
    spread: float

    @classmethod
    def of(cls, x: Array | Ranking) -> "Order":
        """The order of `x` [N >= 1]: values, or their ranking."""
        ordered = x if isinstance(x, Ranking) else ranking(x)
        equal, size = ordered.counts, len(ordered.ranks)
        percentiles = (np.cumsum(equal) - equal / 2) / size
        bins = (percentiles * _BINS).astype(np.int64)[ordered.ranks]
        counts = np.bincount(bins, minlength=_BINS)
        net = _net_below(counts, 0) / size
        within = 1 - float((counts * counts).sum()) / size**2
        spread = float((counts * net**2).sum()) / size / within if within else math.nan
        return cls(ordered, bins, 1 - counts[bins] / size, spread)


def pair_interval(x: Order, y: Order, clusters: Array, tau: float, tests: int) -> Estimate:
    """Tau-b of two orders with its interval, without p; whole clusters are resampled.

    The interval is widened to reach 0 where two unrelated orders of as many clusters could give
    `tau`, their tau-b: a few things that all agree have an error of 0 by the delta method. The ends
    are NaN for fewer than two effective clusters, or where an order is constant. `clusters` and
    `tests` as in `inference`.
    """
    count = effective_clusters(clusters)
    half = half_width(clustered_error(pair_influence(x, y), clusters, 2), count, tests)
    if math.isnan(half):
        return Estimate(tau)
    estimate = Estimate(tau, tau - half, tau + half).within(-1.0, 1.0)
    unrelated = half_width(unrelated_error(count, x.spread * y.spread), count, tests)
    return estimate.reaching_zero() if abs(tau) <= unrelated else estimate


def pair_influence(x: Order, y: Order) -> Array:
    """What each of N things adds to tau-b, times N; float64 [N], NaN where an order is constant.

    Delta method: tau-b is a function of three means over pairs, and a thing contributes to each
    what it has with all the others. That is counted in bins, which is exact up to 128 values.
    """
    cell = x.bins * _BINS + y.bins
    cells = np.bincount(cell, minlength=_BINS * _BINS)
    net = _net_below(_net_below(cells.reshape(_BINS, _BINS), 0), 1)
    agreement = net.ravel()[cell] / len(cell)
    mean_x, mean_y = float(x.apart.mean()), float(y.apart.mean())
    if mean_x == 0 or mean_y == 0:
        return np.full(len(cell), math.nan)
    scale = math.sqrt(mean_x * mean_y)
    tau = float(agreement.mean()) / scale
    ties = x.apart / mean_x + y.apart / mean_y
    return np.asarray(2 * agreement / scale - tau * ties)


def contributions(x: Array, weights: Array) -> Array:
    """What each thing contributes to weighted sums of the tau-b of the rows of `x`.

    The contributions to a mean of such sums are the means of their contributions.

    Args:
      x: orders [K, N], of so few things (1,000) that all pairs can be compared. Of more things,
        a random sample serves an interval.
      weights: symmetric float64 [C, K, K], one sum each; a row without an order has weight 0.

    Returns:
      float64 [C, N]; they add up to the sum of weights · tau over all ordered pairs of rows, and
      N times one of them, less the sum, is the influence of the thing (ties included).
    """
    x = dense_rows(x)
    untied = np.zeros(x.shape)
    for at, block in signs(x):
        untied[:, at] = np.abs(block).sum(axis=2)
    totals = untied.sum(axis=1, keepdims=True)
    scale = np.divide(1, np.sqrt(totals), out=np.zeros((len(x), 1)), where=totals > 0)
    scaled = (weights * scale * scale.T).astype(np.float32)
    sums = np.zeros((len(weights), x.shape[1]))
    rows = np.zeros((len(weights), len(x)))  # Sum of each row of weights · tau.
    for at, block in signs(x):
        flat = block.reshape(len(x), -1)
        for c, weight in enumerate(scaled):
            product = (weight @ flat) * flat
            rows[c] += product.sum(axis=1, dtype=np.float64)
            of_block = product.sum(axis=0).reshape(block.shape[1:])
            sums[c, at] = of_block.sum(axis=1, dtype=np.float64)
    ties = np.divide(untied, totals, out=np.zeros(x.shape), where=totals > 0)
    each_thing: Array = sums - rows @ (ties - ties.mean(axis=1, keepdims=True))
    return each_thing


def sum_interval(shares: Array, value: float, count: int) -> Estimate:
    """A weighted sum of tau with its interval, without p; the things are a random sample.

    The interval is widened to reach 0 where two unrelated orders of as many things could give
    `value`, the sum over all `count` things: a few that all agree have an error of 0. `shares` are
    `contributions` to the sum [n], of all things or of a random sample; the ends are NaN for n < 3.
    """
    n = len(shares)
    if n < 3:
        return Estimate(value)
    jackknife = (count - 1) / (count - 2)  # over the delta method
    half = half_width(2 * n * float(shares.std(ddof=1)) * jackknife / math.sqrt(count), n)
    estimate = Estimate(value, value - half, value + half)
    unrelated = float(scipy.stats.norm.ppf(0.975)) * unrelated_error(count)
    return estimate.reaching_zero() if abs(value) <= unrelated else estimate


def unrelated_error(count: float, spread: float = 1 / 9) -> float:
    """Standard error of the tau of two unrelated orders of `count` things.

    Without ties, where `spread` is 1/9, it is Kendall's sqrt(2 (2 n + 5) / (9 n (n − 1))). A mean
    over several pairs of unrelated orders has a smaller error; this one is on the safe side. With
    ties, `spread` is the product of the `Order.spread` of both.
    """
    return math.sqrt(4 * spread * (count + 2.5) / (count * (count - 1)))


def _net_below(counts: Array, axis: int) -> Array:
    """For each bin along `axis`, the count below it less the count above it."""
    upto = counts.cumsum(axis=axis)
    total = np.take(upto, [-1], axis=axis)
    return np.asarray(2 * upto - counts - total)
