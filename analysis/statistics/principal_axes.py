"""Principal axes of points in the plane, with intervals of their shares of the variance."""

import math

import numpy as np

from analysis.statistics import Array
from analysis.statistics.clustered import clustered_error, half_width


def principal_axes(
    a: Array, b: Array, clusters: Array
) -> list[tuple[float, float, float, float, float]]:
    """Both principal axes of the points (a, b) [N], by falling share.

    The interval of a share is by the delta method, whose influence of a point is that of the
    eigenvalues (Critchley 1985); it assumes no distribution of the points. Whole clusters are
    taken as a random sample.

    Args:
      a: one coordinate of each point.
      b: the other one.
      clusters: number of the cluster of each point, such as the stem of a token, from 0 without
        gaps; int64 [N].

    Returns:
      For each axis: loading of a (>= 0), loading of b, share of the variance, and the ends of the
      share's 95 % interval. No axes for N < 2; shares are NaN where all points are equal.
    """
    if len(a) < 2:
        return []
    points = np.stack([a - a.mean(), b - b.mean()], axis=1)
    values, vectors = np.linalg.eigh(points.T @ points / len(a))
    squares = (points @ vectors) ** 2
    total = float(values.sum())
    axes = []
    for k in (1, 0):
        first, second = (float(v) for v in vectors[:, k])
        sign = -1.0 if first < 0 or (first == 0 and second < 0) else 1.0
        share = (
            _share(squares[:, k], squares.sum(axis=1), clusters) if total > 0 else (math.nan,) * 3
        )
        axes.append((sign * first, sign * second, *share))
    return axes


def _share(part: Array, whole: Array, clusters: Array) -> tuple[float, float, float]:
    """Ratio of the sums of `part` and `whole` [N], and its 95 % interval."""
    share = float(part.sum() / whole.sum())
    error = clustered_error((part - share * whole) * (len(part) / float(whole.sum())), clusters)
    half = half_width(error, int(clusters.max()) + 1)
    return share, max(share - half, 0.0), min(share + half, 1.0)
