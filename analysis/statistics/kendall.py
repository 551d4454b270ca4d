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

# What `scipy.stats.kendalltau` counts discordant pairs with. It sorts both sides of each pair anew,
# which takes five times as long as the count.
from scipy.stats._stats import _kendall_dis

from analysis.statistics import Array, ranks

_SMALL = 1_000  # Things up to which every pair of them is compared at once.
_BLOCK = 4_000_000  # Comparisons held in memory.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranking:
    """One column, sorted.

    Attributes:
      ranks: rank of each value from 1, ties equal and no gaps; int64 [N].
      order: places of the values by rank; int64 [N].
      ascending: `ranks` in that order; int64 [N].
      tied: places of the values that occur more than once; int64 [<= N].
      ties: pairs of equal values.
    """

    ranks: Array
    order: Array
    ascending: Array
    tied: Array
    ties: int


def ranking(x: Array) -> Ranking:
    """`x` [N], sorted once for any number of pairs; all equal where a value is NaN."""
    if np.isnan(x).any():
        x = np.zeros(len(x))
    order = np.argsort(x)
    values = x[order]
    ascending = np.ones(len(x), dtype=np.int64)
    ascending[1:] += np.cumsum(values[1:] != values[:-1])
    places = np.empty_like(ascending)
    places[order] = ascending
    counts = np.bincount(ascending)
    tied = order[counts[ascending] > 1]
    ties = _pairs_of_equals(counts)
    return Ranking(ranks=places, order=order, ascending=ascending, tied=tied, ties=ties)


def tau_b(x: Array, y: Array) -> float:
    """Kendall's tau-b of `x` and `y` [N], ties corrected, in O(N log N).

    NaN where it is not defined: fewer than two values, a NaN, or all values of one side equal.
    """
    return tau_of(ranking(x), ranking(y))


def tau_b_matrix(columns: Sequence[Array] | Array) -> Array:
    """`tau_b` of every two columns [N] of the same things; float64 [K, K].

    The diagonal is NaN where a column has no tau.
    """
    if len(columns) and len(columns[0]) <= _SMALL:
        return _of_few(np.asarray(columns))
    sorted_once = [ranking(x) for x in columns]
    matrix = np.full((len(columns), len(columns)), math.nan)

    def fill(row: int) -> None:
        for column in range(row + 1):
            value = tau_of(sorted_once[row], sorted_once[column])
            matrix[row, column] = matrix[column, row] = value

    # The count releases the interpreter. The longest rows go first, so that no thread is left over.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(fill, reversed(range(len(columns)))))
    return matrix


def concordant_shares(a: Ranking, b: Ranking, tau: float) -> tuple[float, float]:
    """Shares of the pairs of things that both put in the same, and in the opposite order.

    The rest are pairs that one of the two ties.

    Args:
      a: one order of N >= 2 things.
      b: the other one.
      tau: tau-b of the two.
    """
    size = len(a.ranks)
    pairs = size * (size - 1) / 2
    net = tau * math.sqrt((pairs - a.ties) * (pairs - b.ties))
    untied = pairs - a.ties - b.ties + _common_ties(a, b)
    return (untied + net) / (2 * pairs), (untied - net) / (2 * pairs)


def dense_rows(x: Array) -> Array:
    """Ranks of each row of `x` [K, N], ties equal and no gaps, float32; 0 in a row with a NaN."""
    rows = [np.zeros(x.shape[1]) if np.isnan(row).any() else ranks.dense_ranks(row) for row in x]
    return np.array(rows, dtype=np.float32).reshape(x.shape)


def signs(x: Array) -> Iterator[tuple[slice, Array]]:
    """Sign of the difference of every two things in each row of `x`, a block of things at a time.

    Args:
      x: float32 [K, N], as `dense_rows` returns it.

    Yields:
      A slice of the things, and float32 [K, that many, N].
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
    discordant = 0 if a is b else int(_kendall_dis(a.ascending, b.ranks[a.order]))
    difference = pairs - a.ties - b.ties + _common_ties(a, b) - 2 * discordant
    tau = difference / math.sqrt(pairs - a.ties) / math.sqrt(pairs - b.ties)
    return max(-1.0, min(1.0, tau))


def _of_few(x: Array) -> Array:
    """`tau_b_matrix` of the rows of `x` [K, N]."""
    x = dense_rows(x)
    count = len(x)
    together = np.zeros((count, count))
    for _, block in signs(x):
        flat = block.reshape(count, -1)
        together += flat @ flat.T
    untied = np.diag(together)
    scale = np.divide(1, np.sqrt(untied), out=np.full(count, math.nan), where=untied > 0)
    taus: Array = np.clip(together * scale[:, None] * scale[None, :], -1.0, 1.0)
    np.fill_diagonal(taus, np.where(untied > 0, 1.0, math.nan))
    return taus


def _common_ties(a: Ranking, b: Ranking) -> int:
    """Pairs whose values are equal on both sides."""
    if a is b:
        return a.ties
    places = min(a.tied, b.tied, key=len)
    both = a.ranks[places] * (len(b.ranks) + 1) + b.ranks[places]
    return _pairs_of_equals(np.unique(both, return_counts=True)[1])


def _pairs_of_equals(counts: Array) -> int:
    return int((counts * (counts - 1) // 2).sum())
