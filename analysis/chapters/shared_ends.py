"""Top and bottom tokens, sums and differences on the shared vocabulary (Tables A7-A9).

The chapters of tokens and of framing rank each model's whole vocabulary. Here every model ranks the
same strings, so that the lists of two models can be compared line by line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import polars as pl

from analysis.blocks import (
    TOKENS,
    Block,
    Folded,
    Heading,
    Section,
    notes,
    rows,
    side_by_side,
)
from analysis.chapters.framing import prompts_of
from analysis.chapters.tokens import NOTHING_SHARED
from analysis.ends import TOKEN_ENDS, both_ends
from analysis.measures.combined import COMBINED, Combined, combined
from analysis.study import NO_VOCABULARY, Absent, Study, Table, required, table
from engine.runs.schema import Columns

_ENDS: Columns = {**TOKEN_ENDS, "reward": pl.Float64}
_OFF = "The lists on the shared vocabulary were not asked for (options.shared_ends)."


def tables(study: Study) -> Iterator[Table]:
    """shared_top_bottom_<prompt>.csv, shared_sum.csv and shared_difference.csv, if asked for."""
    if not study.options.shared_ends:
        return
    for prompt in study.run.vocabulary_prompts:
        yield table("shared_top_bottom", prompt, make=partial(_of_prompt, study, prompt))
    for how in COMBINED:
        yield table(f"shared_{how}", make=partial(_of_both, study, how))


def shared_top_bottom(
    shared: pl.DataFrame, rewards: pl.DataFrame, models: Sequence[str], count: int
) -> pl.DataFrame:
    """The `count` highest and lowest tokens of each model among the shared ones (Table A7).

    Args:
      shared: the table of `tokens.shared_vocabulary`.
      rewards: token, and one column of numbers per model, as `tokens.shared_rewards` returns.
      models: slugs in the order of the rows; those without a column are left out.
      count: tokens at each end. The ends overlap where fewer than twice as many are shared.

    Returns:
      model, end ("top" or "bottom"), rank (1 is the extreme), token_id (the model's own), token,
      reward. Ties go to the lower token_id.
    """
    frames = [pl.DataFrame(schema=_ENDS)]
    for model in models:
        if model in rewards.columns:
            own = rewards.select("token", reward=pl.col(model).cast(pl.Float64))
            ids = shared.select("token", token_id=model)
            named = own.join(ids, on="token", how="inner", validate="1:1").sort("token_id")
            ends = both_ends(named, "reward", count).with_columns(model=pl.lit(model))
            frames.append(ends.select(list(_ENDS)))
    return pl.concat(frames)


def _of_prompt(study: Study, prompt: str) -> pl.DataFrame:
    return _ends(study, study.tables["shared_rewards", prompt])


def _of_both(study: Study, how: Combined) -> pl.DataFrame:
    prompts = prompts_of(study)
    good, bad = (study.tables.get("shared_rewards", prompt) for prompt in prompts)
    reason = "No model was scored under both “{}” and “{}”.".format(*prompts)
    if good is None or bad is None:
        raise Absent(reason)
    both = combined(good, bad, how)
    if both.width == 1:
        raise Absent(reason)
    return _ends(study, both)


def _ends(study: Study, numbers: pl.DataFrame) -> pl.DataFrame:
    """`shared_top_bottom` of the study's models; absent where they share nothing."""
    shared = study.tables["shared_vocabulary"]
    ends = shared_top_bottom(shared, numbers, study.scored, study.settings.top)
    return required(ends, NOTHING_SHARED)


def section(study: Study) -> Section:
    """Both ends of each model on the same strings, side by side."""
    made = study.tables
    blocks: list[Block] = []
    for (prompt,), ends in made.of("shared_top_bottom").items():
        title = f"“{study.run.prompts[prompt]}”"
        blocks += _lists(study, ends, f"shared_top_bottom_{prompt}", title)
    for how in COMBINED:
        ends_of_both = made.get(f"shared_{how}")
        if ends_of_both is not None:
            good, bad = prompts_of(study)
            sign = "plus" if how == "sum" else "minus"
            title = f"Reward under “{good}” {sign} reward under “{bad}”"
            blocks += _lists(study, ends_of_both, f"shared_{how}", title)
    return Section(
        id="shared-ends",
        title="Top and bottom tokens of the shared vocabulary",
        label="Shared tokens",
        lead="The highest and lowest tokens of each model among the strings that every model has "
        "as exactly one token. All models rank the same strings here, so their lists can be "
        "compared.",
        blocks=[*blocks, *notes(_reasons(study))],
        caveats=("A token that one model has and another lacks is not listed, however extreme.",),
    )


def _reasons(study: Study) -> list[str]:
    """Why tables are absent."""
    if not study.scored:
        return [NO_VOCABULARY]
    if not study.options.shared_ends:
        return [_OFF]
    absent = study.tables.absent.items()
    return [reason for key, reason in absent if key[0].startswith("shared_")]


def _lists(study: Study, ends: pl.DataFrame, stem: str, title: str) -> list[Block]:
    """The lists side by side and, folded, as a table."""
    both = side_by_side(ends, study.settings.figure_top)
    columns = (*TOKENS, ("reward", "reward", "number"))
    return [
        Heading(title),
        Folded(f"The first {len(both[0].rows)} side by side", both),
        *rows(ends, columns, f"{stem}.csv", "All of them, to sort and filter"),
    ]
