"""What the wording of a question does: variance and agreement.

All tables of one list, or of the vocabulary, are made in one pass over the models, so that the
rewards of one model are in memory at a time.
"""

import math
from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis.columns import LIST, MODEL, Column, P, Row, Spec, ends, q, several
from analysis.measures.wordings import FRAMING, QUESTION, Wordings
from analysis.statistics import Array
from analysis.statistics.inference import t_test
from analysis.statistics.kendall import tau_b_matrix
from analysis.statistics.permutation_tests import label_agreement
from analysis.statistics.variance import NESTED, nested_shares

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
        own = questions[at]
        found = nested_shares(percentiles[at].T, own, worded[at], wordings.clusters)
        counts = (len(set(own.tolist())), len(at), len(wordings.items))
        for component, share, low, high in zip(NESTED, *found, strict=True):
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
            others = np.delete(between[:, m], m, axis=1)
            yield (*keys, MODELS, model, others.size, _mean(others))


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
    mean, low, high, _ = t_test(each)
    yield (wordings.source, wordings.level, name, other, len(each), mean, low, high, p)


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
