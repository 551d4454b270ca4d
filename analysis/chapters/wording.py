"""Robustness to wording: what changes when one question is asked in other words."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import (
    INTERVAL_OF_SHARE,
    LIST,
    MODEL,
    P_AND_Q,
    Block,
    Column,
    Finding,
    Heading,
    Picture,
    Section,
    Text,
    notes,
    rows,
)
from analysis.figures import style, wording_bars
from analysis.measures.list_scores import scores_of
from analysis.measures.word_scores import VOCABULARY
from analysis.measures.wording_tables import (
    AGREEMENT,
    MORE_ALIKE,
    SPREAD,
    VARIANCE,
    WordingTables,
    wording_tables,
)
from analysis.measures.wordings import FRAMING, Wordings, of_list, of_vocabulary
from analysis.sentences import decimals, q_value
from analysis.significant_effects import significant
from analysis.statistics.inference import t_test, with_q
from analysis.study import Absent, Study, Table, required, table
from engine.runs.schema import Columns

EVERY_PROMPT = True  # see analysis/report/few_prompts.py
ONE_WORDING = (
    "No two prompts ask one question, or have one framing: what the wording does cannot be seen."
)
_NO_OTHERS = "No prompts of another question are there to compare the wordings with."
_MOST_DRAWS = 1_999  # Of the test whether wordings of one question agree more.


def tables(study: Study) -> Iterator[Table]:
    """Four tables, each of all lists and of the vocabulary.

    wording_variance.csv, wording_agreement.csv, wording_comparison.csv and wording_spread.csv.
    """
    found = _Found(study)
    yield table("wording_variance", make=partial(found.all, "variance", VARIANCE))
    yield table("wording_agreement", make=partial(found.all, "agreement", AGREEMENT))
    yield table("wording_comparison", make=found.comparison)
    yield table("wording_spread", make=partial(found.all, "spread", SPREAD))


@dataclasses.dataclass
class _Found:
    """The wordings of the run; each list is read once, for all tables."""

    study: Study

    @functools.cached_property
    def sources(self) -> list[Wordings]:
        """The lists, then the vocabulary, of which two prompts ask one question."""
        run, made, options = self.study.run, self.study.tables, self.study.options
        found = [of_list(scores_of(self.study, name)) for (name,) in made.of("items_points")]
        shared = made.get("shared_vocabulary")
        if shared is not None and shared.height:
            found.append(of_vocabulary(run, shared, self.study.scored, options.questions))
        return [wordings for wordings in found if wordings is not None]

    @functools.cached_property
    def made(self) -> list[WordingTables]:
        """The tables of each source."""
        options, count = self.study.options, self.study.settings.top
        draws = min(options.permutations, _MOST_DRAWS)
        return [
            wording_tables(wordings, np.random.default_rng(options.seed), draws, count)
            for wordings in self.sources
        ]

    def all(self, name: str, schema: Columns, why: str = ONE_WORDING) -> pl.DataFrame:
        """One table of all sources; absent for the reason `why` where none has a row of it."""
        if not self.made:
            raise Absent(ONE_WORDING)
        frames = [getattr(one, name) for one in self.made]
        return required(pl.concat([pl.DataFrame(schema=schema), *frames]), why)

    def comparison(self) -> pl.DataFrame:
        """`wording_comparison.csv`; q corrects for the lists and the vocabulary."""
        return with_q(self.all("more_alike", MORE_ALIKE, _NO_OTHERS))


def section(study: Study) -> Section:
    """Each list and the vocabulary: variance and agreement."""
    made = study.tables
    names = ("wording_variance", "wording_comparison")
    blocks: list[Block] = notes(made.reason(name) for name in names)
    variance, agreement = made.get("wording_variance"), made.get("wording_agreement")
    if variance is not None and agreement is not None:
        pairs = variance.select("list", "level").unique(maintain_order=True)
        for items, level in pairs.iter_rows():
            blocks += _of_source(study, items, level)
    for name, columns, title in _TABLES:
        blocks += rows(made.get(name), columns, f"{name}.csv", title)
    return Section(
        id="wording",
        title="Robustness to wording",
        label="Wording",
        lead="One question can be asked in several wordings. How much of an item’s percentile goes "
        "with the question, and how much with the wording?",
        blocks=blocks,
        caveats=(
            "A score has no repetition: what a wording adds holds everything that is peculiar to "
            "one prompt.",
            "The wordings of a run are few, and much alike: others may differ more.",
        ),
        findings=list(_agreement_findings(study)),
    )


def _of_source(study: Study, items: str, level: str) -> list[Block]:
    variance = study.tables["wording_variance"].filter(list=items)
    agreement = study.tables["wording_agreement"].filter(list=items)
    asked = (
        "No question was asked in two wordings, so prompts of one framing (all that ask for "
        "something good, or for something bad) count as wordings here. "
        if level == FRAMING
        else "Prompts that ask for one quality, such as “best”, are wordings of one question. "
    )
    shares = (
        "How the variance of percentiles under the prompts of a framing splits: what all prompts "
        "have in common, what the wordings of one question have in common beyond that, and what "
        "one wording has alone, noise included. The first two are 0 on average where nothing is "
        "there."
    )
    return [
        Heading("The vocabulary" if items == VOCABULARY else f"List “{items}”"),
        Text(asked, "how"),
        Picture(f"wording_variance_{items}", shares, partial(_bars, study, variance)),
        Picture(
            f"wording_agreement_{items}",
            "Kendall’s τ between the orders that a model gives under two prompts, by what the "
            "prompts have in common; last, between two models under one prompt. Strokes are "
            "means over the models.",
            partial(wording_bars.agreement, agreement, study.names),
        ),
    ]


def _bars(study: Study, variance: pl.DataFrame) -> style.Figure:
    return wording_bars.variance(variance, study.names)


def _agreement_findings(study: Study) -> Iterator[Finding]:
    """Lists where wordings of one question agree more than other prompts do, with q below 0.05."""
    comparison = study.tables.get("wording_comparison")
    if comparison is None:
        return
    agreement = study.tables["wording_agreement"]
    for row in significant(comparison).iter_rows(named=True):
        taus = {
            kind: agreement.filter(list=row["list"], comparison=kind)["kendall"].fill_nan(None)
            for kind in (row["comparison"], row["against"])
        }
        means = [float(np.mean(tau.drop_nulls().to_numpy())) for tau in taus.values()]
        over = f" over {row['models']} models" if row["models"] > 1 else ""
        yield Finding(
            text=f"{_said(row['list'])}: {row['comparison']} agree more (mean τ {means[0]:.2f}) "
            f"than {row['against']} ({decimals(means[1])}), by "
            f"{row['difference']:.2f}{_ends(row['ci_low'], row['ci_high'], over)}; questions "
            f"permuted over prompts, {style.p_value(row['p'])}, "
            f"{q_value(row['q'])}.{_shares(study, row['list'])}",
            picture=f"wording_agreement_{row['list']}",
        )


def _ends(low: float, high: float, over: str) -> str:
    if low != low:
        return ""
    return style.minus(f" (95% {low:.2f} to {high:.2f}{over})")


def _shares(study: Study, items: str) -> str:
    """The mean share of wordings over the models, framing by framing."""
    table = study.tables["wording_variance"].filter(list=items, component="wording")
    said = []
    for (framing,), own in table.group_by("framing", maintain_order=True):
        shares = 100 * own["share"].to_numpy()
        mean, low, high, _ = t_test(shares)
        ends = "" if low != low else f" (95% {max(low, 0):.0f} to {high:.0f} over models)"
        said.append(f"{mean:.0f}%{ends} under {framing or 'other'} prompts")
    return f" The wording has {' and '.join(said)} of the variance of a percentile." if said else ""


def _said(items: str) -> str:
    return "Tokens" if items == VOCABULARY else f"List “{items}”"


_QUESTION: Column = ("question", "question", "text")
_ENDS: tuple[Column, ...] = (
    ("ci_low", "from, over models", "fixed"),
    ("ci_high", "to, over models", "fixed"),
)
_TABLES: tuple[tuple[str, tuple[Column, ...], str], ...] = (
    (
        "wording_comparison",
        (
            LIST,
            ("comparison", "prompts", "text"),
            ("against", "against", "text"),
            ("models", "models", "count"),
            ("difference", "difference in τ", "fixed"),
            *_ENDS,
            *P_AND_Q,
        ),
        "Do wordings of one question agree more than other prompts?",
    ),
    (
        "wording_variance",
        (
            LIST,
            ("framing", "prompts", "text"),
            MODEL,
            ("component", "part", "text"),
            ("share", "share", "share"),
            *INTERVAL_OF_SHARE,
            ("questions", "questions", "count"),
            ("prompts", "wordings", "count"),
        ),
        "Shares of the variance",
    ),
    (
        "wording_agreement",
        (
            LIST,
            ("comparison", "prompts", "text"),
            MODEL,
            ("pairs", "pairs", "count"),
            ("kendall", "mean τ", "fixed"),
        ),
        "Agreement of prompts and of models",
    ),
    (
        "wording_spread",
        (
            LIST,
            _QUESTION,
            ("item", "item", "token"),
            ("mean_percentile", "mean percentile", "share"),
            ("spread", "spread over wordings", "share"),
            ("lowest", "lowest", "share"),
            ("highest", "highest", "share"),
        ),
        "Spread of items over wordings",
    ),
)
