"""Similarity of models: which traits predict it, maps of it, and groups that it makes."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
from scipy.cluster import hierarchy

from analysis.statistics import Array, ranks

# --- Representational similarity analysis: which traits of the models predict their agreement


def permutations(size: int, draws: int, rng: np.random.Generator) -> tuple[Array, bool]:
    """Permutations of `size` things, int64 [P, size]: all where there are at most `draws`.

    Else random ones. And whether these are all (the identity is then among them).
    """
    if size <= 8 and math.factorial(size) <= draws:
        return np.array(list(itertools.permutations(range(size)))), True
    return rng.permuted(np.tile(np.arange(size), (draws, 1)), axis=1), False


def pairs_of(matrix: Array) -> Array:
    """The pairs i > j of a symmetric matrix [M, M], as one vector [M (M - 1) / 2]."""
    return matrix[np.tril_indices(len(matrix), -1)]


def pair_places(orders: Array) -> Array:
    """For each permutation `orders` [P, M] of the models, where each pair comes from.

    int64 [P, M (M - 1) / 2]: `pairs_of(matrix)[places]` are the pairs of the permuted matrix.
    """
    size = orders.shape[1]
    rows, columns = np.tril_indices(size, -1)
    place = np.zeros((size, size), dtype=np.int64)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    return np.asarray(place.ravel()[orders[:, rows] * size + orders[:, columns]])


def mantel(
    similarity: Array, predictors: Array, places: Array, exact: bool
) -> Iterator[tuple[float, float]]:
    """Mantel's test (1967): Pearson's r of each predictor, and its one-sided p.

    Models of `similarity` (symmetric [M, M]) are permuted; `predictors` are symmetric [K, M, M],
    `places` the `pair_places` of the permutations [P, N], and `exact` whether these are all.
    """
    y = pairs_of(similarity)
    shuffled = y[places]
    shuffled -= y.mean()
    for x in map(pairs_of, predictors):
        r, p = ranks.pearson(x, y), math.nan
        if not math.isnan(r):
            centred = x - x.mean()
            scale = math.sqrt(float(centred @ centred) * float(((y - y.mean()) ** 2).sum()))
            p = _p(shuffled @ centred / scale, r, exact)
        yield r, p


def joint(similarity: Array, predictors: Array) -> tuple[Array, float]:
    """Least squares of the pairs of `similarity` on all `predictors` [K, M, M] together.

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


# --- Multidimensional scaling: distances drawn as a map in the plane -----------------------------

_STARTS = 16  # Random starts beside the classical solution.
_ITERATIONS = 500  # At most, for each start.


def classical_mds(distances: Array) -> Array:
    """Torgerson's scaling of `distances` [M, M]; coordinates [M, 2], centred.

    Axes by falling variance; exact where the distances are Euclidean in two dimensions.
    """
    size = len(distances)
    centre = np.eye(size) - 1 / size
    values, vectors = np.linalg.eigh(-0.5 * centre @ (distances**2) @ centre)
    order = np.argsort(-values, kind="stable")[:2]
    points = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    return _oriented(np.pad(points, ((0, 0), (0, 2 - points.shape[1]))))


def metric_mds(distances: Array, rng: np.random.Generator) -> tuple[Array, float]:
    """Metric scaling by SMACOF (de Leeuw 1977), as in the paper's Fig 2B.

    The best of the classical solution and 16 random starts, each improved, of `distances`
    (symmetric [M, M], zero diagonal, no NaN): coordinates [M, 2], turned to principal axes, and
    Kruskal's stress-1 (0 is a perfect map; it divides by the drawn distances, scikit-learn's by the
    given ones).
    """
    scale = float(distances.max(initial=0.0)) or 1.0
    size = (len(distances), 2)
    begin = [classical_mds(distances)]
    begin += [scale * rng.normal(size=size) for _ in range(_STARTS)]
    maps = [_smacof(distances, start) for start in begin]
    best = min(maps, key=lambda points: _squares(_between(points) - distances))
    return _oriented(best), stress(distances, best)


def stress(distances: Array, points: Array) -> float:
    """Kruskal's stress-1 of a map [M, 2]: sqrt(sum (d - delta)^2 / sum d^2) over the pairs."""
    drawn = _between(points)
    total = float((drawn**2).sum())
    if total == 0:
        return 0.0 if not distances.any() else math.nan
    return math.sqrt(float(((drawn - distances) ** 2).sum()) / total)


def _between(points: Array) -> Array:
    """Euclidean distances [M, M] between the rows of `points` [M, 2]."""
    x, y = (points[:, k, None] - points[None, :, k] for k in (0, 1))
    return np.asarray(np.sqrt(x**2 + y**2))


def _oriented(points: Array) -> Array:
    """`points` [M, 2] centred, on principal axes; the largest entry of each axis is positive."""
    centred = points - points.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=True)
    turned = centred @ axes.T
    largest = turned[np.abs(turned).argmax(axis=0), np.arange(turned.shape[1])]
    return np.asarray(turned * np.where(largest < 0, -1.0, 1.0))


def _smacof(distances: Array, points: Array) -> Array:
    drawn = _between(points)
    last = _squares(drawn - distances)
    for _ in range(_ITERATIONS):
        points = _guttman(distances, points, drawn)
        drawn = _between(points)
        now = _squares(drawn - distances)
        if last - now <= 1e-9 * max(last, 1e-12):
            break
        last = now
    return points


def _guttman(distances: Array, points: Array, drawn: Array) -> Array:
    """One Guttman transform of `points` with distances `drawn`; it never raises the raw stress."""
    ratio = np.divide(distances, drawn, out=np.zeros_like(drawn), where=drawn > 1e-12)
    pull = -ratio
    np.fill_diagonal(pull, ratio.sum(axis=1))
    return np.asarray(pull @ points / len(points))


def _squares(x: Array) -> float:
    return float((x**2).sum())


# --- Groups of models of which every two agree ---------------------------------------------------

_CERTAIN = 1e-12  # agreement that is above 0


def blocs(certain: Array) -> list[list[int]]:
    """Complete linkage, cut at 0: merges two groups as long as all of their models agree.

    `certain` is the least agreement of every two models that the evidence allows, such as the lower
    end of an interval of Kendall's tau; symmetric, float64 [M, M]; the diagonal is ignored. The
    groups are ascending indices, the largest group first, then by their first index; every two
    models of a group are above 0.
    """
    size = len(certain)
    labels = np.zeros(min(size, 1), dtype=np.int64)
    if size > 1:
        tree = hierarchy.linkage(1 - certain[np.triu_indices(size, 1)], method="complete")
        labels = hierarchy.fcluster(tree, 1 - _CERTAIN, criterion="distance")
    groups = [np.flatnonzero(labels == label).tolist() for label in np.unique(labels)]
    return sorted(groups, key=lambda group: (-len(group), group[0]))
