"""Robustness to wording: what changes when one question is asked in other words."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Heading, Picture, Text
from analysis.charts import look
from analysis.charts.estimates import estimates
from analysis.charts.shares import shares
from analysis.columns import Row, Spec
from analysis.measures.list_scores import scores_of
from analysis.measures.word_scores import VOCABULARY
from analysis.measures.wording_tables import (
    AGREEMENT,
    COMPARISON,
    MODELS,
    ONE_QUESTION,
    VARIANCE,
    wording_rows,
)
from analysis.measures.wordings import FRAMING, of_list, of_vocabulary
from analysis.sentences import decimals, listed, q_value
from analysis.significant_effects import ALPHA, significant
from analysis.study import Analysis, Study, Table, required, table

ONE_WORDING = (
    "No two prompts ask one question, or have one framing: what the wording does cannot be seen."
)
_NO_OTHERS = "No prompts of another question are there to compare the wordings with."
_MOST_DRAWS = 1_999  # Of the test whether wordings of one question agree more.
_PARTS = {"common": look.TOP, "question": "#7fb8b0", "wording": look.BOTTOM}


def _tables(study: Study) -> Iterator[Table]:
    """Three tables, each of all lists and of the vocabulary."""
    found = functools.cache(partial(_found, study))

    def make(spec: Spec, why: str) -> pl.DataFrame:
        rows = [row for one in found() for row in one[spec.name]]
        return required(spec.frame(rows), why if found() else ONE_WORDING)

    for spec in (VARIANCE, AGREEMENT, COMPARISON):
        why = _NO_OTHERS if spec is COMPARISON else ONE_WORDING
        yield table(spec.name, make=partial(make, spec, why))


def _found(study: Study) -> list[dict[str, list[Row]]]:
    """The rows of the lists, then of the vocabulary, of which two prompts ask one question."""
    made, options = study.tables, study.options
    sources = [of_list(scores_of(study, name)) for (name,) in made.of("items_points")]
    shared = made.get("shared_vocabulary")
    if shared is not None and shared.height:
        sources.append(of_vocabulary(study.run, shared, study.scored, options.questions))
    draws = min(options.permutations, _MOST_DRAWS)
    return [
        wording_rows(one, np.random.default_rng(options.seed), draws)
        for one in sources
        if one is not None
    ]


def _shown(study: Study) -> Iterator[Block]:
    """Each list and the vocabulary: how much alike orders are, and the shares of the variance."""
    every, variance = study.tables[AGREEMENT.name], study.tables[VARIANCE.name]
    for items, level in every.select("list", "level").unique(maintain_order=True).iter_rows():
        own = every.filter(list=items)
        draw = partial(estimates, own, study.names, "Kendall’s τ", value="kendall")
        yield Heading("The vocabulary" if items == VOCABULARY else f"List “{items}”")
        yield Text(_FRAMINGS if level == FRAMING else _QUESTIONS, "how")
        yield Picture(
            f"wording_agreement_{items}",
            "How much alike a model orders under two prompts (Kendall’s τ), by what the prompts "
            "have in common; last, two models under one prompt. Dots are models, strokes their "
            "means.",
            partial(draw, row="comparison", mean="comparison", beside=False),
        )
        panel = pl.col("framing").replace("", "other") + " prompts"
        parts = variance.filter(list=items).with_columns(panel=panel)
        bars = partial(shares, parts, study.names, "% of the variance of percentiles", _PARTS)
        yield Picture(f"wording_variance_{items}", _SHARES, partial(bars, panel="panel"))


def _rows(study: Study) -> Iterator[Block]:
    for spec in (VARIANCE, AGREEMENT, COMPARISON):
        yield from spec.rows(study.tables[spec.name])


def _told(study: Study) -> Iterator[Finding]:
    """Lists whose wordings of one question agree more than the next kind, with q below 0.05."""
    for row in significant(study.tables[COMPARISON.name]).iter_rows(named=True):
        if row["difference"] > 0:
            yield Finding(text=_headline(row), picture=f"wording_agreement_{row['list']}")


def _headline(row: dict[str, Any]) -> str:
    asked = "the question" if row["comparison"] == ONE_QUESTION else "asking for good or for bad"
    several = row["models"] > 1
    who = f"on average, the {row['models']} models order" if several else "the model orders"
    return (
        f"Not the wording alone but {asked} matters: {who} {_said(row['list'])} more alike "
        f"under two {row['comparison']} than under two {row['against']}."
    )


def _described(study: Study) -> str:
    """How alike a model orders under the closest prompts and under the next kind, in a mean τ."""
    every = study.tables[AGREEMENT.name].filter(pl.col("comparison") != MODELS)
    items = every["list"][0]
    taus = every.filter(list=items).group_by("comparison", maintain_order=True)
    means = taus.agg(pl.col("kendall").fill_nan(None).mean()).drop_nulls().head(2)
    said = [f"{decimals(tau)} between two {kind}" for kind, tau in means.iter_rows()]
    if not said:
        return ""
    tested = study.tables.get(COMPARISON.name)
    q = [] if tested is None else tested.filter(list=items)["q"].to_list()
    apart = f" The test does not tell these apart ({q_value(q[0])})." if q and q[0] >= ALPHA else ""
    return (
        f"How alike a model orders {_said(items)} under two prompts, as Kendall’s τ (1 is "
        f"the same order, 0 no relation): on average {listed(said)}.{apart}"
    )


def _said(items: str) -> str:
    return "tokens" if items == VOCABULARY else f"the list “{items}”"


_FRAMINGS = (
    "No question was asked in two wordings, so prompts of one framing (all that ask for something "
    "good, or for something bad) count as wordings here."
)
_QUESTIONS = "Prompts that ask for one quality, such as “best”, are wordings of one question."
_SHARES = (
    "How the variance of percentiles under the prompts of a framing splits: what all prompts have "
    "in common, what the wordings of one question have in common beyond that, and what one wording "
    "has alone, noise included. The first two are 0 on average where nothing is there; a share "
    "below 0 is drawn as 0."
)
ANALYSIS = Analysis(
    id="wording",
    title="Robustness to wording",
    label="Wording",
    lead="One question can be asked in several wordings. How much of an item’s percentile goes "
    "with the question, and how much with the wording?",
    make=_tables,
    parts=(_shown, _rows),
    told=(_told,),
    described=_described,
    caveats=lambda study: (
        "A score has no repetition: what a wording adds holds everything that is peculiar to one "
        "prompt.",
        "The wordings of a run are few, and much alike: others may differ more.",
    ),
    every_prompt=True,
)
