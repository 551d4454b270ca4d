"""Claims about people: orders of people that are shuffled, or follow the models and no more."""

from collections.abc import Iterator

import numpy as np
import polars as pl

import analysis
from analysis.chapters import humans
from analysis.run import Run
from analysis.statistics import Array, ranks
from analysis.statistics.multiplicity import with_q
from bench.claims import Rate, rates_of

_ALPHA = 0.05
_ITEMS = 1500
_PEOPLE = 0.5  # Weight of the models' common order in that of people who follow it.
_DRAWS = 199  # Permutations, and bootstrap samples.


def rates(run: Run, draws: int) -> Iterator[Rate]:
    """False-alarm rates of the sentences on correlations and on single items."""
    rng = np.random.default_rng(0)
    prompt = next(iter(run.vocabulary_prompts))
    models = run.models_under(prompt)
    real = np.array([run.rewards(model, prompt)[1] for model in models[:10]])
    taste = rng.normal(size=300)
    made = taste + rng.normal(size=(6, 300))
    for rewards, said in ((real, "real rewards of tokens"), (made, "synthetic models")):
        drawn = (_claims(_some(rewards, rng), rng) for _ in range(draws))
        yield from rates_of(f"{said}, people shuffled", drawn)
        appeared = []
        for _ in range(draws):
            items = _some(rewards, rng)
            appeared.append(any(humans.item_findings(_tables(items, _follow(items, rng), rng)[1])))
        yield Rate.of("people: item sentence", f"{said}, people by regression alone", appeared)


def _claims(items: Array, rng: np.random.Generator) -> dict[str, bool]:
    """Which claims appear where the order of people has nothing in common with the models."""
    table, gaps = _tables(items, rng.normal(size=items.shape[1]), rng)
    return {
        "people: ρ p": table["p"][int(rng.integers(table.height))] < _ALPHA,
        "people: ρ sentence": any(humans.agreement_findings(table, _names(table))),
        "people: item sentence": any(humans.item_findings(gaps)),
    }


def _names(table: pl.DataFrame) -> dict[str, str]:
    return {model: model for model in table["model"]}


def _some(rewards: Array, rng: np.random.Generator) -> Array:
    """The rewards of some items, no more than `_ITEMS`."""
    count = min(_ITEMS, rewards.shape[1])
    return np.asarray(rewards[:, rng.choice(rewards.shape[1], count, replace=False)])


def _follow(items: Array, rng: np.random.Generator) -> Array:
    """Scores of people: the models' mean percentile in part, the rest by chance."""
    common = np.mean([ranks.percentiles(own) for own in items], axis=0)
    common = (common - common.mean()) / common.std()
    return _PEOPLE * common + np.sqrt(1 - _PEOPLE**2) * rng.normal(size=items.shape[1])


def _tables(
    items: Array, people: Array, rng: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`humans_correlation.csv` and `humans_gap.csv` of one list."""
    count = items.shape[1]
    named = {"item_id": range(count), "item": [f"item {i}" for i in range(count)]}
    sides = pl.DataFrame(
        {**named, "matches": rng.integers(50, 1000, count), "human": people}
        | {f"m{i}": own for i, own in enumerate(items)}
    )
    table = with_q(analysis.humans_correlation(sides, "list", "prompt", rng, _DRAWS))
    ranked = analysis.humans_ranks(sides)
    chance = humans.humans_chance(ranked, rng, _DRAWS)["nearest"].to_numpy()
    return table, analysis.humans_gap(ranked, "list", "prompt", chance)
