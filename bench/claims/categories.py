"""Word categories where base models do not differ, or categories mean nothing.

Nulls:

- bases permuted over made-up models, each with a taste of its own for every word;
- the same, where one model rates agency far above communion under all 54 prompts;
- real rewards of the words, as they stand in the vocabulary, shuffled among the words of a scale
  for each of eleven made-up models, which have bases at random;
- words shuffled between the categories of a scale, made up and real;
- placebo kinds (fruits, months, sizes), about which nobody asks.

A chance is one draw: the claim appears where any of its tests, those of all scales, has q < .05.
Rows of nominal rate 1 promise nothing, and the page claims nothing by them: they show what prompts
as units would say about bases, and what p over words says of placebo kinds.
"""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl

from analysis.measures import word_scores
from analysis.measures.category_contrasts import (
    BY_BASE,
    BY_MODEL,
    by_base,
    by_model,
    scales,
    with_family,
)
from analysis.measures.word_scores import WordScores
from analysis.run import Run
from analysis.words import lexicons
from analysis.words.categories import categories
from analysis.words.questions import NEGATIVE, questions
from bench.claims import Rate
from configs.prompts import FOLLOW_UP

_MODELS = {f"g{i}": "Gemma" for i in range(5)} | {f"l{i}": "Llama" for i in range(6)}
_PERMUTATIONS = 499
_ALPHA = 0.05


def rates(run: Run, draws: int) -> Iterator[Rate]:
    """The rate of each claim under each null.

    Args:
      run: a run folder with real rewards of a vocabulary.
      draws: draws of each null.
    """
    rng = np.random.default_rng(0)
    words = categories()
    found = word_scores.of_vocabulary(run, run.vocabulary_models, words["word"].to_list())
    made: dict[str, Callable[[], WordScores]] = {
        "models with tastes of their own": lambda: made_up(words, rng),
        "one model far from the others": lambda: made_up(words, rng, outlier=6.0),
        "real rewards, words shuffled": lambda: shuffled(found, rng),
    }
    texts = {**FOLLOW_UP, **run.prompts}
    for null, draw in made.items():
        yield from _of_bases(null, draw, words, texts, draws, rng)
    yield _of_models("words shuffled, made up", made["models with tastes of their own"], draws, rng)
    yield _of_models("words shuffled, real rewards", lambda: found, draws, rng, texts)
    yield _of_placebo(run, texts, rng)


def made_up(words: pl.DataFrame, rng: np.random.Generator, outlier: float = 0.0) -> WordScores:
    """Eleven models with a taste each, under 54 prompts; the first may rate agency high.

    A taste is turned round where the prompt asks for something bad, and each prompt adds noise.
    """
    names = words["word"].to_list()
    signs = np.array([-1.0 if f == NEGATIVE else 1.0 for f in questions(FOLLOW_UP)["framing"]])
    category = words["category"].to_numpy()
    agency = 1.0 * (category == "agency") - (category == "communion")
    values = np.empty((len(_MODELS), len(signs), len(names)))
    for m in range(len(_MODELS)):
        taste = rng.normal(size=len(names)) + (outlier * agency if m == 0 else 0.0)
        noise = 0.5 * rng.normal(size=values.shape[1:])
        values[m] = signs[:, None] * taste + noise
    order = np.argsort(names)
    return WordScores(
        source="made up",
        models=list(_MODELS),
        prompts=list(FOLLOW_UP),
        words=[names[at] for at in order],
        values=values[:, :, order],
    )


def shuffled(scores: WordScores, rng: np.random.Generator) -> WordScores:
    """Eleven models with the rewards of real ones, whose words are shuffled in each."""
    values = [
        scores.values[int(rng.integers(len(scores.models)))][:, rng.permutation(len(scores.words))]
        for _ in _MODELS
    ]
    return dataclasses.replace(scores, models=list(_MODELS), values=np.array(values))


def _of_bases(
    null: str,
    draw: Callable[[], WordScores],
    words: pl.DataFrame,
    texts: dict[str, str],
    draws: int,
    rng: np.random.Generator,
) -> Iterator[Rate]:
    """Differences of bases, with models, with all and with prompts as units."""
    asked = questions(texts)
    claims = {
        "categories: bases differ": ("q", _ALPHA),
        "categories: p of medians < .05": ("median_p", _ALPHA),
        "categories: p, all random, < .05": ("crossed_p", _ALPHA),
        "categories: prompts as units, p < .05": ("prompts_p", 1.0),
    }
    appeared: dict[str, list[bool]] = {claim: [] for claim in claims}
    for _ in range(draws):
        scores = draw()
        bases = dict(zip(scores.models, rng.permutation(list(_MODELS.values())), strict=True))
        every = scales(scores, words, asked)
        tables = [by_base(scale, bases, {}, rng, _PERMUTATIONS) for scale in every]
        table = with_family(pl.concat([pl.DataFrame(schema=BY_BASE), *tables]), "every scale")
        for claim, (column, _) in claims.items():
            below = (table[column].drop_nans() < _ALPHA).to_list()
            appeared[claim] += [any(below)] if column == "q" else below
    for claim, (_, nominal) in claims.items():
        yield Rate.of(claim, null, appeared[claim], nominal)


def _of_models(
    null: str,
    draw: Callable[[], WordScores],
    draws: int,
    rng: np.random.Generator,
    texts: dict[str, str] = FOLLOW_UP,
) -> Rate:
    """Some model rates a category of single words drawn at random apart: a check of the test."""
    asked, words = questions(texts), categories()
    appeared = []
    for _ in range(draws):
        mixed = words.with_columns(
            pl.col("word").shuffle(seed=int(rng.integers(2**31))).over("scale")
        )
        table = with_family(_by_model(draw(), mixed, asked, rng), "every scale")
        appeared.append((table["q"].drop_nans() < _ALPHA).any())
    return Rate.of("categories: test over words, any q < .05", null, appeared)


def _of_placebo(run: Run, texts: dict[str, str], rng: np.random.Generator) -> Rate:
    """How often p over words is below .05 for a placebo kind among those of its subject."""
    words = lexicons.placebo().select("word", scale="axis", category="group")
    scores = word_scores.of_vocabulary(run, run.vocabulary_models, words["word"].to_list())
    known = _by_model(scores, words, questions(texts), rng)["p"].drop_nans()
    null = "placebo kinds, real rewards"
    return Rate.of("categories: p over words < .05", null, known < _ALPHA, 1.0)


def _by_model(
    scores: WordScores, words: pl.DataFrame, asked: pl.DataFrame, rng: np.random.Generator
) -> pl.DataFrame:
    """`by_model` of every scale."""
    each = [by_model(scale, rng, _PERMUTATIONS) for scale in scales(scores, words, asked)]
    return pl.concat([pl.DataFrame(schema=BY_MODEL), *each])
