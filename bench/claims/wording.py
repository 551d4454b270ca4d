"""What a wording does where it does nothing of its own.

Nulls, for the lists and the vocabulary of the run of which two prompts ask one question, and for
made-up items:

- prompts shuffled among the questions of one framing: questions are no more than wordings;
- the wordings of a question shuffled for each model and item: no wording favours an item, though
  items keep their level, and some move more than others.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis.chapters.tokens import shared_vocabulary
from analysis.measures.list_scores import items_points, list_scores
from analysis.measures.wording_tables import wording_tables
from analysis.measures.wordings import QUESTION, Wordings, of_list, of_vocabulary
from analysis.run import Run
from analysis.statistics import Array
from bench.claims import Rate

_PERMUTATIONS, _COUNT = 199, 1
_ALPHA = 0.05
_ITEMS = 2_000  # Items of a vocabulary that a draw holds.


def rates(run: Run, draws: int) -> Iterator[Rate]:
    """The rate of each claim under each null.

    Args:
      run: a run folder with real rewards.
      draws: draws of each null.
    """
    rng = np.random.default_rng(0)
    yield from _rates("made-up items", [made_up(rng) for _ in range(draws)], rng)
    for wordings in _sources(run):
        some = held(wordings, rng)
        yield from _rates(f"{wordings.source}, real rewards", [some] * draws, rng)


def made_up(rng: np.random.Generator) -> Wordings:
    """Six models, four questions in the same four wordings, items that move more or less.

    What a wording does to an item of a model is the same under every question, and noise beside it.
    """
    questions = np.repeat(["best", "greatest", "worst", "most bad"], 4)
    size, models = 300, [f"m{i}" for i in range(6)]
    moves = np.exp(rng.normal(size=size))
    values = {}
    for model in models:
        shared = np.tile(rng.normal(size=(4, size)), (4, 1))
        moved = moves * (shared + rng.normal(size=(16, size)))
        values[model] = _percentiles(rng.normal(size=size) + moved)
    prompts = pl.DataFrame(
        {
            "prompt": [f"p{i}" for i in range(16)],
            "question": questions,
            "framing": np.repeat(["positive", "negative"], 8),
            "wording": [f"wording {i % 4}" for i in range(16)],
        }
    )
    return Wordings(
        source="made up",
        level=QUESTION,
        items=[f"item {i}" for i in range(size)],
        clusters=np.arange(size),
        models=models,
        prompts=prompts,
        read=values.__getitem__,
    )


def held(wordings: Wordings, rng: np.random.Generator) -> Wordings:
    """The same wordings with all percentiles in memory, of at most `_ITEMS` items."""
    size = len(wordings.items)
    some = np.sort(rng.permutation(size)[:_ITEMS])
    values = {model: wordings.read(model)[:, some] for model in wordings.models}
    return dataclasses.replace(
        wordings,
        items=[wordings.items[at] for at in some],
        clusters=wordings.clusters[some],
        read=values.__getitem__,
    )


def _rates(null: str, each: list[Wordings], rng: np.random.Generator) -> Iterator[Rate]:
    """Both claims of each draw."""
    alike, favoured = [], []
    for wordings in each:
        mixed = _shuffled_prompts(wordings, rng)
        comparison = wording_tables(mixed, rng, _PERMUTATIONS, _COUNT).more_alike["p"]
        alike.append((comparison < _ALPHA).any())
        made = wording_tables(_shuffled_wordings(wordings, rng), rng, _PERMUTATIONS, _COUNT)
        favoured += (made.tests["p"].drop_nans() < _ALPHA).to_list()
    yield Rate.of("wording: one question agrees more, p < .05", f"{null}, prompts shuffled", alike)
    claim = "wording: one wording favours items, p < .05"
    yield Rate.of(claim, f"{null}, wordings shuffled", favoured)


def _shuffled_prompts(wordings: Wordings, rng: np.random.Generator) -> Wordings:
    """Questions permuted over the prompts of a wording, or over all where a framing is one."""
    prompts = wordings.prompts
    keys = prompts.select(pl.concat_str("framing", "wording")).to_series().to_numpy()
    blocks = keys if wordings.level == QUESTION else np.zeros(len(prompts))
    columns = {name: prompts[name].to_numpy().copy() for name in ("question", "framing")}
    for block in np.unique(blocks):
        at = np.flatnonzero(blocks == block)
        order = rng.permutation(at)
        for values in columns.values():
            values[at] = values[order]
    return dataclasses.replace(wordings, prompts=prompts.with_columns(**columns))


def _shuffled_wordings(wordings: Wordings, rng: np.random.Generator) -> Wordings:
    """Percentiles permuted over the wordings of a question, item by item and model by model."""
    values = {}
    for model in wordings.models:
        own = wordings.read(model).copy()
        for _, at in wordings.questions():
            own[at] = rng.permuted(own[at], axis=0)
        values[model] = own
    return dataclasses.replace(wordings, read=values.__getitem__)


def _percentiles(values: Array) -> Array:
    """Percentile of each item under each prompt."""
    places = np.argsort(np.argsort(values, axis=1), axis=1)
    return np.asarray((places + 0.5) / values.shape[1])


def _sources(run: Run) -> Iterator[Wordings]:
    """The lists and the vocabulary of a run of which two prompts ask one question."""
    for name in run.item_lists():
        points = items_points(run, name, list(run.models))
        found = of_list(list_scores(points, list(run.models), run.prompts))
        if found is not None:
            yield found
    shared = shared_vocabulary(run)
    if shared.height:
        found = of_vocabulary(run, shared, run.vocabulary_models)
        if found is not None:
            yield found
