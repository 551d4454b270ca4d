"""Word categories: contrasts by model and between models of different bases.

A contrast is the mean percentile of the words of a category less that of the words it is compared
with: those of the other category of its scale, or of all others where there are more than two. A
percentile is a word's place among the words of its scale, for one model under one prompt.

Means, because a mean over words, prompts and models is the same in any order: the tests over
models and over words are then about one number. The median, which the follow-up paper reports, has
its own test over models beside it.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from analysis.columns import LIST, MODEL, Column, P, Row, Spec, ends, q, several
from analysis.measures.word_scores import WordScores
from analysis.statistics import Array
from analysis.statistics.permutation_tests import permutation_test, welch_interval
from analysis.words.questions import NEGATIVE, POSITIVE

BOTH = "positive minus negative"
UNKNOWN = "unknown"
OTHERS = "the others"
LEAST_WORDS = 5  # On each side of a contrast that is tested.
_SIDES = (
    *(LIST, *several("text", "scale category against")),
    Column("framing", title="prompts"),
)
_SIZES = several("count", "words other_words questions prompts")
_FAMILY = Column("family", help="all tests of the table")
LANGUAGE_MODEL = Column("language_model")
BY_MODEL = Spec(
    "category_models",
    (
        *(*_SIDES, MODEL, *_SIZES),
        Column("contrast", "share", help="mean percentile of its words less that of the others"),
        *ends("share", "95 %, over words; none for fewer than three on a side", over="words"),
        P.but(help="categories permuted over words; any kinds differ, so it says little"),
        *(q(), _FAMILY),
    ),
    page="list scale category against framing model words other_words contrast ci_low ci_high",
    title="Contrasts by model",
)
LOGPROBS = Spec(
    "category_logprobs",
    (
        *(*_SIDES, LANGUAGE_MODEL),
        Column("compared_with", "text", "less than in", "empty, or that of a log-ratio"),
        *(*_SIZES, Column("contrast", "share"), *ends("share", "", over="words")),
        *(P.but(help="over words; see category_models.csv"), q(), _FAMILY),
    ),
    page="list scale category against framing language_model compared_with words other_words "
    "contrast ci_low ci_high",
    title="The same contrasts in language models",
)
BY_BASE = Spec(
    "category_contrasts",
    (
        *(*_SIDES, *several("text", "base other_base"), Column("models", "count")),
        *(Column("other_models", "count", "models"), *_SIZES),
        Column("difference", "share", help="between the bases' mean contrasts"),
        *ends("share", "95 %, over models; none for fewer than three", over="models"),
        *(P.but(help="bases permuted over models"), q()),
        *(Column("least_p", "p", help="smallest p possible"), Column("assignments", "count")),
        *(Column("median_difference", "share"), Column("median_p", "p", help="of medians")),
        *(Column("lineage_p", "p", help="models of one base and lineage as one"), _FAMILY),
    ),
    page="list scale category against framing base models other_base other_models difference "
    "ci_low ci_high p q least_p",
    title="Base models compared",
)


class Framed(NamedTuple):
    """A framing, or the difference of two: weights of questions [Q] and of prompts [P] in means."""

    name: str
    questions: Array
    prompts: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """The words of one scale, as the models of one list rank them."""

    list: str  # name of the list, or "vocabulary"
    name: str  # name of the scale
    models: Sequence[str]  # slugs
    categories: Array  # category of each word [W]
    percentiles: Array  # float64 [M, P, W], under the prompts that every model was asked
    by_question: Array  # the mean over the wordings of each question; float64 [M, Q, W]
    framings: Sequence[Framed]  # the framings of the prompts

    def comparisons(self) -> Iterator[tuple[str, str, Array]]:
        """Each category, what it is compared with, and bool [W]: its words.

        Of two categories the first is compared with the second; of more, each with all others.
        """
        names = list(dict.fromkeys(self.categories.tolist()))
        for name in names[:1] if len(names) == 2 else names:
            against = names[1] if len(names) == 2 else OTHERS
            yield name, against, self.categories == name


def scales(
    scores: WordScores, words: pl.DataFrame, prompt_questions: pl.DataFrame
) -> Iterator[Scale]:
    """The scales of `words` that have enough of them in `scores` to compare a category.

    `words` is what `words.lexicons.categories` returns, and `prompt_questions` what
    `words.questions.questions` returns for every prompt.
    """
    for (name,), listed in words.group_by("scale", maintain_order=True):
        kept = scores.only(listed["word"].to_list()).complete()
        of_word = dict(listed.select("word", "category").iter_rows())
        order = {category: at for at, category in enumerate(dict.fromkeys(listed["category"]))}
        places = sorted(range(len(kept.words)), key=lambda at: order[of_word[kept.words[at]]])
        categories = np.array([of_word[kept.words[at]] for at in places])
        tested = (_tested(categories == category) for category in order)
        if not kept.prompts or not any(tested):
            continue
        percentiles = kept.percentiles()[:, :, places]
        by_prompt = {p: (c, f or UNKNOWN) for p, c, f, _ in prompt_questions.iter_rows()}
        prompts = [by_prompt[prompt] for prompt in kept.prompts]
        questions = list(dict.fromkeys(prompts))
        means = [
            percentiles[:, [at for at, p in enumerate(prompts) if p == question]].mean(axis=1)
            for question in questions
        ]
        yield Scale(
            list=scores.source,
            name=str(name),
            models=kept.models,
            categories=categories,
            percentiles=percentiles,
            by_question=np.stack(means, axis=1),
            framings=list(_framings([f for _, f in questions], [f for _, f in prompts])),
        )


def _framings(questions: Sequence[str], prompts: Sequence[str]) -> Iterator[Framed]:
    """The framings that occur, and the difference of the two opposite ones."""
    for name in (POSITIVE, NEGATIVE, UNKNOWN, BOTH):
        first, second = (POSITIVE, NEGATIVE) if name == BOTH else (name, "")
        if first in questions and (not second or second in questions):
            signs = (
                [(f == first) - (f == second) for f in asked] for asked in (questions, prompts)
            )
            weights = (_weights(np.array(sign)) for sign in signs)
            yield Framed(name, *weights)


def by_model(scale: Scale, rng: np.random.Generator, draws: int) -> Iterator[Row]:
    """Rows of `BY_MODEL` without its family: contrasts with words as units.

    The interval is Welch's, over words. The test permutes the categories among the words of the
    scale, where there are five on both sides, `draws` times. It says little: words of any one kind
    are rated apart from words of another more often than single words drawn at random are: a third
    of the tests of ordinary kinds have p < .05.
    """
    weights = np.array([framed.questions for framed in scale.framings])
    values = np.einsum("mqw,fq->wfm", scale.by_question, weights)
    flat = values.reshape(len(values), -1)
    for category, against, mine in scale.comparisons():
        contrast, low, high, _ = welch_interval(flat, mine)
        p = np.full(flat.shape[1], math.nan)
        if _tested(mine):
            p = permutation_test(flat, mine, rng, draws).p
        for at, (framed, model) in enumerate(itertools.product(scale.framings, scale.models)):
            keys = (scale.list, scale.name, category, against, framed.name, model)
            numbers = (contrast[at], low[at], high[at], p[at])
            yield (*keys, *_sizes(mine, framed), *map(float, numbers))


def by_base(
    scale: Scale,
    bases: Mapping[str, str | None],
    lineages: Mapping[str, str | None],
    rng: np.random.Generator,
    draws: int,
) -> Iterator[Row]:
    """Rows of `BY_BASE` without its family: how far models of one base differ from another's.

    `p` permutes the bases over the models, and the interval is Welch's, over models. Prompts are no
    units: the same few models answer every prompt. lineage_p is NaN where lineages are unknown or
    all different. No rows where no two bases have two models each. `bases` (families of base
    models) and `lineages` (weights or data that a model was trained from) go by slug; None where
    they are not known.
    """
    families = sorted({base for model in scale.models if (base := bases.get(model))})
    of_model = np.array([bases.get(model) or "" for model in scale.models])
    for names in itertools.combinations(families, 2):
        here = np.isin(of_model, names)
        first = of_model[here] == names[0]
        if min(first.sum(), (~first).sum()) < 2:
            continue
        models = [model for model, kept in zip(scale.models, here, strict=True) if kept]
        pair = dataclasses.replace(
            scale,
            models=models,
            percentiles=scale.percentiles[here],
            by_question=scale.by_question[here],
        )
        lines = [lineages.get(model) for model in models]
        yield from _pair(pair, names, first, lines, rng, draws)


def _pair(
    scale: Scale,
    names: tuple[str, str],
    first: Array,
    lineages: Sequence[str | None],
    rng: np.random.Generator,
    draws: int,
) -> Iterator[Row]:
    """`by_base` of two bases; `first` [M] is True for the models of the first."""
    cells = [
        (*comparison, framed) for comparison in scale.comparisons() for framed in scale.framings
    ]
    contrasts = np.stack([_contrasts(scale, mine, f) for _, _, mine, f in cells], axis=1)
    medians = np.stack([_medians(scale, mine, f) for _, _, mine, f in cells], axis=1)
    test = permutation_test(contrasts, first, rng, draws)
    _, low, high, _ = welch_interval(contrasts, first)
    of_medians = permutation_test(medians, first, rng, draws)
    lineage_p = _lineage_p(contrasts, first, lineages, rng, draws)
    sides = (*names, int(first.sum()), int((~first).sum()))
    for at, (category, against, mine, framed) in enumerate(cells):
        known = 1.0 if _tested(mine) else math.nan
        p, median_p, of_lineages = (
            known * p_values[at] for p_values in (test.p, of_medians.p, lineage_p)
        )
        yield (
            *(scale.list, scale.name, category, against, framed.name, *sides),
            *(*_sizes(mine, framed), test.value[at], low[at], high[at]),
            *(p, test.least_p, test.assignments),
            *(of_medians.value[at], median_p, of_lineages),
        )


def _tested(mine: Array) -> bool:
    """Whether both sides of a comparison have `LEAST_WORDS` words."""
    return bool(min(mine.sum(), (~mine).sum()) >= LEAST_WORDS)


def _sizes(mine: Array, framed: Framed) -> list[int]:
    """Words, other words, questions and prompts of a comparison."""
    return [int(mask.sum()) for mask in (mine, ~mine, framed.questions != 0, framed.prompts != 0)]


def _weights(signs: Array) -> Array:
    """Weights [N] of a mean (`signs` 1), or of its difference from another (-1); 0 is left out."""
    weights = np.zeros(len(signs))
    for sign in (1, -1):
        side = signs == sign
        weights[side] = sign / max(int(side.sum()), 1)
    return weights


def _contrasts(scale: Scale, mine: Array, framed: Framed) -> Array:
    """Contrast of each model; float64 [M]."""
    words = _weights(np.where(mine, 1, -1))
    return np.asarray(np.einsum("mqw,q,w->m", scale.by_question, framed.questions, words))


def _medians(scale: Scale, mine: Array, framed: Framed) -> Array:
    """The contrast of medians of each model: prompt by prompt, then their mean; float64 [M]."""
    sides = [np.median(scale.percentiles[:, :, these], axis=2) for these in (mine, ~mine)]
    return np.asarray((sides[0] - sides[1]) @ framed.prompts)


def _lineage_p(
    contrasts: Array,
    first: Array,
    lineages: Sequence[str | None],
    rng: np.random.Generator,
    draws: int,
) -> Array:
    """P with models of one base and lineage taken as one; NaN where that changes nothing."""
    units = list(zip(first.tolist(), lineages, strict=True))
    distinct = list(dict.fromkeys(units))
    if None in lineages or len(distinct) == len(units):
        return np.full(contrasts.shape[1], math.nan)
    means = [contrasts[[u == unit for u in units]].mean(axis=0) for unit in distinct]
    sides = np.array([side for side, _ in distinct])
    return permutation_test(np.array(means), sides, rng, draws).p
