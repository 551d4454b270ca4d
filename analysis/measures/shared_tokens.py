"""Strings that exactly one token of every model decodes to, and their rewards."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis.run import Run, places
from analysis.statistics import Array
from analysis.statistics.ranks import Ranking
from analysis.words.stems import stem_numbers
from engine.runs.schema import Columns

NOTHING_SHARED = "The models share no tokens, so their orders cannot be compared."


def shared_vocabulary(run: Run) -> pl.DataFrame:
    """The strings that exactly one token of every model decodes to.

    Case and spaces count. A string that comes from more than one id in any vocabulary is dropped,
    because no rule would say which of its scores to take.

    Returns:
      token, and one column per model (named by its slug, in the order of the run) with the
      token_id there; sorted by token. No rows where the models share nothing.
    """
    models = run.vocabulary_models
    if not models:
        return pl.DataFrame(schema={"token": pl.String})
    first = {run.same_vocabulary(slug): slug for slug in reversed(models)}
    unique = {key: _unambiguous(run, slug) for key, slug in first.items()}
    frames = [unique[run.same_vocabulary(slug)].rename({"token_id": slug}) for slug in models]
    joined = frames[0]
    for frame in frames[1:]:
        joined = joined.join(frame, on="token", how="inner", validate="1:1")
    return joined.sort("token")


def shared_rewards(
    run: Run, shared: pl.DataFrame, prompt: str, models: Sequence[str] | None = None
) -> pl.DataFrame:
    """Rewards of the table of `shared_vocabulary` under one prompt, one row per token.

    token, and one float32 column per model, in the order of `models` (all that were scored under
    the prompt by default); sorted by token. Tokens that are not scored by every model are left out.
    """
    scored = np.ones(shared.height, dtype=np.bool_)
    columns: dict[str, Array] = {}
    for model in run.models_under(prompt) if models is None else models:
        token_ids, rewards = run.rewards(model, prompt)
        at, known = places(token_ids, shared[model].to_numpy())
        scored &= known
        columns[model] = rewards[at]
    types: Columns = dict.fromkeys(columns, pl.Float32)
    table = shared.select("token").hstack(pl.DataFrame(columns, schema=types))
    return table.filter(scored).sort("token")


def shared_rankings(
    run: Run, shared: pl.DataFrame, prompt: str, tokens: pl.Series
) -> dict[str, Ranking]:
    """Slug -> the ranking of the `tokens` of `shared_rewards` under one prompt, in their order."""
    kept = shared.sort("token").filter(pl.col("token").is_in(tokens.implode()))
    models = run.models_under(prompt)
    return {model: run.ranked(model, prompt, kept[model].to_numpy()) for model in models}


def stems_of(run: Run, model: str, token_ids: Array) -> Array:
    """Number of the stem of each of a model's tokens (ascending ids [N]), by `stem_numbers`."""
    vocabulary = run.vocabulary(model).collect()
    known = np.searchsorted(vocabulary["token_id"].to_numpy(), token_ids)
    return stem_numbers(vocabulary["token"][known])


def _unambiguous(run: Run, model: str) -> pl.DataFrame:
    tokens = run.vocabulary(model).collect().select("token", "token_id")
    return tokens.filter(~pl.col("token").is_duplicated())
