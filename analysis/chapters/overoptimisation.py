"""Optimise one model's reward exactly and read another's: where more optimisation does harm.

After *Scaling Laws for Reward Model Overoptimization* (Gao et al. 2022, arXiv 2210.10760). The gold
reward is here any other model of the run, and the curves are exact.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import polars as pl

from analysis.blocks import PROMPT, Block, Column, Finding, Heading, Picture, Section, notes, rows
from analysis.chapters.items import FEW
from analysis.chapters.items_agreement import file_name
from analysis.chapters.policies import (
    asked_of,
    drawn,
    known_replies,
    not_drawn,
    place_of,
    reason,
)
from analysis.figures import climbs
from analysis.measures.overoptimisation import (
    LEAST_LOSS,
    TURNS,
    curves_of,
    pairs_of,
    with_p,
)
from analysis.measures.reference_policy import KLS, LIST
from analysis.sentences import decimals
from analysis.significant_effects import ALPHA
from analysis.statistics.inference import with_q
from analysis.study import Absent, Study, Table, table

_AGREE = 0.5  # correlation of two rewards above which one may stand for the other

# The tables `curves_of` and `pairs_of` of each set of replies.
_Crossed: TypeAlias = list[tuple[pl.DataFrame, pl.DataFrame]]


def tables(study: Study) -> Iterator[Table]:
    """overoptimisation.csv and overoptimisation_pairs.csv."""
    crossed = functools.cache(partial(_crossed, study))
    yield table("overoptimisation", make=lambda: pl.concat(curves for curves, _ in crossed()))
    yield table(
        "overoptimisation_pairs",
        make=lambda: with_q(pl.concat(pairs for _, pairs in crossed())),
    )


def _crossed(study: Study) -> _Crossed:
    known = known_replies(study)
    several = [replies for replies in known if len(replies.models) > 1]
    if not several:
        raise Absent(_TWO_MODELS if known else reason(study))
    curves = [curves_of(replies) for replies in several]
    seed = study.options.seed
    return [
        (own, with_p(r, pairs_of(r, own), _AGREE, seed))
        for r, own in zip(several, curves, strict=True)
    ]


_TWO_MODELS = (
    "Over-optimisation takes two reward models with the tokens and the prompt of one language "
    "model."
)


def section(study: Study) -> Section:
    """Curves of the read reward, then the pairs."""
    made = study.tables
    blocks: list[Block] = notes([made.reason("overoptimisation")])
    curves = made.get("overoptimisation")
    shown: list[tuple[str, str]] = []
    if curves is not None:
        shown = list(drawn(study, curves))
        blocks += notes(not_drawn(study, curves))
        for of, prompt in shown:
            blocks += _of_prompt(study, of, prompt)
        title = "Every pair: optimise the first, read the second"
        blocks += rows(
            made.get("overoptimisation_pairs"), _PAIRS, "overoptimisation_pairs.csv", title
        )
    return Section(
        id="overoptimisation",
        title="Over-optimisation",
        label="Over-optimisation",
        lead="A policy is trained on one model’s reward; another model reads what it says. Both "
        "are known for every reply, so the curve is exact: it shows how far the second reward "
        "rises, and where more training begins to cost.",
        blocks=blocks,
        caveats=(
            "The read model is no more right than the optimised one: a loss says that the two "
            "disagree about what the policy has moved to.",
        ),
        findings=findings(made.get("overoptimisation_pairs"), study.names, shown),
    )


def _of_prompt(study: Study, of: str, prompt: str) -> list[Block]:
    curves = study.tables["overoptimisation"].filter(of=of, prompt=prompt)
    caption = (
        "Each panel: the model whose reward is optimised. Lines: the rise of the rewards of all "
        "models, in standard deviations under the language model, against the KL from it. The "
        "thick line is the optimised reward itself, which cannot fall. Where a line turns down, "
        "more of the one reward costs the other; q in the table of pairs says whether by more "
        f"than chance. Lines end at {KLS[-1]:g} nats, or where no policy is further away. At most "
        f"{climbs.MOST} models have a panel."
    )
    draw = partial(climbs.crossed, curves, study.names)
    return [
        Heading(place_of(of, prompt)),
        Picture(f"overoptimisation_{file_name(of)}_{prompt}", caption, draw),
    ]


def findings(
    pairs: pl.DataFrame | None, names: Mapping[str, str], shown: Collection[tuple[str, str]]
) -> list[Finding]:
    """Among models that agree at first, how often optimisation turns down; none where it does not.

    Rewards that have nothing to do with each other rise and fall by chance, so only pairs whose
    correlation is above `_AGREE` count; of those, pairs that turn down by more than rewards that
    only rise together do by chance. A list under more than `FEW` prompts has one sentence.

    Args:
      pairs: `overoptimisation_pairs.csv`.
      names: slug -> nickname.
      shown: replies and prompt of each figure.
    """
    if pairs is None:
        return []
    found = []
    for of, prompts in asked_of(pairs):
        together = of.startswith(LIST) and len(prompts) > FEW
        for asked in [prompts] if together else [[prompt] for prompt in prompts]:
            own = pairs.filter(pl.col("prompt").is_in(asked), of=of)
            found += _finding(own, of, asked, names, shown)
    return found


def _finding(
    pairs: pl.DataFrame,
    of: str,
    prompts: Sequence[str],
    names: Mapping[str, str],
    shown: Collection[tuple[str, str]],
) -> Iterator[Finding]:
    """The sentence on one set of replies, under one prompt or under many together."""
    alike = pairs.filter(pl.col("correlation") > _AGREE)
    turned = alike.filter(pl.col("q") < ALPHA, course=TURNS)
    if turned.height == 0:
        return
    worst = turned.sort("loss", descending=True, maintain_order=True).row(0, named=True)
    place, counted, under = place_of(of, prompts[0]), "", ""
    if len(prompts) > 1:
        place = f"Over the list “{of.removeprefix(LIST)}”, under {len(prompts)} prompts"
        counted, under = " (counted under each prompt)", f"under “{worst['prompt']}”, "
    text = (
        f"{place}, {alike.height} ordered pairs of models{counted} have rewards that correlate "
        f"above {_AGREE:g} under the language model. In {turned.height} of them, training "
        "on the first raises the second’s reward, and then lowers it from there by "
        f"{LEAST_LOSS:g} standard deviations or more, up to a KL of {KLS[-1]:g} nats, and by "
        "more than chance does where two rewards only rise together (q < .05). Most: "
        f"{under}trained on {names[worst['optimised']]}, {names[worst['read']]} (correlation "
        f"{decimals(worst['correlation'])}) gains {decimals(worst['peak_gain'])} at "
        f"{worst['peak_kl']:g} nats and is at {decimals(worst['last_gain'])} at "
        f"{worst['last_kl']:g}."
    )
    stem = f"overoptimisation_{file_name(of)}_{worst['prompt']}"
    yield Finding(text=text, picture=stem if (of, worst["prompt"]) in shown else "")


_PAIR: tuple[Column, ...] = (
    ("of", "replies of", "text"),
    PROMPT,
    ("optimised", "optimised", "model"),
    ("read", "read", "model"),
)
_PAIRS: tuple[Column, ...] = (
    *_PAIR,
    ("correlation", "correlation", "fixed"),
    ("peak_kl", "peak at KL", "number"),
    ("peak_gain", "gain there, sd", "fixed"),
    ("last_kl", "last KL", "number"),
    ("last_gain", "gain there, sd", "fixed"),
    ("loss", "loss", "fixed"),
    ("q", "q", "p"),
    ("course", "the read reward", "text"),
)
