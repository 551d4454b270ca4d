"""Optimise one model's reward exactly and read another's: where more optimisation does harm.

After *Scaling Laws for Reward Model Overoptimization* (Gao et al. 2022, arXiv 2210.10760). The gold
reward is here any other model of the run, and the curves are exact.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from functools import partial

import polars as pl

from analysis.blocks import Block, Finding, Heading, Picture
from analysis.chapters.policies import (
    FEW,
    KL,
    MANY,
    asked_of,
    drawn,
    from_zero,
    known_replies,
    place_of,
    reason,
    stem_of,
)
from analysis.charts import look
from analysis.charts.lines import MOST, lines
from analysis.measures.overoptimisation import (
    CURVES,
    LEAST_LOSS,
    PAIRS,
    TURNS,
    curves_of,
    pairs_of,
    with_p,
)
from analysis.measures.reference_policy import KLS, LIST
from analysis.sentences import count
from analysis.significant_effects import ALPHA
from analysis.study import Absent, Analysis, Study, Table, table

_AGREE = 0.5  # Correlation of two rewards above which one may stand for the other.
_TWO_MODELS = (
    "Over-optimisation takes two reward models with the tokens and the prompt of one language "
    "model."
)


def _tables(study: Study) -> Iterator[Table]:
    """Two files."""
    crossed = functools.cache(partial(_crossed, study))
    yield table(CURVES.name, make=lambda: pl.concat(curves for curves, _ in crossed()))
    yield table(PAIRS.name, make=lambda: PAIRS.frame(pl.concat(pairs for _, pairs in crossed())))


def _crossed(study: Study) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    """What `curves_of` and `with_p` return of each set of replies."""
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


def _drawn(study: Study) -> Iterator[Block]:
    curves = study.tables[CURVES.name]
    caption = (
        "Each panel: the model whose reward is optimised. Lines: the rise of the rewards of all "
        "models, in standard deviations under the language model, against the KL from it. The "
        "thick line is the optimised reward itself, which cannot fall. Where a line turns down, "
        "more of the one reward costs the other; q in the table of pairs says whether by more "
        f"than chance. Lines end at {KLS[-1]:g} nats, or where no policy is further away. At most "
        f"{MOST} models are drawn."
    )
    for of, prompt in drawn(study, curves):
        own = curves.filter(of=of, prompt=prompt)
        yield Heading(place_of(study, of, prompt))
        yield Picture(stem_of(CURVES.name, of, prompt), caption, partial(crossed, own, study))
    yield from PAIRS.rows(study.tables[PAIRS.name])


def crossed(curves: pl.DataFrame, study: Study) -> look.Chart:
    """One panel for each optimised model: the gains of all models, at every other KL."""
    few = [model for model in study.names if model in curves["optimised"]][:MOST]
    last = pl.col("kl") == pl.col("kl").max().over("optimised")
    some = curves.filter(last | pl.col("kl").is_in(KLS[::2]), pl.col("read").is_in(few))
    each = [from_zero(some.filter(optimised=model), ("optimised", "read")) for model in few]
    shown = pl.concat(each).select(
        "kl",
        "gain",
        model="read",
        trained=pl.col("optimised").replace(look.unique(study.names)),
        itself=pl.col("read") == pl.col("optimised"),
    )
    titles = (KL, "gain, sd")
    return lines(shown, study.names, titles, x="kl", y="gain", panel="trained", thick="itself")


def findings(study: Study) -> Iterator[Finding]:
    """Among models that agree at first, how often optimisation turns down; none where it does not.

    Rewards that have nothing to do with each other rise and fall by chance, so only pairs whose
    correlation is above `_AGREE` count; of those, pairs that turn down by more than rewards that
    only rise together do by chance. A list under more than `FEW` prompts is counted once.
    """
    pairs = study.tables[PAIRS.name]
    for of, prompts in asked_of(pairs):
        together = of.startswith(LIST) and len(prompts) > FEW
        for asked in [prompts] if together else [[prompt] for prompt in prompts]:
            own = pairs.filter(pl.col("correlation") > _AGREE, of=of)
            own = own.filter(pl.col("prompt").is_in(asked))
            turned = own.filter(pl.col("q") < ALPHA, course=TURNS)
            if not turned.height:
                continue
            place = place_of(study, of, asked[0])
            if together:
                place = f"Over the {of.replace(' ', ' “', 1)}”, under {len(asked)} prompts"
            worst = turned.sort("loss", descending=True, maintain_order=True)["prompt"][0]
            shown = (of, worst) in drawn(study, own)
            yield Finding(
                text=f"{place}, training on one model’s reward can cost another’s: in "
                f"{turned.height} of {count(own.height, 'pair')} of models that agree at first, "
                "the other reward rises, and falls again with more training.",
                picture=stem_of(CURVES.name, of, worst) if shown else "",
            )


def _described(study: Study) -> str:
    """That no reward turned down by more than chance among models that agree at first."""
    alike = study.tables[PAIRS.name].filter(pl.col("correlation") > _AGREE).height
    if not alike:
        return "No two models agree at first, so training on one’s reward cannot cost the other."
    return (
        f"Of {count(alike, 'pair')} of models that agree at first, there is none in which training "
        "on one model’s reward makes the other’s rise and then fall by more than chance (q < .05)."
    )


ANALYSIS = Analysis(
    id="overoptimisation",
    title="Over-optimisation",
    lead="A policy is trained on one model’s reward; another model reads what it says. Both are "
    "known for every reply, so the curve is exact: it shows how far the second reward rises, and "
    "where more training begins to cost.",
    make=_tables,
    parts=(_drawn,),
    told=(findings,),
    described=_described,
    caveats=lambda study: (
        f"Models agree at first where their rewards correlate above {_AGREE:g} under the language "
        "model; a pair counts once for each model trained on, prompt and set of replies. A reward "
        f"falls again where it ends {LEAST_LOSS:g} standard deviations or more below its peak, by "
        "more than chance does where two rewards only rise together.",
        "The read model is no more right than the optimised one: a loss says that the two "
        "disagree about what the policy has moved to.",
        MANY,
    ),
)
