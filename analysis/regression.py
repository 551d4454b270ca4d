"""Ordinary least squares in plain numpy, with errors that hold without equal variances."""

import dataclasses
import math

import numpy as np
import scipy.stats


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """A least-squares fit; coefficients in the order of the columns, the intercept first.

    Attributes:
      coefficients: float64 [K + 1]; NaN where the design does not identify them.
      stderr: robust standard errors, as `coefficients`.
      p: two-sided p of each coefficient against zero (Student's t with `df`).
      df: degrees of freedom: N - K - 1, or clusters - 1.
      n: observations.
      r_squared: share of variance explained.
    """

    coefficients: np.ndarray
    stderr: np.ndarray
    p: np.ndarray
    df: int
    n: int
    r_squared: float

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the coefficients' confidence intervals."""
        half = scipy.stats.t.ppf(0.5 + level / 2, self.df) * self.stderr
        return self.coefficients - half, self.coefficients + half


def ols(y: np.ndarray, x: np.ndarray, errors: str = "HC3", groups: np.ndarray | None = None) -> Fit:
    """Fits y = a + x b.

    Args:
      y: outcomes [N].
      x: predictors [N, K] or [N].
      errors: "classical", "HC1" or "HC3" (MacKinnon & White 1985), as statsmodels defines them.
      groups: cluster of each observation [N], any labels. Where given, `errors` does not count:
        errors may be correlated inside a cluster (CR1, with Stata's small-sample factor).

    Returns:
      The fit; all NaN where observations are too few or predictors collinear.
    """
    design = np.column_stack([np.ones(len(y)), np.asarray(x, dtype=np.float64)])
    y = np.asarray(y, dtype=np.float64)
    n, k = design.shape
    clusters = None if groups is None else np.unique(groups, return_inverse=True)[1]
    df = n - k if clusters is None else int(clusters.max(initial=0))
    if n <= k or df < 1 or np.linalg.matrix_rank(design) < k:
        nan = np.full(k, math.nan)
        return Fit(coefficients=nan, stderr=nan, p=nan, df=max(df, 0), n=n, r_squared=math.nan)
    bread = np.linalg.inv(design.T @ design)
    coefficients = bread @ (design.T @ y)
    residuals = y - design @ coefficients
    meat = (
        _meat(design, residuals, bread, errors)
        if clusters is None
        else _clustered(design, residuals, clusters)
    )
    stderr = np.sqrt(np.diag(bread @ meat @ bread))
    t = np.divide(coefficients, stderr, out=np.full(k, math.nan), where=stderr > 0)
    centred = y - y.mean()
    total = float(centred @ centred)
    return Fit(
        coefficients=coefficients,
        stderr=stderr,
        p=2 * scipy.stats.t.sf(np.abs(t), df),
        df=df,
        n=n,
        r_squared=1 - float(residuals @ residuals) / total if total > 0 else math.nan,
    )


def _meat(design: np.ndarray, residuals: np.ndarray, bread: np.ndarray, errors: str) -> np.ndarray:
    n, k = design.shape
    if errors == "classical":
        return design.T @ design * float(residuals @ residuals) / (n - k)
    if errors == "HC1":
        weights = residuals**2 * n / (n - k)
    elif errors == "HC3":
        leverage = np.einsum("nk,kl,nl->n", design, bread, design)
        weights = (residuals / np.maximum(1 - leverage, 1e-12)) ** 2
    else:
        raise ValueError(f"errors={errors!r}; allowed: 'classical', 'HC1', 'HC3'")
    return design.T @ (design * weights[:, None])


def _clustered(design: np.ndarray, residuals: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    n, k = design.shape
    count = int(clusters.max()) + 1
    scores = design * residuals[:, None]
    sums = np.stack([np.bincount(clusters, scores[:, j], minlength=count) for j in range(k)], 1)
    return sums.T @ sums * count / (count - 1) * (n - 1) / (n - k)
