"""The tokens at both ends of each model's ranking (Tables A1-A3).

Under each prompt, and by the sum and the difference under a good and a bad prompt. Of language
models, by log-probability.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import polars as pl

from analysis.blocks import Block, Folded, Heading, Picture, Under
from analysis.charts.token_bars import token_bars
from analysis.columns import TOKENS, Column, Spec
from analysis.ends import token_ends
from analysis.measures.combined import (
    COMBINED,
    TOO_FEW,
    Combined,
    combined,
    prompts_of,
    rewards_of,
    scored_prompts,
    with_both,
)
from analysis.measures.shared_tokens import shared_rewards, shared_vocabulary
from analysis.run import Run
from analysis.study import NO_VOCABULARY, Absent, Analysis, Study, Table, required, table

_PAGE = "model end rank token token_id reward"
_OF = {"sum": "good prompt plus bad prompt", "difference": "good prompt minus bad prompt"}
_REWARD = Column("reward", "number")
TOP_BOTTOM = Spec("top_bottom_<prompt>", (*TOKENS, _REWARD.but(dtype=pl.Float32)), _PAGE)
FRAMING = {
    how: Spec(f"framing_{how}", (*TOKENS, _REWARD.but(title=how, help=_OF[how])), _PAGE)
    for how in COMBINED
}
_LOGPROB = Column("logprob", "number", "log-probability", "natural")
LOGPROBS = Spec(
    "logprobs_<prompt>",
    (*TOKENS, _LOGPROB.but(dtype=pl.Float32)),
    page="model end rank token token_id logprob",
)


def _tables(study: Study) -> Iterator[Table]:
    """For other chapters: ("shared_rewards", prompt), without rows where models share nothing."""
    run, top = study.run, study.settings.top
    yield table(
        "shared_vocabulary", make=lambda: shared_vocabulary(run).select("token", *study.scored)
    )
    for prompt in run.vocabulary_prompts:
        yield table("shared_rewards", prompt, make=partial(_rewards, study, prompt), file=False)
        yield table("top_bottom", prompt, make=partial(top_bottom, run, prompt, top, study.scored))
    for how in COMBINED:
        yield table(FRAMING[how].name, make=partial(_framing, study, how))
    for prompt in dict.fromkeys(prompt for _, prompt in run.logprobs):
        yield table("logprobs", prompt, make=partial(logprobs_ends, run, prompt, top))


def top_bottom(run: Run, prompt: str, count: int, models: Sequence[str]) -> pl.DataFrame:
    """The table `TOP_BOTTOM`: both ends of each model's whole vocabulary under one prompt.

    Args:
      run: the run.
      prompt: id of the prompt.
      count: tokens at each end. The ends overlap where the vocabulary is smaller than twice that.
      models: slugs in the order of the rows; those not scored under the prompt are left out.
    """
    return TOP_BOTTOM.concat(
        token_ends(run, model, run.rewards(model, prompt), count, TOP_BOTTOM)
        for model in models
        if (model, prompt) in run.results
    )


def framing_ends(
    run: Run, models: Sequence[str], prompts: tuple[str, str], count: int, how: Combined
) -> pl.DataFrame:
    """The table `FRAMING`: both ends of the sum, or the difference, of rewards under two prompts.

    Args:
      run: the run.
      models: slugs in the order of the rows; those not scored under both prompts are left out.
      prompts: ids of the good and the bad prompt.
      count: tokens at each end.
      how: "sum", or "difference" (first prompt less second).
    """
    spec, frames = FRAMING[how], []
    for model in with_both(run, models, prompts):
        good, bad = (rewards_of(run, model, prompt) for prompt in prompts)
        frames.append(token_ends(run, model, combined(good, bad, how), count, spec))
    return spec.concat(frames)


def logprobs_ends(run: Run, prompt: str, count: int) -> pl.DataFrame:
    """The table `LOGPROBS`: both ends of each language model's next tokens under one prompt."""
    return LOGPROBS.concat(
        token_ends(run, model, _logprobs(run, model, prompt), count, LOGPROBS)
        for model, given in run.logprobs
        if given == prompt
    )


def _logprobs(run: Run, model: str, prompt: str) -> pl.DataFrame:
    return run.next_tokens(model, prompt).select("token_id", "logprob")


def _rewards(study: Study, prompt: str) -> pl.DataFrame:
    shared = study.tables["shared_vocabulary"]
    return shared_rewards(study.run, shared, prompt, study.scored_under(prompt))


def _framing(study: Study, how: Combined) -> pl.DataFrame:
    prompts = scored_prompts(study)
    ends = framing_ends(study.run, study.scored, prompts, study.settings.top, how)
    return required(ends, TOO_FEW.format(*prompts))


def _by_prompt(study: Study) -> Iterator[Block]:
    if not study.scored:
        raise Absent(NO_VOCABULARY)
    for (prompt,), ends in study.tables.of("top_bottom").items():
        heading = Heading(f"“{study.run.prompts[prompt]}”", prompt)
        yield Under(prompt, [heading, *_under(study, prompt, ends)])


def _under(study: Study, prompt: str, ends: pl.DataFrame) -> Iterator[Block]:
    quantiles = study.tables.get("quantiles")  # None without the chapter of distributions
    if quantiles is not None:
        starts = quantiles.filter(prompt=prompt)
        count = study.settings.figure_top
        draw = partial(token_bars, ends, study.names, count, "reward", "reward", starts)
        text = "Each model’s highest and lowest tokens. A bar is the distance from its median."
        yield Picture(f"top_bottom_{prompt}", text, draw)
    yield from TOP_BOTTOM.rows(ends, prompt)


def _of_both(study: Study) -> Iterator[Block]:
    """Both ends of the sum and of the difference, each behind its title."""
    made = {how: study.tables[spec.name] for how, spec in FRAMING.items()}
    good, bad = (study.prompt_names[prompt] for prompt in prompts_of(study))
    for how, ends in made.items():
        what = f"{how} of the rewards under {good} and {bad}"
        count = study.settings.figure_top
        draw = partial(token_bars, ends, study.names, count, "reward", what)
        picture = Picture(f"framing_{how}", f"Tokens with the highest and the lowest {what}.", draw)
        yield Folded(what.capitalize(), [picture, *FRAMING[how].rows(ends)])


def _logprobs_drawn(study: Study) -> Iterator[Block]:
    for (prompt,), ends in study.tables.of("logprobs").items():
        question = study.prompt_names[prompt]
        caption = f"The most and least probable next tokens of language models to {question}."
        top = study.settings.figure_top
        draw = partial(token_bars, ends, study.names, top, "logprob", "log-probability")
        picture = Picture(f"logprobs_{prompt}", caption, draw)
        title = f"Most and least probable next tokens to {question}"
        yield Folded(title, [picture, *LOGPROBS.rows(ends, prompt)])


ANALYSIS = Analysis(
    id="tokens",
    title="Top and bottom tokens",
    label="Tokens",
    lead="The highest and lowest tokens of each model’s own vocabulary, special and unused "
    "tokens included. ␣ is a space, ↵ a line end; other invisible characters show their code "
    "point.",
    make=_tables,
    parts=(_by_prompt, _of_both, _logprobs_drawn),
    caveats=lambda study: ("The sum of two prompts weighs the one whose rewards vary more.",),
)
