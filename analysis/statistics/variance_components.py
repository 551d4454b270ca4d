"""Variance of values by token, model and prompt: shares and components of a crossed design."""

import math

import numpy as np
import scipy.stats

from analysis.statistics import Array

COMPONENTS = ("token", "token × model", "token × prompt", "token × model × prompt")
_Z = float(scipy.stats.norm.ppf(0.975))


def shares(cube: Array) -> tuple[Array, Array, Array]:
    """Shares of the sum of squares of `cube` [T, M, P], and their 95 % interval; float64 [4] each.

    In the order of `COMPONENTS`. The interval takes the tokens as a random sample, and the share
    as a ratio (delta method).
    """
    parts = _sums_of_squares(cube)
    total = parts.sum()
    if total == 0:
        nan = np.full(4, math.nan)
        return nan, nan, nan
    share = parts.sum(axis=0) / total
    left = parts - share * parts.sum(axis=1, keepdims=True)
    error = np.sqrt(len(parts) * left.var(axis=0, ddof=1)) / total
    half = _Z * error
    return share, np.maximum(share - half, 0.0), np.minimum(share + half, 1.0)


def estimates(cube: Array) -> Array:
    """Variance components of `cube` [T, M, P], all effects random; float64 [4], may be below 0.

    From the expected mean squares of the crossed design without replicates, in the order of
    `COMPONENTS`; the last one cannot be separated from noise. NaN for one model or one prompt.
    """
    size, models, prompts = cube.shape
    free = (size - 1) * np.array([1, models - 1, prompts - 1, (models - 1) * (prompts - 1)])
    if free[-1] == 0:
        return np.full(4, math.nan)
    token, model, prompt, rest = _sums_of_squares(cube).sum(axis=0) / free
    return np.array(
        [
            (token - model - prompt + rest) / (models * prompts),
            (model - rest) / prompts,
            (prompt - rest) / models,
            rest,
        ]
    )


def _sums_of_squares(cube: Array) -> Array:
    """Contribution of each component to the sum of squares of `cube` [T, M, P]; float64 [T, 4].

    Each model × prompt is centred first.
    """
    centred = cube - cube.mean(axis=0)
    _, models, prompts = cube.shape
    token = centred.mean(axis=(1, 2))
    by_model = centred.mean(axis=2) - token[:, None]
    by_prompt = centred.mean(axis=1) - token[:, None]
    rest = centred - token[:, None, None] - by_model[:, :, None] - by_prompt[:, None, :]
    return np.stack(
        [
            models * prompts * token**2,
            prompts * (by_model**2).sum(axis=1),
            models * (by_prompt**2).sum(axis=1),
            (rest**2).sum(axis=(1, 2)),
        ],
        axis=1,
    )
