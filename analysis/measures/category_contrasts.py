"""Contrasts of word categories: by model, and between models of different bases.

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

import numpy as np
import polars as pl

from analysis.measures.word_groups.measure import LEAST_WORDS
from analysis.measures.word_scores import WordScores
from analysis.statistics import Array
from analysis.statistics.inference import with_q
from analysis.statistics.permutation_tests import permutation_test, welch_interval
from analysis.words.questions import NEGATIVE, POSITIVE
from engine.runs.schema import Columns

BOTH = "positive minus negative"
UNKNOWN = "unknown"
OTHERS = "the others"
_SIDES: Columns = dict.fromkeys(("list", "scale", "category", "against", "framing"), pl.String)
_INTERVAL: Columns = dict.fromkeys(("ci_low", "ci_high"), pl.Float64)
BY_MODEL: Columns = {
    **_SIDES,
    "model": pl.String,
    **dict.fromkeys(("words", "other_words", "questions", "prompts"), pl.Int64),
    "contrast": pl.Float64,
    **_INTERVAL,
    "p": pl.Float64,
}
BY_BASE: Columns = {
    **_SIDES,
    **dict.fromkeys(("base", "other_base"), pl.String),
    **dict.fromkeys(("models", "other_models", "words", "other_words"), pl.Int64),
    **dict.fromkeys(("questions", "prompts"), pl.Int64),
    "difference": pl.Float64,
    **_INTERVAL,
    "p": pl.Float64,
    "least_p": pl.Float64,
    "assignments": pl.Int64,
    **dict.fromkeys(("median_difference", "median_p", "lineage_p"), pl.Float64),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Framed:
    """A framing of the questions, or the difference of two.

    Attributes:
      name: "positive", "negative", "positive minus negative" or "unknown".
      questions: for each question 1, -1 or 0, as `signed_weights` takes them.
      prompts: the same for each prompt.
    """

    name: str
    questions: Array
    prompts: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """The words of one scale, as the models of one list rank them.

    Attributes:
      list: name of the list, or "vocabulary".
      name: name of the scale.
      models: slugs.
      prompts: prompt ids; every model was asked all of them.
      categories: category of each word [W].
      percentiles: float64 [M, P, W].
      by_question: the mean over the wordings of each question; float64 [M, Q, W].
      framings: the framings of the prompts.
    """

    list: str
    name: str
    models: Sequence[str]
    prompts: Sequence[str]
    categories: Array
    percentiles: Array
    by_question: Array
    framings: Sequence[Framed]

    def comparisons(self) -> Iterator[tuple[str, str, Array]]:
        """Each category, what it is compared with, and bool [W]: its words.

        Of two categories the first is compared with the second; of more, each with all others.
        """
        names = list(dict.fromkeys(self.categories.tolist()))
        for name in names[:1] if len(names) == 2 else names:
            against = names[1] if len(names) == 2 else OTHERS
            yield name, against, self.categories == name


def scales(scores: WordScores, words: pl.DataFrame, asked: pl.DataFrame) -> Iterator[Scale]:
    """The scales of `words` that have enough of them in `scores` to compare a category.

    Args:
      scores: rewards of the words.
      words: what `words.categories.categories` returns.
      asked: what `words.questions.questions` returns, for every prompt.
    """
    for (name,), own in words.group_by("scale", maintain_order=True):
        kept = scores.only(own["word"].to_list()).complete()
        of_word = dict(own.select("word", "category").iter_rows())
        order = {category: at for at, category in enumerate(dict.fromkeys(own["category"]))}
        places = sorted(range(len(kept.words)), key=lambda at: order[of_word[kept.words[at]]])
        categories = np.array([of_word[kept.words[at]] for at in places])
        if not kept.prompts or not _enough(categories):
            continue
        percentiles = kept.percentiles()[:, :, places]
        by_prompt = {p: (c, f or UNKNOWN) for p, c, f, _ in asked.iter_rows()}
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
            prompts=kept.prompts,
            categories=categories,
            percentiles=percentiles,
            by_question=np.stack(means, axis=1),
            framings=_framings([f for _, f in questions], [f for _, f in prompts]),
        )


def _enough(categories: Array) -> bool:
    """Whether some category, and the others together, have `LEAST_WORDS` words."""
    counts = np.unique(categories, return_counts=True)[1]
    return bool(((counts >= LEAST_WORDS) & (len(categories) - counts >= LEAST_WORDS)).any())


def _framings(questions: Sequence[str], prompts: Sequence[str]) -> list[Framed]:
    """The framings that occur, and the difference of the two opposite ones."""
    found: list[Framed] = []
    sides = {name: (name, "") for name in (POSITIVE, NEGATIVE, UNKNOWN)} | {
        BOTH: (POSITIVE, NEGATIVE)
    }
    for name, (first, second) in sides.items():
        if first in questions and (not second or second in questions):
            signs = [
                np.array([(f == first) - (f == second) for f in named], dtype=np.int64)
                for named in (questions, prompts)
            ]
            found.append(Framed(name=name, questions=signs[0], prompts=signs[1]))
    return found


def by_model(scale: Scale, rng: np.random.Generator, permutations: int) -> pl.DataFrame:
    """Contrast of each category for each model, with words as units.

    The interval is Welch's, over words. The test permutes the categories among the words of the
    scale. It says little: words of any one kind are rated apart from words of another more often
    than single words drawn at random are: a third of the tests of ordinary kinds have p < .05.

    Args:
      scale: what `scales` yields.
      rng: draws the permutations.
      permutations: draws of each test.

    Returns:
      list, scale, category, against, framing, model, words, other_words, questions, prompts,
      contrast, ci_low, ci_high, p (NaN for fewer than five words on a side).
    """
    found = []
    weights = np.array([signed_weights(framed.questions) for framed in scale.framings])
    values = np.einsum("mqw,fq->wfm", scale.by_question, weights)
    flat = values.reshape(len(values), -1)
    for category, against, mine in scale.comparisons():
        low, high = welch_interval(flat, mine)
        contrast = flat[mine].mean(axis=0) - flat[~mine].mean(axis=0)
        p = np.full(flat.shape[1], math.nan)
        if min(mine.sum(), (~mine).sum()) >= LEAST_WORDS:
            p = permutation_test(flat, mine, rng, permutations).p
        cells = itertools.product(scale.framings, scale.models)
        for at, (framed, model) in enumerate(cells):
            keys = (scale.list, scale.name, category, against, framed.name, model)
            numbers = (contrast[at], low[at], high[at], p[at])
            found.append((*keys, *_sizes(mine, framed), *map(float, numbers)))
    return pl.DataFrame(found, schema=BY_MODEL, orient="row")


def by_base(
    scale: Scale,
    bases: Mapping[str, str | None],
    lineages: Mapping[str, str | None],
    rng: np.random.Generator,
    draws: int,
) -> pl.DataFrame:
    """How far models of one base differ from models of another in their contrasts.

    `p` permutes the bases over the models. Prompts are no units: the same few models answer every
    prompt.

    Args:
      scale: what `scales` yields.
      bases: slug -> family of base models; None where it is not known.
      lineages: slug -> weights or data it was trained from, or None.
      rng: draws assignments where there are more than `draws`.
      draws: number of assignments at most.

    Returns:
      list, scale, category, against, framing, base, other_base, models, other_models, words,
      other_words, questions, prompts, difference (of the contrasts of `base` from those of
      `other_base`), ci_low, ci_high (Welch's, over models), p, least_p (the smallest that so few
      models can give), assignments, median_difference, median_p (the same of medians), lineage_p
      (models of one base and one lineage taken as one; NaN where lineages are unknown or all
      different). No rows where no two bases have two models each.
    """
    frames = [pl.DataFrame(schema=BY_BASE)]
    families = sorted({base for model in scale.models if (base := bases.get(model))})
    of_model = np.array([bases.get(model) or "" for model in scale.models])
    for first, second in itertools.combinations(families, 2):
        here = np.isin(of_model, (first, second))
        sides = of_model[here] == first
        if min(sides.sum(), (~sides).sum()) < 2:
            continue
        models = [model for model, kept in zip(scale.models, here, strict=True) if kept]
        pair = dataclasses.replace(
            scale,
            models=models,
            percentiles=scale.percentiles[here],
            by_question=scale.by_question[here],
        )
        lines = [lineages.get(model) for model in models]
        frames.append(_pair(pair, (first, second), sides, lines, rng, draws))
    return pl.concat(frames)


def _pair(
    scale: Scale,
    names: tuple[str, str],
    first: Array,
    lineages: Sequence[str | None],
    rng: np.random.Generator,
    draws: int,
) -> pl.DataFrame:
    """`by_base` of two bases; `first` [M] is True for the models of the first."""
    found = []
    cells = [(*one, framed) for one in scale.comparisons() for framed in scale.framings]
    contrasts = np.stack([_model_contrasts(scale, mine, f) for _, _, mine, f in cells], axis=1)
    medians = np.stack([_model_medians(scale, mine, f) for _, _, mine, f in cells], axis=1)
    test = permutation_test(contrasts, first, rng, draws)
    low, high = welch_interval(contrasts, first)
    of_medians = permutation_test(medians, first, rng, draws)
    lineage_p = _lineage_p(contrasts, first, lineages, rng, draws)
    for at, (category, against, mine, framed) in enumerate(cells):
        keys = (scale.list, scale.name, category, against, framed.name, *names)
        tested = min(mine.sum(), (~mine).sum()) >= LEAST_WORDS
        several = [of_medians.p[at], lineage_p[at]]
        ps = [float(p) if tested else math.nan for p in (test.p[at], *several)]
        found.append(
            (
                *keys,
                *(int(first.sum()), int((~first).sum())),
                *_sizes(mine, framed),
                *map(float, (test.difference[at], low[at], high[at])),
                *(ps[0], test.least_p, test.assignments),
                *(float(of_medians.difference[at]), *ps[1:]),
            )
        )
    return pl.DataFrame(found, schema=BY_BASE, orient="row")


def with_family(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """`table` with q, and `family`: the tests that q corrects for, which are all of the table.

    Args:
      table: what `by_model` or `by_base` returns, of every scale and list.
      name: the file that the table becomes.
    """
    return with_q(table).with_columns(family=pl.lit(f"all tests of {name}"))


def _sizes(mine: Array, framed: Framed) -> tuple[int, int, int, int]:
    """Words, other words, questions and prompts of a comparison."""
    used = (mine, ~mine, framed.questions != 0, framed.prompts != 0)
    words, others, questions, prompts = (int(one.sum()) for one in used)
    return words, others, questions, prompts


def signed_weights(signs: Array) -> Array:
    """Weights of a mean, or of a difference of two means; float64 [N].

    Args:
      signs: 1 for the first side, -1 for the second, 0 for what is left out; there may be no
        second side.
    """
    weights = np.zeros(len(signs))
    for sign in (1, -1):
        side = signs == sign
        weights[side] = sign / max(int(side.sum()), 1)
    return weights


def _word_signs(mine: Array) -> Array:
    return np.where(mine, 1, -1)


def _model_contrasts(scale: Scale, mine: Array, framed: Framed) -> Array:
    """Contrast of each model; float64 [M]."""
    words, questions = signed_weights(_word_signs(mine)), signed_weights(framed.questions)
    return np.asarray(np.einsum("mqw,q,w->m", scale.by_question, questions, words))


def _model_medians(scale: Scale, mine: Array, framed: Framed) -> Array:
    """The contrast of medians of each model: prompt by prompt, then their mean; float64 [M]."""
    sides = [np.median(scale.percentiles[:, :, these], axis=2) for these in (mine, ~mine)]
    return np.asarray((sides[0] - sides[1]) @ signed_weights(framed.prompts))


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
