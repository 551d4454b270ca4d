"""Variance of values by token, model and prompt: shares and components of a crossed design."""

import math

import numpy as np

from analysis.statistics import Array
from analysis.statistics.clustered import clustered_error, half_width

COMPONENTS = ("token", "token × model", "token × prompt", "token × model × prompt")
_TOKENS = 4096  # That are centred at a time.


def shares(cube: Array, clusters: Array) -> tuple[Array, Array, Array]:
    """Shares of the sum of squares of `cube` [T, M, P], and their 95 % interval; float64 [4] each.

    In the order of `COMPONENTS`. Noise has a share in each: see `noise_shares`.

    Args:
      cube: the values.
      clusters: number of the stem of each token, from 0 without gaps; int64 [T]. Whole stems are
        taken as a random sample, and a share as a ratio (delta method).
    """
    share, low, high = _ratios(_sums_of_squares(cube), clusters, 1)
    return share, np.maximum(low, 0.0), np.minimum(high, 1.0)


def noise_shares(models: int, prompts: int) -> Array:
    """Shares that pure noise has on average; float64 [4], in the order of `COMPONENTS`."""
    return _freedom(models, prompts) / (models * prompts)


def estimates(cube: Array) -> Array:
    """Variance components of `cube` [T, M, P], all effects random; float64 [4], may be below 0.

    From the expected mean squares of the crossed design without replicates, in the order of
    `COMPONENTS`; the last one cannot be separated from noise. NaN for one model or one prompt.
    """
    if min(cube.shape[1:]) == 1:
        return np.full(4, math.nan)
    return np.asarray(_corrected(cube).sum(axis=0) / (len(cube) - 1))


def estimated_shares(cube: Array, clusters: Array) -> tuple[Array, Array, Array]:
    """Shares of the `estimates` in their sum, and intervals that hold together with 95 %.

    Their mean is 0 where a component has no variance, so a share may be below 0.

    Args:
      cube: as in `estimates`.
      clusters: as in `shares`.

    Returns:
      The share and both ends of its interval, float64 [4] each. The first three intervals hold
      together (Bonferroni). NaN for one model or one prompt.
    """
    if min(cube.shape[1:]) == 1:
        nan = np.full(4, math.nan)
        return nan, nan, nan
    return _ratios(_corrected(cube), clusters, 3)


def _corrected(cube: Array) -> Array:
    """Contribution of each token to `estimates` × (T − 1); float64 [T, 4]."""
    _, models, prompts = cube.shape
    token, model, prompt, rest = (_sums_of_squares(cube) / _freedom(models, prompts)).T
    parts = (
        (token - model - prompt + rest) / (models * prompts),
        (model - rest) / prompts,
        (prompt - rest) / models,
        rest,
    )
    return np.stack(parts, axis=1)


def _freedom(models: int, prompts: int) -> Array:
    """Degrees of freedom of each component for one token."""
    return np.array([1, models - 1, prompts - 1, (models - 1) * (prompts - 1)])


def _ratios(parts: Array, clusters: Array, tests: int) -> tuple[Array, Array, Array]:
    """Shares of the columns of `parts` [T, 4] in their sum, with intervals; float64 [4] each."""
    total = parts.sum()
    if total == 0:
        nan = np.full(4, math.nan)
        return nan, nan, nan
    share = parts.sum(axis=0) / total
    left = (parts - share * parts.sum(axis=1, keepdims=True)) * (len(parts) / total)
    count = int(clusters.max()) + 1
    half = np.array([half_width(clustered_error(own, clusters), count, tests) for own in left.T])
    return share, share - half, share + half


def _sums_of_squares(cube: Array) -> Array:
    """Contribution of each component to the sum of squares of `cube` [T, M, P]; float64 [T, 4].

    Each model × prompt is centred first.
    """
    mean = cube.mean(axis=0)
    # A few tokens at a time: the whole takes three more arrays of the size of `cube`.
    parts = (cube[start : start + _TOKENS] - mean for start in range(0, len(cube), _TOKENS))
    return np.concatenate([_squares_of_centred(part) for part in parts])


def _squares_of_centred(centred: Array) -> Array:
    _, models, prompts = centred.shape
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
