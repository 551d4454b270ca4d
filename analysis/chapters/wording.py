"""Robustness to wording: what changes when one question is asked in other words."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Heading, Picture, Text
from analysis.charts import look
from analysis.charts.estimates import estimates
from analysis.charts.shares import shares
from analysis.columns import LIST, MODEL, Column, P, Row, Spec, ends, q, several
from analysis.measures.list_scores import scores_of
from analysis.measures.word_scores import VOCABULARY
from analysis.measures.wordings import FRAMING, QUESTION, Wordings, of_list, of_vocabulary
from analysis.sentences import ALPHA, decimals, listed, q_value, significant
from analysis.statistics import Array
from analysis.statistics.inference import t_test
from analysis.statistics.kendall import tau_b_matrix
from analysis.statistics.permutation_tests import label_agreement
from analysis.statistics.variance import NESTED, nested_shares
from analysis.study import Analysis, Study, Table, required, table

_ITEMS = 500  # Items that agreement is computed on; of more, a random sample.
_LEVEL = "`question`, or `framing` where no question has two wordings: a framing is then one"
_SOURCE = several("text", "list level")
VARIANCE = Spec(
    "wording_variance",
    (
        *(LIST.but(help="`vocabulary` for tokens"), Column("level", help=_LEVEL)),
        *(Column("framing", title="prompts"), MODEL),
        Column("component", title="part", help="`common`, `question`, `wording`"),
        Column("share", "share", help="corrected; of the variance of percentiles"),
        *(*ends("share", "95 %, over items"), Column("questions", "count")),
        *(Column("prompts", "count", "wordings"), Column("items", "count")),
    ),
    page="list framing model component share ci_low ci_high questions prompts",
    title="Shares of the variance",
)
AGREEMENT = Spec(
    "wording_agreement",
    (
        *(*_SOURCE, Column("comparison", "text", "prompts", "which prompts, or models")),
        *(MODEL, Column("pairs", "count"), Column("kendall", "fixed", "mean τ", "their mean τ-b")),
    ),
    page="list comparison model pairs kendall",
    title="Agreement of prompts and of models",
)
COMPARISON = Spec(
    "wording_comparison",
    (
        *(*_SOURCE, Column("comparison", title="prompts"), Column("against")),
        *(
            Column("models", "count"),
            Column("difference", "fixed", "difference in τ", "of mean τ-b"),
        ),
        *ends("fixed", "95 %, over models", over="models"),
        P.but(help="questions permuted over prompts"),
        q(help="over the lists and the vocabulary"),
    ),
    page="list comparison against models difference ci_low ci_high p q",
    title="Do wordings of one question agree more than other prompts?",
)
# Comparisons of two prompts, from the closest to the furthest, by level.
ONE_QUESTION, QUESTIONS = "wordings of one question", "questions of one framing"
ONE_FRAMING, OPPOSITE = "prompts of one framing", "opposite framings"
MODELS = "models under one prompt"


ONE_WORDING = (
    "No two prompts ask one question, or have one framing: what the wording does cannot be seen."
)
_NO_OTHERS = "No prompts of another question are there to compare the wordings with."
_MOST_DRAWS = 1_999  # Of the test whether wordings of one question agree more.
_PARTS = {"common": look.TOP, "question": "#7fb8b0", "wording": look.BOTTOM}


def wording_rows(
    wordings: Wordings, rng: np.random.Generator, permutations: int
) -> dict[str, list[Row]]:
    """Name of each of the three tables -> its rows of one list, or of the vocabulary."""
    some = np.sort(rng.permutation(len(wordings.items))[:_ITEMS])
    variance: list[Row] = []
    samples = []
    for model in wordings.models:
        percentiles = wordings.read(model)
        samples.append(percentiles[:, some])
        variance += _variance(wordings, model, percentiles)
    sample = np.array(samples)
    orders = np.array([tau_b_matrix(each) for each in sample])
    return {
        VARIANCE.name: variance,
        AGREEMENT.name: list(_agreement(wordings, orders, sample)),
        COMPARISON.name: list(_comparison(wordings, orders, rng, permutations)),
    }


def _variance(wordings: Wordings, model: str, percentiles: Array) -> Iterator[Row]:
    """Shares of the variance of one model, framing by framing."""
    questions, worded = (wordings.prompts[c].to_numpy() for c in ("question", "wording"))
    for framing, at in wordings.framings():
        labels = questions[at]
        nested = nested_shares(percentiles[at].T, labels, worded[at], wordings.clusters)
        counts = (len(set(labels.tolist())), len(at), len(wordings.items))
        for component, share, low, high in zip(NESTED, *nested[:3], strict=True):
            if not math.isnan(share):
                keys = (wordings.source, wordings.level, framing, model, component)
                yield (*keys, float(share), float(low), float(high), *counts)


def _kinds(wordings: Wordings) -> list[tuple[str, Array]]:
    """Kinds of pairs of prompts that occur, and bool [P, P]: its pairs, each once.

    Two questions are compared in different wordings, as the wordings of one question are.
    """
    columns = ("question", "framing", "wording")
    questions, framings, worded = (wordings.prompts[c].to_numpy() for c in columns)
    once = np.triu(np.ones((len(questions), len(questions)), dtype=np.bool_), 1)
    alike = (questions[:, None] == questions) & (questions != "")
    framed = (framings[:, None] == framings) & (framings != "")
    opposite = np.outer(framings != "", framings != "") & (framings[:, None] != framings)
    if wordings.level == QUESTION:
        other = worded[:, None] != worded
        named = {ONE_QUESTION: alike, QUESTIONS: framed & ~alike & other, OPPOSITE: opposite}
    else:
        named = {ONE_FRAMING: alike, OPPOSITE: opposite}
    return [(name, pairs & once) for name, pairs in named.items() if (pairs & once).any()]


def _agreement(wordings: Wordings, orders: Array, sample: Array) -> Iterator[Row]:
    """Mean tau over the pairs of each kind for each model; then of every two models."""
    keys = (wordings.source, wordings.level)
    for name, pairs in _kinds(wordings):
        for model, matrix in zip(wordings.models, orders, strict=True):
            yield (*keys, name, model, int(pairs.sum()), _mean(matrix[pairs]))
    if len(wordings.models) > 1:
        between = np.array([tau_b_matrix(sample[:, p]) for p in range(sample.shape[1])])
        for m, model in enumerate(wordings.models):
            taus = np.delete(between[:, m], m, axis=1)
            yield (*keys, MODELS, model, taus.size, _mean(taus))


def _mean(values: Array) -> float:
    """Mean of the values that are defined; NaN where none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def _comparison(
    wordings: Wordings, orders: Array, rng: np.random.Generator, draws: int
) -> Iterator[Row]:
    """The closest pairs of prompts against the next kind; no row where there are not both.

    Questions are permuted over the prompts (see `_labels`), so that prompts are the units; the
    interval is over models.
    """
    kinds = _kinds(wordings)[:2]
    if len(kinds) < 2 or kinds[0][0] not in (ONE_QUESTION, ONE_FRAMING):
        return
    (name, close), (other, far) = kinds
    orders = orders[~np.isnan(orders).any(axis=(1, 2))]
    known = (wordings.prompts["framing"] != "").to_numpy()
    close = close & np.outer(known, known)
    if not close.any() or not len(orders):
        return
    each = np.array([matrix[close].mean() - matrix[far].mean() for matrix in orders])
    labels, strata = _labels(wordings, known)
    compared = (close | far | close.T | far.T)[np.ix_(known, known)]
    matrix = orders.mean(axis=0)[np.ix_(known, known)]
    _, p = label_agreement(matrix, labels, compared, strata, rng, draws)
    yield (wordings.source, wordings.level, name, other, len(each), *t_test(each)[:3], p)


def _labels(wordings: Wordings, known: Array) -> tuple[Array, Array]:
    """Meaning of each prompt of a known framing, and the stratum inside which it is permuted.

    That is the framing with the wording where every wording of a framing has several questions, so
    that what a wording has of its own stays where it is; else the framing. Where framings
    themselves are compared, all prompts are one stratum.
    """
    prompts = wordings.prompts.filter(known)
    labels = prompts["question"].rank("dense").to_numpy().astype(np.int64)
    if wordings.level == FRAMING:
        return labels, np.zeros(len(labels), dtype=np.int64)
    crossed = prompts.group_by("framing", "wording").len()["len"].to_numpy().min() > 1
    keys = ["framing", "wording"] if crossed else ["framing"]
    strata = prompts.select(pl.concat_str(keys, separator="\n").rank("dense")).to_series()
    return labels, strata.to_numpy().astype(np.int64)


def _tables(study: Study) -> Iterator[Table]:
    """Three tables, each of all lists and of the vocabulary."""
    computed = functools.cache(partial(_computed_rows, study))

    def make(spec: Spec, why: str) -> pl.DataFrame:
        rows = [row for one in computed() for row in one[spec.name]]
        return required(spec.frame(rows), why if computed() else ONE_WORDING)

    for spec in (VARIANCE, AGREEMENT, COMPARISON):
        why = _NO_OTHERS if spec is COMPARISON else ONE_WORDING
        yield table(spec.name, make=partial(make, spec, why))


def _computed_rows(study: Study) -> list[dict[str, list[Row]]]:
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
        rows = every.filter(list=items)
        draw = partial(estimates, rows, study.names, "Kendall’s τ", value="kendall")
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
    yield Text(_UNITS, "how")
    for spec in (VARIANCE, AGREEMENT, COMPARISON):
        yield from spec.rows(study.tables[spec.name])


def _told(study: Study) -> Iterator[Finding]:
    """Lists whose wordings of one question agree more than the next kind, with q below 0.05."""
    for row in significant(study.tables[COMPARISON.name]).iter_rows(named=True):
        if row["difference"] > 0:
            yield Finding(text=_headline(row), picture=f"wording_agreement_{row['list']}")


def _headline(row: dict[str, Any]) -> str:
    what = "the question" if row["comparison"] == ONE_QUESTION else "asking for good or for bad"
    several = row["models"] > 1
    who = f"on average, the {row['models']} models order" if several else "the model orders"
    return (
        f"Not the wording alone but {what} matters: {who} {_said(row['list'])} more alike "
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
_UNITS = (
    "The interval of a comparison is over models, and its test permutes questions over prompts: "
    "where models are alike and prompts few, the interval may be clear of 0 and the test tell "
    "nothing."
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
