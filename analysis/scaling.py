"""Multidimensional scaling in plain numpy: distances drawn as a map."""

import math

import numpy as np


def classical_mds(distances: np.ndarray, dimensions: int = 2) -> np.ndarray:
    """Torgerson's scaling of `distances` [M, M]; coordinates [M, dimensions], centred.

    Axes by falling variance; exact where the distances are Euclidean in so few dimensions.
    """
    size = len(distances)
    centre = np.eye(size) - 1 / size
    values, vectors = np.linalg.eigh(-0.5 * centre @ (distances**2) @ centre)
    order = np.argsort(-values, kind="stable")[:dimensions]
    points = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    missing = dimensions - points.shape[1]
    return oriented(np.pad(points, ((0, 0), (0, max(missing, 0)))))


def metric_mds(
    distances: np.ndarray,
    rng: np.random.Generator,
    dimensions: int = 2,
    starts: int = 16,
    iterations: int = 500,
) -> tuple[np.ndarray, float]:
    """Metric scaling by SMACOF (de Leeuw 1977), as the paper's Fig 2B.

    The best of a start from the classical solution and `starts` random ones.

    Args:
      distances: symmetric [M, M], zero diagonal, no NaN.
      rng: draws the random starts.
      dimensions: columns of the map.
      starts: random starts beside the classical one.
      iterations: at most so many a start.

    Returns:
      Coordinates [M, dimensions], turned to principal axes, and Kruskal's stress-1 (0 is a
      perfect map; it divides by the drawn distances, scikit-learn's by the given ones).
    """
    scale = float(distances.max(initial=0.0)) or 1.0
    size = (len(distances), dimensions)
    begin = [classical_mds(distances, dimensions)]
    begin += [scale * rng.normal(size=size) for _ in range(starts)]
    maps = [_smacof(distances, start, iterations) for start in begin]
    best = min(maps, key=lambda points: _raw_stress(distances, points))
    return oriented(best), stress(distances, best)


def stress(distances: np.ndarray, points: np.ndarray) -> float:
    """Kruskal's stress-1 of a map [M, K]: sqrt(sum (d - delta)^2 / sum d^2) over the pairs."""
    drawn = between(points)
    total = float((drawn**2).sum())
    if total == 0:
        return 0.0 if not distances.any() else math.nan
    return math.sqrt(float(((drawn - distances) ** 2).sum()) / total)


def between(points: np.ndarray) -> np.ndarray:
    """Euclidean distances [M, M] between the rows of `points` [M, K]."""
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=-1))


def oriented(points: np.ndarray) -> np.ndarray:
    """`points` [M, K] centred, on principal axes; the largest entry of each axis is positive."""
    centred = points - points.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=True)
    turned = centred @ axes.T
    largest = turned[np.abs(turned).argmax(axis=0), np.arange(turned.shape[1])]
    return turned * np.where(largest < 0, -1.0, 1.0)


def _smacof(distances: np.ndarray, points: np.ndarray, iterations: int) -> np.ndarray:
    last = _raw_stress(distances, points)
    for _ in range(iterations):
        points = _guttman(distances, points)
        now = _raw_stress(distances, points)
        if last - now <= 1e-9 * max(last, 1e-12):
            break
        last = now
    return points


def _guttman(distances: np.ndarray, points: np.ndarray) -> np.ndarray:
    """One Guttman transform: never raises the raw stress."""
    drawn = between(points)
    ratio = np.divide(distances, drawn, out=np.zeros_like(drawn), where=drawn > 1e-12)
    pull = np.diag(ratio.sum(axis=1)) - ratio
    return pull @ points / len(points)


def _raw_stress(distances: np.ndarray, points: np.ndarray) -> float:
    return float(((between(points) - distances) ** 2).sum())
