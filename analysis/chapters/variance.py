"""Model or prompt: variance components of token percentiles."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Picture
from analysis.charts import look
from analysis.charts.shares import REST, shares
from analysis.columns import Column, Spec, ends
from analysis.statistics import ranks, variance
from analysis.statistics.variance import COMPONENTS
from analysis.study import Analysis, Study, required, table
from analysis.words.stems import stem_numbers

_SOURCES = "`token`, `token × model`, `token × prompt`, `token × model × prompt`"
VARIANCE = Spec(
    "variance",
    (
        Column("component", title="what differs", help=_SOURCES),
        Column("share", "share", "share of the sum of squares", "of the sum of squares; sums to 1"),
        *ends("share", "95 %, over words"),
        Column("estimate", "number", help="variance component"),
        Column("noise_share", "share", "share expected from noise", "that pure noise has"),
        Column("estimated_share", "share", "variance component, share", "of their sum"),
        *ends("share", "95 % for the first three together", "estimated"),
    ),
    page="component estimated_share estimated_low estimated_high share ci_low ci_high noise_share",
)
_COLOURS = dict(zip(COMPONENTS, (look.TOP, "#8877cc", look.BOTTOM, REST), strict=True))
_, _MODEL, _PROMPT, _ = COMPONENTS


def variance_table(rewards: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The table `VARIANCE`: variance of the tokens' percentiles, split by model and prompt.

    Percentiles, because rewards of two models have no common unit. So models and prompts have no
    effects of their own, only effects on tokens. Estimates are NaN for one model or one prompt. No
    rows for fewer than two tokens, or for one model under one prompt.

    Args:
      rewards: prompt -> its table of `tokens.shared_rewards`; only models that are in all tables
        count.
    """
    frames = list(rewards.values())
    models = [m for m in frames[0].columns[1:] if all(m in t.columns for t in frames)]
    common = functools.reduce(
        lambda a, b: a.join(b, on="token", how="inner", validate="1:1"),
        (frame.select("token") for frame in frames),
    ).sort("token")
    if len(models) * len(frames) < 2 or common.height < 2:
        return VARIANCE.frame([])
    each = [
        common.join(frame, on="token", how="left", validate="1:1", maintain_order="left")
        for frame in frames
    ]
    values = [[ranks.percentiles(joined[model].to_numpy()) for model in models] for joined in each]
    cube = np.array(values).transpose(2, 1, 0)
    stems = stem_numbers(common["token"])
    numbers = (
        *variance.shares(cube, stems)[:3],
        variance.estimates(cube),
        variance.noise_shares(*cube.shape[1:]),
        *variance.estimated_shares(cube, stems)[:3],
    )
    return VARIANCE.frame(zip(COMPONENTS, *numbers, strict=True))


def _variance(study: Study) -> pl.DataFrame:
    why = (
        "Variance is split over shared tokens and two models or two prompts at least; this run has "
        "too few."
    )
    rewards = {prompt: frame for (prompt,), frame in study.tables.of("shared_rewards").items()}
    common = {p: frame for p, frame in rewards.items() if frame.height and frame.width > 1}
    return required(variance_table(common) if common else VARIANCE.frame([]), why)


def _shown(study: Study) -> Iterator[Block]:
    split = study.tables[VARIANCE.name]
    caption = (
        "What the variance of a token’s percentile is made of. First corrected for noise (the last "
        "part cannot be told from noise); then the shares of the sum of squares, and those that "
        "pure noise has in as many models and prompts. A share below 0 is drawn as 0, so the first "
        "bar may pass 100."
    )
    yield Picture("variance", caption, partial(bars, split))
    yield from VARIANCE.rows(split)


def bars(split: pl.DataFrame) -> look.Chart:
    """Estimated shares, where there are any, then the shares of squares and those of pure noise."""
    kinds = {
        "corrected for noise": ("estimated_share", "estimated_low", "estimated_high"),
        "not corrected": ("share", "ci_low", "ci_high"),
        "pure noise": ("noise_share", None, None),
    }
    rows = [
        split.select("component", what=pl.lit(what), share=share, ci_low=low, ci_high=high)
        for what, (share, low, high) in kinds.items()
    ]
    known = pl.concat(rows, how="vertical_relaxed").filter(pl.col("share").is_not_nan())
    return shares(known, {}, "% of the variance of a token’s percentile", _COLOURS, row="what")


def findings(split: pl.DataFrame) -> Iterator[Finding]:
    """Whether model or prompt matters more, where intervals show it."""
    components = {row["component"]: row for row in split.iter_rows(named=True)}
    for more, less in ((_PROMPT, _MODEL), (_MODEL, _PROMPT)):
        high, low = components[more], components[less]
        if high["estimated_low"] > max(low["estimated_high"], 0):
            one, other = more.split()[-1], less.split()[-1]
            most, rest = (f"{100 * max(row['estimated_share'], 0):.0f}%" for row in (high, low))
            text = (
                f"Over these prompts and models together, where a token stands depends more on the "
                f"{one} than on the {other}: corrected for noise, {most} of the variance of its "
                f"percentile goes with the {one}, and {rest} with the {other}."
            )
            yield Finding(text=text, picture="variance")


def _described(study: Study) -> str:
    """The shares of the components, where they can be corrected for noise."""
    shares = study.tables[VARIANCE.name]["estimated_share"].clip(0, 1)
    if shares.is_nan().any():
        return ""
    token, model, prompt, rest = (f"{100 * share:.0f} %" for share in shares)
    return (
        f"Of the variance of a token’s percentile, corrected for noise, {token} goes with the "
        f"token under every model and prompt, {model} with the model, {prompt} with the prompt; "
        f"{rest} cannot be told from noise."
    )


ANALYSIS = Analysis(
    id="variance",
    title="Model or prompt",
    label="Variance",
    lead="How much of the variance of a token’s percentile is common to all models and prompts, "
    "specific to a model, and specific to a prompt. Pure noise has a part in every share of the "
    "sum of squares; the variance components are corrected for it.",
    make=lambda study: [table(VARIANCE.name, make=partial(_variance, study))],
    parts=(_shown,),
    described=_described,
    told=(lambda study: findings(study.tables[VARIANCE.name]),),
    caveats=lambda study: (
        "The last component contains the noise, because each token has one score per model and "
        "prompt.",
        "Models and prompts are taken as they are: intervals are over words (forms of one word "
        "together).",
    ),
    every_prompt=True,
)
