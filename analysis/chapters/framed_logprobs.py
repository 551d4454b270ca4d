"""A language model's log-probabilities under a good and a bad prompt (Tables A4 and A5).

A part of the chapter of language models.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import polars as pl

from analysis.blocks import TOKENS, Block, Column, notes, rows
from analysis.ends import TOKEN_ENDS, token_ends
from analysis.measures.combined import COMBINED, Combined, combined
from analysis.run import Run
from analysis.study import Study, Table, required, table
from engine.runs.schema import Columns

_ENDS: Columns = {**TOKEN_ENDS, "logprob": pl.Float64}
COLUMNS: Columns = {
    **dict.fromkeys(("model", "prompt_a", "prompt_b"), pl.String),
    **{name: kind for name, kind in _ENDS.items() if name != "model"},
}


def tables(study: Study) -> Iterator[Table]:
    """framing_logprobs_sum.csv and framing_logprobs_difference.csv; none without a model."""
    if study.run.logprobs:
        for how in COMBINED:
            yield table(f"framing_logprobs_{how}", make=partial(_ends_of, study, how))


def framed_logprobs(run: Run, prompts: tuple[str, str], count: int, how: Combined) -> pl.DataFrame:
    """Next tokens at both ends of the sum, or the difference, of two log-probabilities.

    Over each language model's whole vocabulary, as in the paper. The sum finds what is probable
    under both prompts; the difference is the logarithm of a ratio of probabilities.

    Args:
      run: the run.
      prompts: ids of the good and the bad prompt. Other forms of them (`best.chat`) are compared
        with each other.
      count: tokens at each end.
      how: "sum", or "difference" (first prompt less second).

    Returns:
      model, prompt_a, prompt_b, end ("top" or "bottom"), rank (1 is the extreme), token_id, token,
      logprob (natural; the sum or the difference); by model. Ties go to the lower token_id.
    """
    frames = [pl.DataFrame(schema=COLUMNS)]
    for model, a, b in _pairs(run, prompts):
        good, bad = (run.next_tokens(model, p).select("token_id", "logprob") for p in (a, b))
        token_ids, values = (column.to_numpy() for column in combined(good, bad, how))
        ends = token_ends(run, model, token_ids, values, count, _ENDS)
        keys = {"prompt_a": pl.lit(a), "prompt_b": pl.lit(b)}
        frames.append(ends.with_columns(**keys).select(list(COLUMNS)))
    return pl.concat(frames)


def _pairs(run: Run, prompts: tuple[str, str]) -> Iterator[tuple[str, str, str]]:
    """Model and ids of both prompts, for every language model and form that has both."""
    good, bad = prompts
    for model, asked in run.logprobs:
        form = asked.removeprefix(good)
        is_form = asked == good or (asked.startswith(good) and form.startswith("."))
        if is_form and (model, bad + form) in run.logprobs:
            yield model, asked, bad + form


def _ends_of(study: Study, how: Combined) -> pl.DataFrame:
    good, bad = _prompts(study)
    ends = framed_logprobs(study.run, (good, bad), study.settings.top, how)
    return required(ends, f"No language model was given both “{good}” and “{bad}” in one form.")


def _prompts(study: Study) -> tuple[str, str]:
    """Ids of the good and the bad prompt; "greatest" where no model was given the good one."""
    good, bad = study.options.framing
    known = any(_pairs(study.run, (good, bad)))
    return (good if known or bad == "greatest" else "greatest"), bad


def blocks(study: Study) -> list[Block]:
    """Both tables, and why they are absent."""
    made: list[Block] = []
    for how in COMBINED:
        key = f"framing_logprobs_{how}"
        title = f"The {how} of log-probabilities under a good and a bad prompt"
        columns = (*_PROMPTS, *TOKENS, ("logprob", how, "number"))
        made += rows(study.tables.get(key), columns, f"{key}.csv", title)
        made += notes([study.tables.reason(key)]) if how == "sum" else []
    return made


_PROMPTS: tuple[Column, ...] = (
    ("prompt_a", "prompt", "text"),
    ("prompt_b", "and prompt", "text"),
)
