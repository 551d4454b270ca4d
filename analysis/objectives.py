"""What a reward is made of: a model's objectives, how they are weighed, and what each likes.

Of sweeps with `--config.objectives=values` or `quantiles` (ArmoRM, QRM, URM).
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from analysis import ranks
from analysis.load import Run
from analysis.manifests import Result
from engine.runs.schema import Columns

REWARD = "reward"
_CELL: Columns = {"model": pl.String, "prompt": pl.String, "objective": pl.String}
_NUMBERS = ("weight", "pearson", "spearman", "share", "spread")
_ENDS: Columns = {
    "end": pl.String,
    "rank": pl.UInt32,
    "token_id": pl.UInt32,
    "token": pl.String,
    "value": pl.Float32,
}


def objectives_table(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """Each objective of each model against the reward, over the model's whole vocabulary.

    Args:
      run: the run.
      models: slugs in the order of the rows; those without objectives are left out.

    Returns:
      The table `objectives.csv`: model, prompt, objective, n (tokens), weight (the gate's
      coefficient under the prompt: the reward is the sum of weight × objective; null without a
      gate), pearson and spearman (with the reward), share (of the reward's variance that the
      objective carries: weight × covariance with the reward / variance of the reward; they sum to
      1, and one that pulls against the reward is below 0), spread (mean distance from its lowest
      to its highest quantile; null where quantiles were not asked for). A gated model that was
      swept without its objectives has its weights alone. By model, prompt, then as the model
      orders its objectives.
    """
    rows = []
    for result in _results(run, models):
        weights = result.coefficients or {}
        scores = run.objectives(result.model, result.prompt) if result.objectives else None
        for name in _names(result):
            about = dict(zip(_CELL, (result.model, result.prompt, name), strict=True))
            found = {} if scores is None else _against_reward(scores, name, weights.get(name))
            rows.append({**about, "weight": weights.get(name), **found})
    return pl.DataFrame(rows, schema=_CELL | {"n": pl.Int64} | dict.fromkeys(_NUMBERS, pl.Float64))


def objectives_spearman(run: Run, model: str, prompt: str) -> pl.DataFrame:
    """Spearman's rho of the reward and the objectives of a model with each other.

    Returns:
      The table `objectives_<model>_<prompt>.csv`: a square one whose first column is `objective`,
      the reward first. NaN where one is the same for every token.
    """
    scores = run.objectives(model, prompt)
    names = [REWARD, *_names(run.results[model, prompt])]
    order = [ranks.average_ranks(scores[name].to_numpy()) for name in names]
    matrix = np.array([[ranks.pearson(x, y) for x in order] for y in order])
    schema: Columns = {"objective": pl.String, **dict.fromkeys(names, pl.Float64)}
    return pl.DataFrame([names, *matrix], schema=schema)


def objectives_ends(run: Run, models: Sequence[str], count: int) -> pl.DataFrame:
    """The `count` highest and lowest tokens of each objective, over the whole vocabulary.

    Returns:
      The table `objectives_tokens.csv`: model, prompt, objective, end ("top" or "bottom"), rank
      (1 is the extreme), token_id, token, value. Ties go to the lower token_id.
    """
    frames = [pl.DataFrame(schema=_CELL | _ENDS)]
    for result in _results(run, models):
        if not result.objectives:
            continue
        scores = run.objectives(result.model, result.prompt)
        for name in _names(result):
            about = zip(_CELL, (result.model, result.prompt, name), strict=True)
            named = {key: pl.lit(value) for key, value in about}
            for end in ("top", "bottom"):
                places = ranks.extremes(scores[name].to_numpy(), count, highest=end == "top")
                part = scores[places].with_columns(
                    end=pl.lit(end), rank=pl.int_range(1, pl.len() + 1, dtype=pl.UInt32), value=name
                )
                frames.append(part.select(**named, **{key: pl.col(key) for key in _ENDS}))
    return pl.concat(frames)


def _results(run: Run, models: Sequence[str]) -> Iterator[Result]:
    """Results over a vocabulary that know of objectives, by model, then by prompt."""
    for model in models:
        for prompt in run.vocabulary_prompts:
            result = run.results.get((model, prompt))
            if result is not None and _names(result):
                yield result


def _names(result: Result) -> list[str]:
    """Objectives of a result without their quantiles, which are columns like `<objective>-q01`."""
    columns = list(result.objectives)
    quantiles = {name for objective in columns for name in _quantiles(columns, objective)}
    return [name for name in columns if name not in quantiles] or list(result.coefficients or {})


def _quantiles(columns: Sequence[str], objective: str) -> list[str]:
    """The columns of an objective's quantiles, lowest first."""
    pattern = re.compile(rf"{re.escape(objective)}-q\d+")
    return sorted(name for name in columns if pattern.fullmatch(name))


def _against_reward(scores: pl.DataFrame, name: str, weight: float | None) -> dict:
    x, reward = scores[name].to_numpy(), scores[REWARD].to_numpy()
    found = {
        "n": scores.height,
        "pearson": ranks.pearson(x, reward),
        "spearman": ranks.spearman(x, reward),
    }
    variance = float(np.var(reward, dtype=np.float64))
    if weight is not None and variance > 0:
        deviation = np.std(x, dtype=np.float64) / np.sqrt(variance)
        found["share"] = float(weight * deviation * found["pearson"]) if deviation > 0 else 0.0
    if quantiles := _quantiles(scores.columns, name):
        lowest, highest = (scores[end].to_numpy() for end in (quantiles[0], quantiles[-1]))
        found["spread"] = float((highest - lowest).mean(dtype=np.float64))
    return found
