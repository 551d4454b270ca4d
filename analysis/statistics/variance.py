"""Shares and components of a variance."""

import math

import numpy as np

from analysis.statistics import Array
from analysis.statistics.inference import (
    Estimates,
    clustered_error,
    effective_clusters,
    half_width,
)

# --- Variance of values by token, model and prompt: shares and components of a crossed design

COMPONENTS = ("token", "token × model", "token × prompt", "token × model × prompt")
_TOKENS = 4096  # That are centred at a time.


def shares(cube: Array, clusters: Array) -> Estimates:
    """Shares of the sum of squares of `cube` [T, M, P], with intervals; float64 [4] each.

    In the order of `COMPONENTS`. Noise has a share in each: see `noise_shares`. `clusters` are
    those of tokens, as in `inference`; a share is taken as a ratio (delta method).
    """
    share, low, high, _ = _ratios(_sums_of_squares(cube), clusters, 1)
    return Estimates(share, np.maximum(low, 0.0), np.minimum(high, 1.0))


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


def estimated_shares(cube: Array, clusters: Array) -> Estimates:
    """Shares of the `estimates` in their sum, with intervals; float64 [4] each.

    Their mean is 0 where a component has no variance, so a share may be below 0. The first three
    intervals hold together with 95 % (Bonferroni). NaN for one model or one prompt.
    """
    if min(cube.shape[1:]) == 1:
        return Estimates(*np.full((3, 4), math.nan))
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


def _ratios(parts: Array, clusters: Array, tests: int) -> Estimates:
    """Shares of the columns of `parts` [T, 4] in their sum, with intervals; float64 [4] each."""
    total = parts.sum()
    if total == 0:
        return Estimates(*np.full((3, 4), math.nan))
    share = parts.sum(axis=0) / total
    left = (parts - share * parts.sum(axis=1, keepdims=True)) * (len(parts) / total)
    count = effective_clusters(clusters)
    errors = (clustered_error(influence, clusters, 2) for influence in left.T)
    half = np.array([half_width(error, count, tests) for error in errors])
    return Estimates(share, share - half, share + half)


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


# --- Variance of items over prompts, which are wordings of questions: corrected shares -----------

NESTED = ("common", "question", "wording")


def nested_shares(values: Array, questions: Array, wordings: Array, clusters: Array) -> Estimates:
    """Shares of the variance of items that all prompts, a question or a wording have alone.

    The covariance of two prompts over the items holds what is common to all prompts and, where
    they ask one question, what is common to its wordings. So the components are the mean
    covariance of prompts of different questions; what that of wordings of one question has more;
    and what a variance has more than that. They are corrected: each has mean 0 where it has no
    variance, and a share may be below 0. For questions of equal numbers of wordings, all different,
    they are those of the nested analysis of variance.

    Args:
      values: float64 [N, P].
      questions: any label of the question of each prompt [P].
      wordings: any label of its wording [P]; no two prompts of one question share theirs.
      clusters: label of each item [N]; items of one label (forms of a word) vary together.

    Returns:
      The shares in the order of `NESTED`, float64 [3] each, with intervals that take the labels
      as a random sample and a share as a ratio (delta method). NaN for
      what cannot be told apart: one question has no component of questions, and its wordings'
      common part is "common"; without two wordings of a question there is none of wordings.
    """
    parts = _covariances(values - values.mean(axis=0), questions, wordings)
    components = _components(parts)
    order = np.unique(clusters, return_inverse=True)[1]
    count = int(order.max()) + 1
    sums = np.stack([np.bincount(order, weights=column) for column in components.T], axis=1)
    total = np.bincount(order, weights=parts[:, 0])
    share = sums.sum(axis=0) / total.sum()
    left = sums - share * total[:, None]
    error = math.sqrt(count) * left.std(axis=0, ddof=1) / total.sum()
    half = half_width(1.0, count) * error
    return Estimates(share, share - half, share + half)


def _covariances(centred: Array, questions: Array, wordings: Array) -> Array:
    """Contribution of each item to the mean variance and the mean covariances; float64 [N, 3].

    Of wordings of one question, and of prompts that differ in question and wording; NaN where there
    are none.
    """
    squares, prompts = (centred**2).sum(axis=1), len(questions)
    questioned, pairs = _squared_sums(centred, questions)
    worded, alike = _squared_sums(centred, wordings)
    total = centred.sum(axis=1) ** 2
    columns = (
        (squares, prompts),
        (questioned - squares, pairs),
        (total - questioned - worded + squares, prompts * (prompts - 1) - pairs - alike),
    )
    return np.stack([x / n if n else np.full(len(x), math.nan) for x, n in columns], axis=1)


def _squared_sums(centred: Array, labels: Array) -> tuple[Array, int]:
    """Sum of products over pairs of one label, squares included [N], and the number of pairs."""
    names = np.unique(labels)
    sums = np.stack([centred[:, labels == name].sum(axis=1) for name in names], axis=1)
    sizes = np.array([(labels == name).sum() for name in names])
    return (sums**2).sum(axis=1), int((sizes * (sizes - 1)).sum())


def _components(parts: Array) -> Array:
    """`NESTED` of each item from its contributions; float64 [N, 3]."""
    variance, within, across = parts.T
    if np.isnan(across).all():  # One question, or one wording.
        return np.stack([within, across, variance - within], axis=1)
    return np.stack([across, within - across, variance - within], axis=1)
