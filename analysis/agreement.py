"""How far the models agree: square matrices of rank statistics, and what they agree on."""

from collections.abc import Callable

import numpy as np
import polars as pl

from analysis import ranks

Statistic = Callable[[np.ndarray, np.ndarray], float]


def square(columns: list[np.ndarray], statistic: Statistic) -> np.ndarray:
    """`statistic` of every pair of `columns` (M arrays [N]); float64 [M, M], symmetric.

    The diagonal is computed too: it is NaN, not 1, where a column has no order of its own.
    """
    matrix = np.empty((len(columns), len(columns)))
    for i, x in enumerate(columns):
        for j, y in enumerate(columns[: i + 1]):
            matrix[i, j] = matrix[j, i] = statistic(x, y)
    return matrix


def kendall_matrix(rewards: pl.DataFrame) -> pl.DataFrame:
    """Kendall's tau-b of every pair of models: the table `kendall_tau_<prompt>.csv`.

    Args:
      rewards: token, and a column a model, as `tokens.shared_rewards` makes them.

    Returns:
      A square table: model, then a column a model, both in the order of `rewards`.
    """
    # Ranked once a model rather than twice a pair; tau needs no more than the order.
    return _matrix(rewards, ranks.dense_ranks, ranks.kendall_tau)


def spearman_matrix(rewards: pl.DataFrame) -> pl.DataFrame:
    """Spearman's rho of every pair of models: the table `spearman_<prompt>.csv`.

    Takes and returns the same shapes as `kendall_matrix`.
    """
    return _matrix(rewards, ranks.average_ranks, ranks.pearson)


def consensus(rewards: pl.DataFrame) -> pl.DataFrame:
    """Where the models together put each token.

    Args:
      rewards: token, and a column a model, as `tokens.shared_rewards` makes them.

    Returns:
      token, percentile (mean over the models of the token's percentile in each, 0 to 1) and
      spread (their standard deviation, ddof 0), by falling percentile, then by token.
    """
    models = rewards.columns[1:]
    each = np.stack([ranks.percentiles(rewards[model].to_numpy()) for model in models])
    table = rewards.select("token").with_columns(
        percentile=pl.Series(each.mean(axis=0)), spread=pl.Series(each.std(axis=0))
    )
    return table.sort("percentile", "token", descending=[True, False])


def pairs(matrix: pl.DataFrame) -> pl.DataFrame:
    """The pairs of a square table: a, b, value; by falling value, then a, then b; no NaN."""
    models = matrix.columns[1:]
    values = matrix.select(models).to_numpy()
    rows = [
        {"a": a, "b": models[j], "value": float(values[i, j])}
        for i, a in enumerate(models)
        for j in range(i + 1, len(models))
    ]
    schema = {"a": pl.String, "b": pl.String, "value": pl.Float64}
    table = pl.DataFrame(rows, schema=schema).filter(pl.col("value").is_not_nan())
    return table.sort("value", "a", "b", descending=[True, False, False])


def _matrix(
    rewards: pl.DataFrame, prepare: Callable[[np.ndarray], np.ndarray], statistic: Statistic
) -> pl.DataFrame:
    models = rewards.columns[1:]
    matrix = square([prepare(rewards[model].to_numpy()) for model in models], statistic)
    return pl.DataFrame({"model": models} | dict(zip(models, matrix.T, strict=True)))
