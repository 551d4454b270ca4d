"""What the wording of a question does: variance, agreement and spread.

All tables of one list, or of the vocabulary, are made in one pass over the models, so that the
rewards of one model are in memory at a time.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis.measures.wordings import FRAMING, QUESTION, Wordings
from analysis.statistics import Array
from analysis.statistics.inference import t_test
from analysis.statistics.kendall import tau_b_matrix
from analysis.statistics.permutation_tests import label_agreement
from analysis.statistics.variance import NESTED, nested_shares
from engine.runs.schema import Columns

_ITEMS = 500  # Items that agreement is computed on; of more, a random sample.
_LISTED = 1_000  # Items up to which the table of spreads holds all.
_SOURCE: Columns = {"list": pl.String, "level": pl.String}
VARIANCE: Columns = {
    **_SOURCE,
    **dict.fromkeys(("framing", "model", "component"), pl.String),
    **dict.fromkeys(("share", "ci_low", "ci_high"), pl.Float64),
    **dict.fromkeys(("questions", "prompts", "items"), pl.Int64),
}
AGREEMENT: Columns = {
    **_SOURCE,
    "comparison": pl.String,
    "model": pl.String,
    "pairs": pl.Int64,
    "kendall": pl.Float64,
}
MORE_ALIKE: Columns = {
    **_SOURCE,
    **dict.fromkeys(("comparison", "against"), pl.String),
    "models": pl.Int64,
    **dict.fromkeys(("difference", "ci_low", "ci_high", "p"), pl.Float64),
}
SPREAD: Columns = {
    **_SOURCE,
    **dict.fromkeys(("question", "item"), pl.String),
    **dict.fromkeys(("models", "prompts"), pl.Int64),
    **dict.fromkeys(("mean_percentile", "spread", "lowest", "highest"), pl.Float64),
}
# Comparisons of two prompts, from the closest to the furthest, by level.
ONE_QUESTION, QUESTIONS = "wordings of one question", "questions of one framing"
ONE_FRAMING, OPPOSITE = "prompts of one framing", "opposite framings"
MODELS = "models under one prompt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordingTables:
    """The tables of one list, or of the vocabulary.

    Attributes:
      variance: shares of the variance of percentiles, by framing and model (`VARIANCE`).
      agreement: mean tau of each kind of pairs, by model (`AGREEMENT`).
      more_alike: whether wordings of one question agree more than other prompts (`MORE_ALIKE`).
      spread: each item's spread over the wordings of a question (`SPREAD`).
    """

    variance: pl.DataFrame
    agreement: pl.DataFrame
    more_alike: pl.DataFrame
    spread: pl.DataFrame


def wording_tables(
    wordings: Wordings, rng: np.random.Generator, permutations: int, count: int
) -> WordingTables:
    """The tables of one list, or of the vocabulary.

    Args:
      wordings: what `wordings.of_list` or `of_vocabulary` returns.
      rng: draws samples and permutations.
      permutations: draws of the test.
      count: items of a vocabulary in the table of spreads.
    """
    size = len(wordings.items)
    some = np.sort(rng.permutation(size)[:_ITEMS])
    sums = {question: _Sums.empty(len(at), size) for question, at in wordings.questions()}
    variance: list[tuple[object, ...]] = []
    samples = []
    for model in wordings.models:
        percentiles = wordings.read(model)
        samples.append(percentiles[:, some])
        variance += _variance(wordings, model, percentiles)
        for question, at in wordings.questions():
            sums[question].add(percentiles[at])
    sample = np.array(samples)
    orders = np.array([tau_b_matrix(own) for own in sample])
    spread = [
        row for question in sums for row in _spread(wordings, question, sums[question], count)
    ]
    return WordingTables(
        variance=pl.DataFrame(variance, schema=VARIANCE, orient="row"),
        agreement=_agreement(wordings, orders, sample),
        more_alike=_more_alike(wordings, orders, rng, permutations),
        spread=pl.DataFrame(spread, schema=SPREAD, orient="row"),
    )


@dataclasses.dataclass
class _Sums:
    """Sums over the models of what the wordings of one question give.

    Attributes:
      by_wording: percentiles [K, N].
      spread: standard deviation over the wordings [N].
    """

    by_wording: Array
    spread: Array

    @classmethod
    def empty(cls, wordings: int, items: int) -> "_Sums":
        return cls(by_wording=np.zeros((wordings, items)), spread=np.zeros(items))

    def add(self, percentiles: Array) -> None:
        """Adds a model's percentiles [K, N]."""
        self.by_wording += percentiles
        self.spread += percentiles.std(axis=0, ddof=1)


def _variance(wordings: Wordings, model: str, percentiles: Array) -> Iterator[tuple[object, ...]]:
    """Rows of `VARIANCE` of one model."""
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
    questions, framings = (wordings.prompts[c].to_numpy() for c in ("question", "framing"))
    once = np.triu(np.ones((len(questions), len(questions)), dtype=np.bool_), 1)
    alike = (questions[:, None] == questions) & (questions != "")
    framed = (framings[:, None] == framings) & (framings != "")
    known = (framings != "") & (framings != "")[:, None]
    opposite = known & (framings[:, None] != framings)
    if wordings.level == QUESTION:
        other = ~_same(wordings, "wording")
        named = {ONE_QUESTION: alike, QUESTIONS: framed & ~alike & other, OPPOSITE: opposite}
    else:
        named = {ONE_FRAMING: alike, OPPOSITE: opposite}
    return [(name, pairs & once) for name, pairs in named.items() if (pairs & once).any()]


def _agreement(wordings: Wordings, orders: Array, sample: Array) -> pl.DataFrame:
    """`AGREEMENT`: mean tau over the pairs of a kind for each model; then of every two models."""
    rows: list[tuple[object, ...]] = []
    keys = (wordings.source, wordings.level)
    for name, pairs in _kinds(wordings):
        for model, matrix in zip(wordings.models, orders, strict=True):
            rows.append((*keys, name, model, int(pairs.sum()), _mean(matrix[pairs])))
    if len(wordings.models) > 1:
        between = np.array([tau_b_matrix(sample[:, p]) for p in range(sample.shape[1])])
        for m, model in enumerate(wordings.models):
            others = np.delete(between[:, m], m, axis=1)
            rows.append((*keys, MODELS, model, others.size, _mean(others)))
    return pl.DataFrame(rows, schema=AGREEMENT, orient="row")


def _mean(values: Array) -> float:
    """Mean of the values that are defined; NaN where none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def _more_alike(
    wordings: Wordings, orders: Array, rng: np.random.Generator, draws: int
) -> pl.DataFrame:
    """`MORE_ALIKE`: the closest pairs of prompts against the next kind.

    Questions are permuted over the prompts (see `_labels`), so that prompts are the units; the
    interval is over models.
    """
    kinds = _kinds(wordings)[:2]
    if len(kinds) < 2 or kinds[0][0] not in (ONE_QUESTION, ONE_FRAMING):
        return pl.DataFrame(schema=MORE_ALIKE)
    (name, close), (other, far) = kinds
    orders = orders[~np.isnan(orders).any(axis=(1, 2))]
    known = (wordings.prompts["framing"] != "").to_numpy()
    close = close & np.outer(known, known)
    if not close.any() or not len(orders):
        return pl.DataFrame(schema=MORE_ALIKE)
    each = np.array([matrix[close].mean() - matrix[far].mean() for matrix in orders])
    labels, strata = _labels(wordings, known)
    compared = (close | far | close.T | far.T)[np.ix_(known, known)]
    matrix = orders.mean(axis=0)[np.ix_(known, known)]
    _, p = label_agreement(matrix, labels, compared, strata, rng, draws)
    mean, low, high, _ = t_test(each)
    row = (wordings.source, wordings.level, name, other, len(each), mean, low, high)
    return pl.DataFrame([(*row, p)], schema=MORE_ALIKE, orient="row")


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


def _same(wordings: Wordings, column: str) -> Array:
    """Whether two prompts agree in a column; bool [P, P]."""
    values = wordings.prompts[column].to_numpy()
    return np.asarray(values[:, None] == values)


def _spread(
    wordings: Wordings, question: str, sums: _Sums, count: int
) -> Iterator[tuple[object, ...]]:
    """Rows of `SPREAD` of one question, the widest first: all of a list, some of a vocabulary."""
    models = len(wordings.models)
    spread, means = sums.spread / models, sums.by_wording / models
    order = np.argsort(-spread, kind="stable")
    for at in order if len(order) <= _LISTED else order[:count]:
        own = means[:, at]
        keys = (wordings.source, wordings.level, question, wordings.items[at])
        numbers = (own.mean(), spread[at], own.min(), own.max())
        yield (*keys, models, len(own), *map(float, numbers))
