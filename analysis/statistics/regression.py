"""Least squares with cluster-robust errors, and ranks beside their regression to the mean."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.special

from analysis.statistics import Array, ranks

# --- Ordinary least squares with cluster-robust standard errors ----------------------------------


class Fit(NamedTuple):
    """A least-squares fit; coefficients in the order of the columns, the intercept first.

    Attributes:
      value: the coefficients, float64 [K + 1]; NaN where the design does not identify them.
      low: lower ends of the 95 % intervals, by the same t as `p`; NaN where `stderr` is.
      high: upper ends.
      p: two-sided p of each coefficient against zero (Student's t with the degrees of freedom of
        its standard error, which are fewer than the clusters).
      stderr: cluster-robust standard errors, as `value`; also NaN where a fit without one of the
        clusters would not be identified.
      n: observations.
    """

    value: Array
    low: Array
    high: Array
    p: Array
    stderr: Array
    n: int


def ols(y: Array, x: Array, groups: Array) -> Fit:
    """Fits y = a + x b, of outcomes [N] and predictors [N, K] or [N].

    `groups` are any labels of clusters [N], inside which errors may be correlated. Standard errors
    are those of the jackknife over clusters (CR3 of Cameron & Miller 2015): with some tens of
    unequal clusters the plain sandwich (CR1) is too small. All NaN where observations are too few
    or predictors collinear.
    """
    design, y = _design(x), np.asarray(y, dtype=np.float64)
    n, k = design.shape
    nan = np.full(k, math.nan)
    value, bread = _solved(y, design, groups)
    if np.isnan(value).any():
        return Fit(nan, nan, nan, nan, nan, n)
    clusters = np.unique(groups, return_inverse=True)[1]
    parts = _clusters(design, y - design @ value, clusters, bread)
    if np.abs(np.linalg.det(parts.left)).min() < _SINGULAR:
        return Fit(value, nan, nan, nan, nan, n)
    stderr = _jackknife(parts, bread)
    t = np.divide(value, stderr, out=np.full(k, math.nan), where=stderr > 0)
    df = np.array([_degrees(parts, bread, j) for j in range(k)])
    p = 2 * scipy.special.stdtr(df, -np.abs(t))
    half = scipy.special.stdtrit(df, 0.975) * stderr
    return Fit(value, value - half, value + half, p, stderr, n)


def _design(x: Array) -> Array:
    return np.column_stack([np.ones(len(x)), np.asarray(x, dtype=np.float64)])


def _solved(y: Array, design: Array, groups: Array) -> tuple[Array, Array]:
    """Coefficients [K], NaN where they are not identified or in one cluster, and (X'X)^-1."""
    n, k = design.shape
    if n <= k or len(np.unique(groups)) < 2 or np.linalg.matrix_rank(design) < k:
        return np.full(k, math.nan), np.full((k, k), math.nan)
    bread = np.linalg.inv(design.T @ design)
    return bread @ (design.T @ y), bread


_SINGULAR = 1e-9


class _Clusters(NamedTuple):
    """Sums over each cluster g of G, with X and e its rows of the design and its residuals."""

    total: Array  # X'1 [G, K].
    score: Array  # X'e [G, K].
    square: Array  # X'X [G, K, K].
    left: Array  # I - X'X @ bread [G, K, K]; singular where the fit is not identified without g.


def _clusters(design: Array, residuals: Array, clusters: Array, bread: Array) -> _Clusters:
    count, k = int(clusters.max()) + 1, design.shape[1]
    products = (design[:, :, None] * design[:, None, :]).reshape(-1, k * k)
    square = _sums(products, clusters, count).reshape(count, k, k)
    return _Clusters(
        total=_sums(design, clusters, count),
        score=_sums(design * residuals[:, None], clusters, count),
        square=square,
        left=np.eye(k) - square @ bread,
    )


def _jackknife(parts: _Clusters, bread: Array) -> Array:
    """Standard errors [K] of the jackknife that leaves out one cluster at a time.

    Without cluster g the coefficients change by -bread @ left^-1 @ score: nothing is fitted again.
    """
    count = len(parts.score)
    changes = np.linalg.solve(parts.left, parts.score[:, :, None])[:, :, 0] @ bread
    return np.asarray(np.sqrt((count - 1) / count * (changes**2).sum(axis=0)))


def _degrees(parts: _Clusters, bread: Array, j: int) -> float:
    """Degrees of freedom of the variance of coefficient j (Satterthwaite; Bell & McCaffrey 2002).

    For errors that are the same inside a cluster and independent between clusters, that variance
    is a quadratic form of the errors with the matrix P'P, and the degrees are those of the
    chi-squared distribution with its mean and variance: tr(P'P)^2 / ||P'P||^2. P is
    diag(s) - total @ bread @ u', so P'P is diag(s^2) + v @ middle @ v' with narrow v.
    """
    count, k = parts.total.shape
    column = np.broadcast_to(bread[:, j, None], (count, k, 1))
    w = np.linalg.solve(parts.left.transpose(0, 2, 1), column)[:, :, 0]
    u = np.einsum("gij,gj->gi", parts.square, w)
    s = (parts.total * w).sum(axis=1)
    v = np.concatenate([s[:, None] * parts.total, u], axis=1)
    inner = bread @ (parts.total.T @ parts.total) @ bread
    middle = np.block([[np.zeros((k, k)), -bread], [-bread, inner]])
    diagonal = ((v @ middle) * v).sum(axis=1)
    square = middle @ (v.T @ v)
    trace = float((s**2 + diagonal).sum())
    norm = float((s**4 + 2 * s**2 * diagonal).sum() + np.trace(square @ square))
    return trace**2 / norm


def _sums(rows: Array, clusters: Array, count: int) -> Array:
    """Sums of `rows` [N, J] over each cluster [count, J]."""
    return np.stack([np.bincount(clusters, row, minlength=count) for row in rows.T], axis=1)


# --- Ranks by models against ranks by people: what is left when regression to the mean is taken out
# Two orders that correlate imperfectly differ most at the ends: an item that people rank first can
# only be ranked lower by a model. A raw difference of ranks therefore mostly says where people rank
# an item. The residual of the models' rank on the people's does not.


def line(y: Array, x: Array) -> tuple[float, float]:
    """Intercept and slope of the least-squares line of `y` [N] on `x` [N]; slope 0 for equal x."""
    centred = np.asarray(x, dtype=np.float64) - np.mean(x)
    squares = float(centred @ centred)
    slope = float(centred @ y) / squares if squares > 0 else 0.0
    return float(np.mean(y)) - slope * float(np.mean(x)), slope


def nearest_residuals(models: Array, people: Array) -> Array:
    """For each item, the residual of the model that is nearest to what people's rank predicts.

    Of ranks by models [M, N] and by people [N]; float64 [N]. Positive where every model ranks the
    item lower than its own regression on people's ranks predicts (rank 1 is the best), negative
    where every model ranks it higher; the residual with the smallest size. Zero where the models
    stand on both sides.
    """
    return _nearest(models - models.mean(axis=1, keepdims=True), people)


def _nearest(centred: Array, people: Array) -> Array:
    """`nearest_residuals` of ranks whose means are zero."""
    x = people - people.mean()
    squares = float(x @ x)
    slopes = centred @ x / squares if squares > 0 else np.zeros(len(centred))
    residuals = centred - slopes[:, None] * x
    return np.asarray(np.maximum(residuals.min(axis=0), 0) + np.minimum(residuals.max(axis=0), 0))


def largest_by_chance(
    models: Array, people: Array, bands: Array, rng: np.random.Generator, draws: int
) -> Array:
    """The largest `nearest_residuals` of a list in which no item is special: float64 [draws].

    Of ranks by models [M, N] and by people [N], as `people_by_chance` has them; never negative.
    Empty for one model, whose heavy tails alone may leave an item apart, and for fewer than ten
    items a model, which are too few to estimate how people depend on the models.
    """
    count, size = models.shape
    if count < 2 or size < _ITEMS_PER_PREDICTOR * (count + 1):
        return np.empty(0)
    centred = models - models.mean(axis=1, keepdims=True)
    drawn = people_by_chance(models, people, bands, rng, draws)
    return np.array([np.abs(_nearest(centred, ranks_by_chance)).max() for ranks_by_chance in drawn])


def people_by_chance(
    models: Array, people: Array, bands: Array, rng: np.random.Generator, draws: int
) -> Iterator[Array]:
    """Ranks by people of a list in which no item is special: float64 [N], `draws` times.

    People's normal scores are regressed on those of the models, then on a cubic of what these
    predict, because people may follow the models less far at the ends. The residuals are shuffled
    over the items. So people stay correlated with each model as they were, the models keep their
    ranks, and what people add falls on any item. They are shuffled inside `bands`, labels [N]:
    where these hold items of about as many comparisons, errors of people's ranks stay where they
    are.
    """
    count, size = models.shape
    scores = _normal_scores(people)
    design = np.column_stack([np.ones(size), *map(_normal_scores, models)])
    predicted = _fitted(design, scores)
    fitted = _fitted(np.vander(predicted, _CURVE + 1), scores)
    # Residuals of a fit are smaller than the errors.
    left = (scores - fitted) * np.sqrt(size / (size - count - _CURVE))
    members = [np.flatnonzero(bands == band) for band in np.unique(bands)]
    shuffled = np.empty(size)
    for _ in range(draws):
        for band in members:
            shuffled[band] = rng.permutation(left[band])
        order = np.argsort(fitted + shuffled)
        drawn = np.empty(size)
        drawn[order] = np.arange(1, size + 1)
        yield drawn


_ITEMS_PER_PREDICTOR = 10
_CURVE = 3


def _fitted(design: Array, y: Array) -> Array:
    return np.asarray(design @ np.linalg.lstsq(design, y, rcond=None)[0])


def adjusted_p(values: Array, largest: Array) -> Array:
    """P of each size of `values` [N], corrected for all of them (Westfall & Young 1993).

    `largest` holds the largest size in each draw without an effect; where empty, p is NaN.
    """
    if len(largest) == 0:
        return np.full(len(values), np.nan)
    below = np.searchsorted(np.sort(largest), np.abs(values), side="left")
    return np.asarray((1 + len(largest) - below) / (1 + len(largest)))


def _normal_scores(ranked: Array) -> Array:
    return np.asarray(scipy.special.ndtri(ranks.percentiles(ranked)))
