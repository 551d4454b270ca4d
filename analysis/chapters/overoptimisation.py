"""Optimise one model's reward exactly and read another's: where more optimisation does harm.

After *Scaling Laws for Reward Model Overoptimization* (Gao et al. 2022, arXiv 2210.10760). The gold
reward is here any other model of the run, and the curves are exact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import polars as pl

from analysis.blocks import PROMPT, Block, Column, Finding, Heading, Picture, Section, notes, rows
from analysis.chapters.items import FEW
from analysis.chapters.items_agreement import file_name
from analysis.chapters.policies import (
    asked_of,
    drawn,
    in_percent,
    known_replies,
    not_drawn,
    place_of,
    reason,
)
from analysis.figures import climbs
from analysis.measures.overoptimisation import (
    CURVES,
    ENSEMBLES,
    LEAST_LOSS,
    LOSSES,
    TURNS,
    curves_of,
    ensembles_of,
    losses_of,
    pairs_of,
    with_p,
)
from analysis.measures.reference_policy import KLS, LIST, Replies
from analysis.sentences import decimals
from analysis.significant_effects import ALPHA
from analysis.statistics.multiplicity import with_q
from analysis.study import Absent, Study, Table, required, table
from engine.runs.schema import Columns

_AGREE = 0.5  # correlation of two rewards above which one may stand for the other
_SHOWN_KLS = [1.0, 4.0]
_LOSING = 10  # replies listed of each pair that turns down

# Each set of replies with its tables `curves_of` and `pairs_of`.
_Crossed: TypeAlias = list[tuple[Replies, pl.DataFrame, pl.DataFrame]]


def tables(study: Study) -> Iterator[Table]:
    """overoptimisation.csv, and overoptimisation_pairs, _replies and _ensembles.csv."""
    crossed = functools.cache(partial(_crossed, study))
    made: dict[str, Callable[[], pl.DataFrame]] = {
        "overoptimisation": lambda: _joined(CURVES, (curves for _, curves, _ in crossed())),
        "overoptimisation_pairs": lambda: with_q(pl.concat(pairs for _, _, pairs in crossed())),
        "overoptimisation_replies": lambda: required(
            _joined(LOSSES, (losses_of(r, p, _LOSING) for r, _, p in crossed())),
            "No model’s reward falls while another’s is optimised.",
        ),
        "overoptimisation_ensembles": lambda: required(
            _joined(ENSEMBLES, (ensembles_of(replies) for replies, _, _ in crossed())),
            "Ensembles take three reward models.",
        ),
    }
    for name, make in made.items():
        yield table(name, make=make)


def _crossed(study: Study) -> _Crossed:
    known = known_replies(study)
    several = [replies for replies in known if len(replies.models) > 1]
    if not several:
        raise Absent(_TWO_MODELS if known else reason(study))
    curves = [curves_of(replies) for replies in several]
    seed = study.options.seed
    return [
        (r, own, with_p(r, pairs_of(r, own), _AGREE, seed))
        for r, own in zip(several, curves, strict=True)
    ]


_TWO_MODELS = (
    "Over-optimisation takes two reward models with the tokens and the prompt of one language "
    "model."
)


def _joined(schema: Columns, frames: Iterator[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=schema), *frames])


def section(study: Study) -> Section:
    """Curves of the read reward, the pairs, what carries the losses, and ensembles."""
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
        title = "The replies that carry the losses"
        losing = made.get("overoptimisation_replies")
        if losing is not None:
            losing = in_percent(losing, "at_peak", "at_last")
        blocks += rows(losing, _LOSSES, "overoptimisation_replies.csv", title)
        blocks += notes([made.reason("overoptimisation_replies")])
        ensembles = made.get("overoptimisation_ensembles")
        if ensembles is not None:
            some = ensembles.filter(pl.col("kl").is_in(_SHOWN_KLS))
            title = "Ensembles of the other models, and each alone"
            blocks += rows(some, _ENSEMBLES, "overoptimisation_ensembles.csv", title)
        blocks += notes([made.reason("overoptimisation_ensembles")])
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
    made = study.tables
    curves = made["overoptimisation"].filter(of=of, prompt=prompt)
    blocks: list[Block] = [Heading(place_of(of, prompt))]
    caption = (
        "Each panel: the model whose reward is optimised. Lines: the rise of the rewards of all "
        "models, in standard deviations under the language model, against the KL from it. The "
        "thick line is the optimised reward itself, which cannot fall. Where a line turns down, "
        "more of the one reward costs the other; q in the table of pairs says whether by more "
        f"than chance. Lines end at {KLS[-1]:g} nats, or where no policy is further away. At most "
        f"{climbs.MOST} models have a panel."
    )
    draw = partial(climbs.crossed, curves, study.names)
    blocks.append(Picture(f"overoptimisation_{file_name(of)}_{prompt}", caption, draw))
    ensembles = made.get("overoptimisation_ensembles")
    own = None if ensembles is None else ensembles.filter(of=of, prompt=prompt)
    if own is not None and own.height:
        caption = (
            "Each panel: a model that is read and not optimised. Lines: what it gains where the "
            "other models are optimised together, as their mean, their lower quartile or their "
            "minimum, or one by one (the mean of the gains, as far as each of them gets)."
        )
        draw = partial(climbs.ensembles, own, study.names)
        blocks.append(Picture(f"ensembles_{file_name(of)}_{prompt}", caption, draw))
    return blocks


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
_ENSEMBLES: tuple[Column, ...] = (
    ("of", "replies of", "text"),
    PROMPT,
    ("read", "read", "model"),
    ("optimised", "optimised", "text"),
    ("models", "models", "count"),
    ("kl", "KL, nats", "number"),
    ("gain", "gain, sd", "fixed"),
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
_LOSSES: tuple[Column, ...] = (
    *_PAIR,
    ("rank", "rank", "count"),
    ("reply", "reply", "token"),
    ("at_peak", "at peak, %", "number"),
    ("at_last", "at last KL, %", "number"),
    ("optimised_reward", "optimised reward, sd", "fixed"),
    ("read_reward", "read reward, sd", "fixed"),
    ("loss", "loss, sd", "fixed"),
)
