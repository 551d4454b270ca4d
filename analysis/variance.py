"""Whose doing a token's place is: the token's own, the model's, or the question's."""

import functools
import math
from collections.abc import Mapping

import numpy as np
import polars as pl
import scipy.stats

from analysis import ranks
from engine.runs.schema import Columns

COMPONENTS = ("token", "token × model", "token × prompt", "token × model × prompt")
_SCHEMA: Columns = {
    "component": pl.String,
    **dict.fromkeys(("share", "ci_low", "ci_high", "estimate"), pl.Float64),
}


def variance_table(rewards: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Variance of the tokens' percentiles, split by model and prompt.

    Percentiles, as rewards of two models have no common unit; so models and prompts have no
    effects of their own, only on tokens.

    Args:
      rewards: prompt -> its table of `tokens.shared_rewards`; the models that are in all of them
        count.

    Returns:
      component ("token": the same whatever model and prompt; "token × model": a model's own
      taste; "token × prompt": what the question changes for all; "token × model × prompt": the
      rest, noise included), share (of the sum of squares; 1 together), ci_low, ci_high (95 %,
      over tokens), estimate (the variance component, free of what noise adds to the shares of
      the rows above; NaN where models or prompts are too few). No rows for fewer than two tokens,
      or neither two models nor two prompts.
    """
    tables = list(rewards.values())
    models = [m for m in tables[0].columns[1:] if all(m in t.columns for t in tables)]
    if not models or len(models) * len(tables) < 2:
        return pl.DataFrame(schema=_SCHEMA)
    common = functools.reduce(
        lambda a, b: a.join(b, on="token", how="inner", validate="1:1"),
        (table.select("token") for table in tables),
    ).sort("token")
    if common.height < 2:
        return pl.DataFrame(schema=_SCHEMA)
    columns = []
    for table in tables:
        own = common.join(table, on="token", how="left", validate="1:1", maintain_order="left")
        columns.append([ranks.percentiles(own[model].to_numpy()) for model in models])
    cube = np.array(columns).transpose(2, 1, 0)
    rows = zip(COMPONENTS, *shares(cube), estimates(cube), strict=True)
    return pl.DataFrame(list(rows), schema=_SCHEMA, orient="row")


def sums_of_squares(cube: np.ndarray) -> np.ndarray:
    """What each thing adds to the sum of squares of `cube` [T, M, P]; float64 [T, 4].

    Columns in the order of `COMPONENTS`. Each model × prompt is centred first.
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


def shares(cube: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares of the sum of squares of `cube` [T, M, P], and their interval; float64 [4] each.

    The interval takes the tokens as drawn and the share as a ratio (delta method).
    """
    parts = sums_of_squares(cube)
    total = parts.sum()
    if total == 0:
        nan = np.full(4, math.nan)
        return nan, nan, nan
    share = parts.sum(axis=0) / total
    left = parts - share * parts.sum(axis=1, keepdims=True)
    error = np.sqrt(len(parts) * left.var(axis=0, ddof=1)) / total
    half = scipy.stats.norm.ppf(0.5 + level / 2) * error
    return share, np.maximum(share - half, 0.0), np.minimum(share + half, 1.0)


def estimates(cube: np.ndarray) -> np.ndarray:
    """Variance components of `cube` [T, M, P], all effects random; float64 [4], may be below 0.

    From the expected mean squares of the crossed design without replicates; one effect a token
    and cell is not told from noise.
    """
    size, models, prompts = cube.shape
    free = (size - 1) * np.array([1, models - 1, prompts - 1, (models - 1) * (prompts - 1)])
    if free[-1] == 0:
        return np.full(4, math.nan)
    token, model, prompt, rest = sums_of_squares(cube).sum(axis=0) / free
    return np.array(
        [
            (token - model - prompt + rest) / (models * prompts),
            (model - rest) / prompts,
            (prompt - rest) / models,
            rest,
        ]
    )
