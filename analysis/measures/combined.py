"""Rewards under a good and a bad prompt: side by side, their sum and their difference."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import polars as pl

from analysis.run import Run
from analysis.study import NO_VOCABULARY, Absent, Study

Combined: TypeAlias = Literal["sum", "difference"]
COMBINED: tuple[Combined, ...] = ("sum", "difference")
NEITHER = "No model was scored under both “{}” and “{}”."
TOO_FEW = "Too few tokens were scored under both “{}” and “{}”."
_BAD = " (bad)"  # no slug has a space


def prompts_of(study: Study) -> tuple[str, str]:
    """Ids of the good and the bad prompt."""
    good, bad = study.options.framing
    if good not in study.run.vocabulary_prompts and bad != "greatest":
        good = "greatest"
    return good, bad


def scored_prompts(study: Study) -> tuple[str, str]:
    """Ids of the good and the bad prompt.

    Raises:
      Absent: no model scored its vocabulary under both.
    """
    prompts = prompts_of(study)
    if not study.run.results:
        raise Absent(NO_VOCABULARY)
    if not with_both(study.run, study.scored, prompts):
        raise Absent(NEITHER.format(*prompts))
    return prompts


def combined(good: pl.DataFrame, bad: pl.DataFrame, how: Combined) -> pl.DataFrame:
    """The sum, or the difference (good less bad), of two tables of numbers.

    Both have a key without duplicates (such as token_id), then columns of numbers. Of the keys and
    the columns that both have, float64; sorted by the key.
    """
    key, *names = good.columns
    names = [name for name in names if name in bad.columns]
    joined = good.join(bad, on=key, how="inner", validate="1:1", suffix=_BAD).sort(key)
    sign = 1 if how == "sum" else -1
    return joined.select(
        key,
        *(pl.col(n).cast(pl.Float64) + sign * pl.col(n + _BAD).cast(pl.Float64) for n in names),
    )


def with_both(run: Run, models: Sequence[str], prompts: tuple[str, str]) -> list[str]:
    """The models that were scored under both prompts."""
    return [m for m in models if all((m, prompt) in run.results for prompt in prompts)]


def rewards_of(run: Run, model: str, prompt: str) -> pl.DataFrame:
    """token_id, and the float64 reward of a model's whole vocabulary under one prompt."""
    schema = {"token_id": pl.UInt32, "reward": pl.Float64}
    return pl.DataFrame(list(run.rewards(model, prompt)), schema=schema, orient="col")
