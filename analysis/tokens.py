"""Tokens across vocabularies: what the models share, and what each ranks first and last."""

import functools
from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis import ranks
from analysis.load import Run
from analysis.manifests import RunError
from engine.runs.schema import Columns

ENDS: Columns = {
    "model": pl.String,
    "end": pl.String,
    "rank": pl.UInt32,
    "token_id": pl.UInt32,
    "token": pl.String,
}


def shared_vocabulary(
    run: Run, *, trim: bool = False, fold_case: bool = False, round_trip: bool = False
) -> pl.DataFrame:
    """The strings that exactly one token of every model decodes to (the table of that name).

    Case and spaces count unless told otherwise. A string that comes from more than one id in
    any vocabulary is dropped, for no rule would say which of its scores to take (PAPER.md,
    "Analyses"); that is decided after trimming and folding, which therefore drop words that
    have several spellings.

    Args:
      run: the run.
      trim: strip outer white space first.
      fold_case: fold case first.
      round_trip: take only tokens whose text tokenises to themselves.

    Returns:
      token, and a column a model (named by its slug, in sorted order) with the token_id there;
      sorted by token. No rows where the models share nothing.

    Raises:
      RunError: `round_trip`, and a vocabulary does not know it (imported scores).
    """
    text = pl.col("token")
    text = text.str.strip_chars() if trim else text
    text = text.str.to_lowercase() if fold_case else text
    models = run.vocabulary_models
    if not models:
        return pl.DataFrame(schema={"token": pl.String})
    first = {run.same_vocabulary(slug): slug for slug in sorted(models, reverse=True)}
    unique = {key: _unambiguous(run, slug, text, round_trip) for key, slug in first.items()}
    frames = [unique[run.same_vocabulary(slug)].rename({"token_id": slug}) for slug in models]
    return functools.reduce(_on_token, frames).sort("token")


def shared_rewards(
    run: Run, shared: pl.DataFrame, prompt: str, models: Sequence[str] | None = None
) -> pl.DataFrame:
    """Rewards of the shared vocabulary under one prompt, one row a token.

    Args:
      run: the run.
      shared: the table of `shared_vocabulary`.
      prompt: id of the prompt.
      models: slugs, in the order of the columns; all that were scored under it by default.

    Returns:
      token, and a float32 column a model; sorted by token. Tokens that one of the models has
      not scored are left out.
    """
    frames = []
    for model in run.models_under(prompt) if models is None else models:
        ids, rewards = run.rewards(model, prompt)
        scores = pl.DataFrame(
            {"token_id": ids, model: rewards}, schema={"token_id": pl.UInt32, model: pl.Float32}
        )
        named = shared.select("token", token_id=model)
        frames.append(named.join(scores, on="token_id", how="inner", validate="1:1"))
    frames = [frame.drop("token_id") for frame in frames]
    return functools.reduce(_on_token, frames).sort("token")


def top_bottom(run: Run, prompt: str, count: int, models: Sequence[str]) -> pl.DataFrame:
    """The `count` highest and lowest tokens of each model's own, raw vocabulary.

    Args:
      run: the run.
      prompt: id of the prompt.
      count: tokens an end. Ends overlap where the vocabulary is smaller than twice that.
      models: slugs in the order of the rows; those not scored under the prompt are left out.

    Returns:
      The table `top_bottom_<prompt>.csv`: model, end ("top" or "bottom"), rank (1 is the
      extreme), token_id, token, reward. Ties go to the lower token_id.
    """
    empty = pl.DataFrame(schema={**ENDS, "reward": pl.Float32})
    frames = [
        ends(run, model, *run.rewards(model, prompt), count, "reward")
        for model in models
        if (model, prompt) in run.results
    ]
    return pl.concat([empty, *frames])


def ends(
    run: Run, model: str, ids: np.ndarray, values: np.ndarray, count: int, name: str
) -> pl.DataFrame:
    """The `count` highest and lowest of `values` [N], which belong to ascending token `ids` [N].

    Returns:
      model, end ("top" or "bottom"), rank (1 is the extreme), token_id, token and the values
      under `name`. Ties go to the lower token_id.
    """
    frames = []
    for end in ("top", "bottom"):
        places = ranks.extremes(values, count, highest=end == "top")
        rank = np.arange(1, len(places) + 1, dtype=np.uint32)
        columns = {"rank": rank, "token_id": ids[places], name: values[places]}
        frames.append(pl.DataFrame({"end": [end] * len(places), **columns}))
    named = run.vocabulary(model).select("token_id", "token").collect()
    joined = pl.concat(frames).join(
        named, on="token_id", how="left", validate="m:1", maintain_order="left"
    )
    return joined.select(pl.lit(model).alias("model"), *list(ENDS)[1:], name)


def _unambiguous(run: Run, model: str, text: pl.Expr, round_trip: bool) -> pl.DataFrame:
    vocabulary = run.vocabulary(model).collect()
    if round_trip:
        if vocabulary["round_trip"].null_count():
            raise RunError(f"{model}: its vocabulary does not say which tokens round-trip")
        vocabulary = vocabulary.filter(round_trip="same")
    found = vocabulary.select(text.alias("token"), "token_id")
    return found.filter(~pl.col("token").is_duplicated())


def _on_token(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    return left.join(right, on="token", how="inner", validate="1:1")
