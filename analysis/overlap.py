"""Rank-biased overlap in plain numpy: agreement weighted towards the top of two rankings.

Webber, Moffat & Zobel, "A similarity measure for indefinite rankings", 2010 (RBO and its
extrapolation); Corsi & Urbano, "The treatment of ties in rank-biased overlap", 2024 (ties).
"""

import math

import numpy as np
import scipy.stats

_NEGLIGIBLE = 1e-16  # Depths that together weigh less than this are not walked.


def rank_biased_overlap(x: np.ndarray, y: np.ndarray, p: float = 0.9) -> float:
    """Extrapolated rank-biased overlap of two rankings of the same N things, highest first.

    Tied values share their places evenly, so the result is the mean over all ways of breaking
    the ties (RBO^a). 1 for one order, NaN for N = 0. O(N log N).

    Args:
      x: values [N] of the first side.
      y: values [N] of the second, of the same things in the same order.
      p: persistence: depth d weighs (1 - p) p^(d-1). At 0.9 the first ten weigh 86 %.
    """
    return placed_overlap(places(x), places(y), p)


def placed_overlap(x: np.ndarray, y: np.ndarray, p: float = 0.9) -> float:
    """`rank_biased_overlap` from the `places` of both sides, which serve many pairs."""
    n = x.shape[1]
    if n == 0:
        return math.nan
    depth = _depth(n, p)
    agreement = overlaps(x, y, depth) / np.arange(1, depth + 1)
    weights = (1 - p) * p ** np.arange(depth)
    # Both sides hold the same things, so agreement at depth N is 1 and stays there.
    return float(weights @ agreement) + (p**n if depth == n else 0.0)


def truncated_overlap(x: np.ndarray, y: np.ndarray, p: float = 0.9, depth: int = 0) -> float:
    """The paper's form: the sum stops at `depth` (0: at N), ties in the order they come in.

    So equal rankings reach 1 - p^depth only, and the order of the rows decides ties.
    """
    depth = min(depth or len(x), len(x))
    if depth == 0:
        return math.nan
    first, second = (-np.argsort(np.argsort(-v, kind="stable")).astype(float) for v in (x, y))
    walked = min(depth, _depth(len(x), p))
    agreement = overlaps(places(first), places(second), walked) / np.arange(1, walked + 1)
    return float((1 - p) * p ** np.arange(walked) @ agreement)


def overlaps(x: np.ndarray, y: np.ndarray, depth: int) -> np.ndarray:
    """Expected number of things in both heads of 1, 2, … `depth`; float64 [depth].

    A thing tied across a depth stands above it with the share of its tie that does. Both sides
    are `places` [2, N].
    """
    (first, size), (other, other_size) = x, y
    there = (first < depth) & (other < depth)
    first, size, other, other_size = (v[there] for v in (first, size, other, other_size))
    return np.array(
        [
            np.clip((d - first) / size, 0, 1) @ np.clip((d - other) / other_size, 0, 1)
            for d in range(1, depth + 1)
        ]
    )


def places(x: np.ndarray) -> np.ndarray:
    """How many values of `x` [N] exceed each one, and how many equal it; float64 [2, N]."""
    key = -np.asarray(x, np.float64)
    above = scipy.stats.rankdata(key, method="min") - 1.0
    return np.stack([above, scipy.stats.rankdata(key, method="max") - above])


def _depth(n: int, p: float) -> int:
    return min(n, math.ceil(math.log(_NEGLIGIBLE) / math.log(p)))
