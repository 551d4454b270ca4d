"""Tokens across vocabularies: what the models share, and what each ranks first and last."""

import functools
from collections.abc import Sequence

import polars as pl

from analysis.load import Run


def shared_vocabulary(run: Run) -> pl.DataFrame:
    """The strings that exactly one token of every model decodes to (the table of that name).

    Case and spaces count. A string that decodes from more than one id in any vocabulary is
    dropped, for no rule would say which of its scores to take (PAPER.md, "Analyses").

    Returns:
      token, and a column a model (named by its slug, in sorted order) with the token_id there;
      sorted by token. No rows where the models share nothing.
    """
    first = {run.same_vocabulary(slug): slug for slug in sorted(run.models, reverse=True)}
    unique = {key: _unambiguous(run, slug) for key, slug in first.items()}
    frames = [unique[run.same_vocabulary(slug)].rename({"token_id": slug}) for slug in run.models]
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
        scores = pl.DataFrame({"token_id": ids, model: rewards})
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
    there = [model for model in models if (model, prompt) in run.results]
    frames = []
    for model in there:
        scores = run.scores(models=[model], prompts=[prompt]).collect()
        for end, descending in (("top", True), ("bottom", False)):
            best = scores.sort("reward", "token_id", descending=[descending, False]).head(count)
            rank = pl.int_range(1, best.height + 1, dtype=pl.UInt32, eager=True)
            best = best.with_columns(end=pl.lit(end), rank=rank)
            frames.append(best.select("model", "end", "rank", "token_id", "token", "reward"))
    return pl.concat(frames)


def _unambiguous(run: Run, model: str) -> pl.DataFrame:
    vocabulary = run.vocabulary(model).select("token", "token_id")
    return vocabulary.filter(~pl.col("token").is_duplicated()).collect()


def _on_token(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    return left.join(right, on="token", how="inner", validate="1:1")
