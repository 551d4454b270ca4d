"""Shares of a variance."""

import math

import numpy as np

from analysis.statistics import Array
from analysis.statistics.inference import Estimates, half_width

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
