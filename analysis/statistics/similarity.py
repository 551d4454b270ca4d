"""Metric multidimensional scaling: distances between models drawn as a map in the plane."""

import math

import numpy as np

from analysis.statistics import Array

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
