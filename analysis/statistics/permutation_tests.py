"""Tests that permute labels over words or models, or places over things."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import scipy.special

from analysis.statistics import Array
from analysis.statistics.inference import Estimates

# --- Difference between two groups of a few things, such as models of two bases ------------------


def arrangements(
    chosen: int, total: int, rng: np.random.Generator, draws: int
) -> tuple[Array, bool]:
    """Ways to choose `chosen` of `total` units, one in each row: bool [A, total].

    And whether these are all ways: where there are at most `draws`.
    """
    exact = math.comb(total, chosen) <= draws
    if exact:
        places = np.array(list(itertools.combinations(range(total), chosen)))
    else:
        keys = rng.random((draws, total))
        places = keys.argpartition(min(chosen, total - 1), axis=1)[:, :chosen]
    ways = np.zeros((len(places), total), dtype=bool)
    np.put_along_axis(ways, places, True, axis=1)
    return ways, exact


def as_large(permuted: Array, observed: Array) -> Array:
    """How many entries of each column of `permuted` [A, C] are as far from 0 as `observed` [C]."""
    far = np.abs(permuted) >= np.abs(observed) * (1 - 1e-9) - 1e-12
    return np.asarray(far.sum(axis=0))


class Difference(NamedTuple):
    """Difference in mean between two groups, one number per column of the values.

    Attributes:
      value: mean of the first group less that of the second [C].
      p: two-sided p of the permutation test [C].
      least_p: the smallest p that the test can give with groups of these sizes.
      assignments: number of assignments of things to groups that were compared.
    """

    value: Array
    p: Array
    least_p: float
    assignments: int


def permutation_test(
    values: Array, first: Array, rng: np.random.Generator, draws: int
) -> Difference:
    """Permutation test of the difference in mean between two groups, neither of them empty.

    The labels of the groups (`first`, bool [N]) are permuted over the things. All assignments are
    compared where there are at most `draws`, else as many random ones. There is one test per column
    of `values`, float64 [N, C]; the same assignments serve all columns.
    """
    size, chosen = len(first), int(first.sum())
    count = math.comb(size, chosen)
    ways, exact = arrangements(chosen, size, rng, draws)
    share, other_share = 1 / chosen, -1 / (size - chosen)
    observed = np.where(first, share, other_share) @ values
    extreme = as_large(np.where(ways, share, other_share) @ values, observed)
    # Groups of one size can be exchanged, which turns only the sign of the difference round.
    attainable = (2 if 2 * chosen == size else 1) / count
    p = extreme / count if exact else (1 + extreme) / (1 + len(ways))
    least = attainable if exact else max(attainable, 1 / (1 + len(ways)))
    return Difference(observed, p, least, len(ways))


def welch_interval(values: Array, first: Array) -> Estimates:
    """The difference in mean between two groups of `values` [N, C], with its interval (Welch 1947).

    `first` is bool [N]. Without p; the ends are NaN where a group has fewer than three members. Two
    do not show their spread: the interval of 2 against 8 holds the truth in 89 of 100 cases.
    """
    groups = values[first], values[~first]
    middle = groups[0].mean(axis=0) - groups[1].mean(axis=0)
    if min(map(len, groups)) < 3:
        return Estimates(middle, *np.full((2, len(middle)), math.nan))
    parts = np.stack([group.var(axis=0, ddof=1) / len(group) for group in groups])
    free = np.array([len(group) - 1 for group in groups])
    total, spread = parts.sum(axis=0), (parts**2 / free[:, None]).sum(axis=0)
    # Satterthwaite 1946. Where nothing varies, the quotient has no value and the interval no width.
    safe = np.where(spread > 0, spread, 1.0)
    degrees = np.where(spread > 0, total**2 / safe, float(free.sum()))
    half = scipy.special.stdtrit(degrees, 0.975) * np.sqrt(total)
    return Estimates(middle, middle - half, middle + half)


# --- Whether things stand higher or lower in the mean of several orders than chance puts them

_MOST = 1_000_000  # Means drawn: enough for a p of 1 in 10,000 after a correction for 100 things.


def mean_place_test(places: Array, rng: np.random.Generator, draws: int) -> Array:
    """Two-sided p of the mean place of each thing, against orders that know nothing of it.

    Under the null every order holds the same places, each at a random thing, independently of the
    other orders. All things then have one distribution, which is drawn once for all of them: as
    many means as `draws` permutations of the things have, a million at most.

    `places` are [K, N], such as percentiles. p [N] = (1 + drawn means at least as far from the
    middle) / (1 + drawn means); NaN for fewer than two orders, because every place of a single
    order is taken by something.
    """
    orders, things = places.shape
    if orders < 2:
        return np.full(things, math.nan)
    count = min(draws * things, _MOST)
    drawn = np.zeros(count)
    for order in places:
        drawn += order[rng.integers(things, size=count)] - order.mean()
    far = np.abs(places.mean(axis=0) - places.mean())
    reached = np.sort(np.abs(drawn / orders))
    extreme = count - np.searchsorted(reached, far - 1e-12, side="left")
    return np.asarray((1 + extreme) / (1 + count))
