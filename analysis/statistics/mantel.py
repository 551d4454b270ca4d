"""Representational similarity analysis: which traits of the models predict their agreement."""

import itertools
import math

import numpy as np

from analysis.statistics import Array, ranks


def permutations(size: int, draws: int, rng: np.random.Generator) -> tuple[Array, bool]:
    """Permutations of `size` things: all of them where there are at most `draws`, else random ones.

    Returns:
      int64 [P, size], and whether these are all permutations (the identity is then among them).
    """
    if size <= 8 and math.factorial(size) <= draws:
        return np.array(list(itertools.permutations(range(size)))), True
    return rng.permuted(np.tile(np.arange(size), (draws, 1)), axis=1), False


def pairs_of(matrix: Array) -> Array:
    """The pairs i > j of a symmetric matrix [M, M], as one vector [M (M - 1) / 2]."""
    return matrix[np.tril_indices(len(matrix), -1)]


def pair_places(orders: Array) -> Array:
    """For each permutation `orders` [P, M] of the models, where each pair comes from.

    Returns:
      int64 [P, M (M - 1) / 2]: `pairs_of(matrix)[places]` are the pairs of the permuted matrix.
    """
    size = orders.shape[1]
    rows, columns = np.tril_indices(size, -1)
    place = np.zeros((size, size), dtype=np.int64)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    return np.asarray(place.ravel()[orders[:, rows] * size + orders[:, columns]])


def mantel(similarity: Array, predictor: Array, places: Array, exact: bool) -> tuple[float, float]:
    """Mantel's test (1967): Pearson's r, and its one-sided p; models of `similarity` are permuted.

    Args:
      similarity: symmetric [M, M].
      predictor: symmetric [M, M].
      places: `pair_places` of the permutations [P, N].
      exact: whether these are all permutations.
    """
    y, x = pairs_of(similarity), pairs_of(predictor)
    r = ranks.pearson(x, y)
    if math.isnan(r):
        return r, math.nan
    shuffled = y[places]
    shuffled -= y.mean()
    centred = x - x.mean()
    scale = math.sqrt(float(centred @ centred) * float(((y - y.mean()) ** 2).sum()))
    return r, _p(shuffled @ centred / scale, r, exact)


def joint(similarity: Array, predictors: Array) -> tuple[Array, float]:
    """Least squares of the pairs of `similarity` on all `predictors` [K, M, M] together.

    Returns:
      Standardised coefficients [K], NaN for a predictor that is constant or a linear combination of
      those before it; and R².
    """
    beta = np.full(len(predictors), math.nan)
    y = pairs_of(similarity)
    columns = np.stack([pairs_of(matrix) for matrix in predictors], axis=1)
    used = _identified(columns)
    if not used or np.ptp(y) == 0 or len(y) <= len(used) + 1:
        return beta, math.nan
    z, target = _standard(columns[:, used]), _standard(y)
    beta[used] = np.linalg.lstsq(z, target, rcond=None)[0]
    basis, _ = np.linalg.qr(z)
    return beta, float(((basis.T @ target) ** 2).sum() / len(y))


def _identified(columns: Array) -> list[int]:
    """Columns that are neither constant nor a linear combination of those before them."""
    used: list[int] = []
    for k in range(columns.shape[1]):
        design = np.column_stack([np.ones(len(columns)), columns[:, [*used, k]]])
        if np.linalg.matrix_rank(design) == design.shape[1]:
            used.append(k)
    return used


def _standard(x: Array) -> Array:
    return np.asarray((x - x.mean(axis=0)) / x.std(axis=0))


def _p(drawn: Array, observed: float, exact: bool) -> float:
    extreme = int((drawn >= observed - 1e-12).sum())
    return extreme / len(drawn) if exact else (1 + extreme) / (1 + len(drawn))
