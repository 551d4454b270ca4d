"""The one definition of ranks and percentiles, and how much two rankings agree at their ends."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from analysis.statistics import Array

# --- Products of vectors whose sums do not depend on the number of cores -------------------------


def dot(x: Array, y: Array) -> float:
    """The inner product of `x` and `y` [N], in their dtype.

    `x @ y` is BLAS: above 10,000 numbers its threads share the sum, so its last digits depend on
    the number of cores, and on a busy machine they wait a thousand times longer for one another
    than the sum takes.
    """
    return float(np.einsum("i,i->", x, y))


# --- Ranks and percentiles, and the correlations of Pearson and Spearman, in float64 -------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranking:
    """One column, sorted once for everything that asks for its order.

    Attributes:
      ranks: rank of each value from 1 (lowest), ties equal and no gaps; int32 [N].
      order: places of the values by rank; int32 [N].
      counts: how many values have each rank; rank 0 has none; int32 [1 + different values].
    """

    ranks: Array
    order: Array
    counts: Array

    @property
    def ascending(self) -> Array:
        """`ranks` in the order `order`; int64 [N]."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def average(self) -> Array:
        """Ranks from 1 (lowest), ties sharing their mean rank; float64 [N]."""
        return (np.cumsum(self.counts) - (self.counts - 1) / 2)[self.ranks]

    @property
    def percentiles(self) -> Array:
        """Share of the values below each one, ties counted half; float64 [N], in (0, 1)."""
        return (self.average - 0.5) / max(len(self.ranks), 1)

    @property
    def positions(self) -> Array:
        """How many values exceed each one, and how many equal it; float64 [2, N]."""
        above = len(self.ranks) - np.cumsum(self.counts)
        return np.stack([above, self.counts]).astype(np.float64)[:, self.ranks]

    @functools.cached_property
    def tied(self) -> Array:
        """Places of the values that occur more than once; int64 [<= N]."""
        return np.flatnonzero((self.counts > 1)[self.ranks])

    @functools.cached_property
    def ties(self) -> int:
        """Pairs of equal values."""
        return pairs_of_equals(self.counts)

    def at(self, places: Array) -> "Ranking":
        """The ranking of the values at the different `places` [K], in their order; no sort."""
        number = np.full(len(self.ranks), -1, dtype=np.int32)
        number[places] = np.arange(len(places), dtype=np.int32)
        order = number[self.order]
        order = order[order >= 0]
        return _ranking(order, self.ranks[places][order])


def ranking(x: Array) -> Ranking:
    """`x` [N], sorted; all equal where a value is NaN."""
    if np.isnan(x).any():
        x = np.zeros(len(x))
    order = np.argsort(x)
    return _ranking(order.astype(np.int32), x[order])


def _ranking(order: Array, ascending: Array) -> Ranking:
    """The ranking of values whose places by value, and values in that order, are known."""
    rising = np.ones(len(order), dtype=np.int32)
    rising[1:] += np.cumsum(ascending[1:] != ascending[:-1], dtype=np.int32)
    ranks = np.empty_like(rising)
    ranks[order] = rising
    return Ranking(ranks=ranks, order=order, counts=np.bincount(rising).astype(np.int32))


def pairs_of_equals(counts: Array) -> int:
    """Pairs of equal things, where `counts` says how many things are alike."""
    counts = counts.astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def average_ranks(x: Array) -> Array:
    """`Ranking.average` of `x` [N], as `scipy.stats.rankdata`; all NaN where a value is NaN."""
    return np.full(len(x), math.nan) if np.isnan(x).any() else ranking(x).average


def percentiles(x: Array) -> Array:
    """`Ranking.percentiles` of `x` [N]; all NaN where a value is NaN. Their mean is 1/2."""
    return (average_ranks(x) - 0.5) / max(len(x), 1)


def percentiles_among(ascending: Array, values: Array) -> Array:
    """Share of the sorted `ascending` [N] below each of `values`, ties half; NaN for N = 0."""
    below, not_above = (np.searchsorted(ascending, values, side) for side in ("left", "right"))
    return (below + not_above) / (2 * len(ascending))


def spearman(x: Array, y: Array) -> float:
    """Spearman's rho of `x` and `y` [N]: Pearson's r of their average ranks.

    NaN where it is not defined: fewer than two values, or all values of one side equal.
    """
    return pearson(average_ranks(x), average_ranks(y))


def pearson(x: Array, y: Array) -> float:
    """Pearson's r of `x` and `y` [N], computed in float64; NaN where it is not defined."""
    if len(x) < 2:
        return math.nan
    x, y = (v.astype(np.float64) - v.mean(dtype=np.float64) for v in (x, y))
    scale = math.sqrt(dot(x, x) * dot(y, y))
    # Rounding can give a side of equal values a scale above zero, so the values are asked.
    if np.ptp(x) == 0 or np.ptp(y) == 0 or scale == 0:
        return math.nan
    return max(-1.0, min(1.0, dot(x, y) / scale))


def pearson_matrix(columns: Sequence[Array]) -> Array:
    """`pearson` of every two columns [N] of the same things; float64 [K, K]."""
    matrix = np.full((len(columns), len(columns)), math.nan)
    # Rounding can give a side of equal values a scale above zero, so the values are asked.
    varied = [k for k, x in enumerate(columns) if len(x) > 1 and np.ptp(x) > 0]
    centred = {k: columns[k].astype(np.float64) - columns[k].mean(dtype=np.float64) for k in varied}
    squares = {k: dot(x, x) for k, x in centred.items()}
    for at, i in enumerate(varied):
        for j in varied[: at + 1]:
            scale = math.sqrt(squares[i] * squares[j])
            if scale > 0:
                r = max(-1.0, min(1.0, dot(centred[i], centred[j]) / scale))
                matrix[i, j] = matrix[j, i] = r
    return matrix


def extremes(x: Array, count: int, highest: bool) -> Array:
    """Indices of the `count` highest or lowest of `x` [N], most extreme first; int64 [<= count].

    Ties go to the lower index.
    """
    key = -x if highest else x
    indices = np.arange(len(x))
    if count < len(x):
        indices = np.flatnonzero(key <= np.partition(key, count - 1)[count - 1])
    return indices[np.argsort(key[indices], kind="stable")][:count]


# --- How much of one end of a ranking is the same in another ranking of the same things ----------


def end_overlap(x: Array, y: Array, count: int, highest: bool) -> int:
    """How many of the `count` highest (or lowest) of `x` [N] are among those of `y` [N]."""
    ends = [extremes(values, count, highest) for values in (x, y)]
    return len(np.intersect1d(ends[0], ends[1]))


# --- Rank-biased overlap: agreement of two rankings, weighted towards their top ------------------
# Webber, Moffat & Zobel, "A similarity measure for indefinite rankings", 2010 (the measure and its
# extrapolation); Corsi & Urbano, "The treatment of ties in rank-biased overlap", 2024 (ties).

_NEGLIGIBLE = 1e-16  # The sum stops where all deeper depths together weigh less than this.


def rank_biased_overlap(x: Array, y: Array, p: float) -> float:
    """Extrapolated rank-biased overlap of two rankings of the same N things, highest first.

    Tied values share their positions evenly, so the result is the mean over all ways of breaking
    the ties (RBO^a). 1 for one order, NaN for N = 0. O(N log N). `x` and `y` are their
    `Ranking.positions` [2, N]. With persistence p, depth d weighs (1 - p) p^(d-1): at 0.9
    the first ten weigh 86 %.
    """
    n = x.shape[1]
    if n == 0:
        return math.nan
    depth = min(n, math.ceil(math.log(_NEGLIGIBLE) / math.log(p)))
    agreement = _overlaps(x, y, depth) / np.arange(1, depth + 1)
    weights = (1 - p) * p ** np.arange(depth)
    # Both rankings hold the same things, so agreement at depth N is 1 and stays there.
    return float(weights @ agreement) + (p**n if depth == n else 0.0)


def _overlaps(x: Array, y: Array, depth: int) -> Array:
    """Expected number of things in both heads of 1, 2, … `depth`; float64 [depth].

    Where a depth cuts a tie, each of the tied things is above the cut with equal probability.
    """
    heads = np.flatnonzero(x[0] < depth)
    reached = heads[y[0][heads] < depth]
    (first, size), (other, other_size) = x[:, reached], y[:, reached]
    if size.max(initial=1) == 1 == other_size.max(initial=1):
        at = np.maximum(first, other).astype(np.int64)
        return np.cumsum(np.bincount(at, minlength=depth)).astype(np.float64)
    return np.array(
        [
            np.clip((d - first) / size, 0, 1) @ np.clip((d - other) / other_size, 0, 1)
            for d in range(1, depth + 1)
        ]
    )
