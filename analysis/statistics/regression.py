"""Ordinary least squares with cluster-robust standard errors."""

import dataclasses
import math

import numpy as np
import scipy.stats

from analysis.statistics import Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """A least-squares fit; coefficients in the order of the columns, the intercept first.

    Attributes:
      coefficients: float64 [K + 1]; NaN where the design does not identify them.
      stderr: cluster-robust standard errors, as `coefficients`.
      p: two-sided p of each coefficient against zero (Student's t, clusters - 1 degrees of
        freedom).
      n: observations.
    """

    coefficients: Array
    stderr: Array
    p: Array
    n: int


def ols(y: Array, x: Array, groups: Array) -> Fit:
    """Fits y = a + x b.

    Args:
      y: outcomes [N].
      x: predictors [N, K] or [N].
      groups: cluster of each observation [N], any labels: errors may be correlated inside a
        cluster (CR1, with Stata's small-sample factor).

    Returns:
      The fit; all NaN where observations are too few or predictors collinear.
    """
    design = np.column_stack([np.ones(len(y)), np.asarray(x, dtype=np.float64)])
    y = np.asarray(y, dtype=np.float64)
    n, k = design.shape
    clusters = np.unique(groups, return_inverse=True)[1]
    df = int(clusters.max(initial=0))
    if n <= k or df < 1 or np.linalg.matrix_rank(design) < k:
        nan = np.full(k, math.nan)
        return Fit(coefficients=nan, stderr=nan, p=nan, n=n)
    bread = np.linalg.inv(design.T @ design)
    coefficients = bread @ (design.T @ y)
    meat = _clustered(design, y - design @ coefficients, clusters)
    stderr = np.sqrt(np.diag(bread @ meat @ bread))
    t = np.divide(coefficients, stderr, out=np.full(k, math.nan), where=stderr > 0)
    p = np.asarray(2 * scipy.stats.t.sf(np.abs(t), df))
    return Fit(coefficients=coefficients, stderr=stderr, p=p, n=n)


def _clustered(design: Array, residuals: Array, clusters: Array) -> Array:
    n, k = design.shape
    count = int(clusters.max()) + 1
    scores = design * residuals[:, None]
    sums = np.stack([np.bincount(clusters, scores[:, j], minlength=count) for j in range(k)], 1)
    return np.asarray(sums.T @ sums * count / (count - 1) * (n - 1) / (n - k))
