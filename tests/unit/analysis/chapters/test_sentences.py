"""Sentences on words and people stand where an effect was planted."""

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.chapters import frequency, humans, sentiment
from tests.support.studies import cited

NAMES = {"a": "Ann", "b": "Bob"}
PROMPTS = ["best", "worst"]
QUOTED = {prompt: f"“{prompt}”" for prompt in PROMPTS}


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def words(rng, effect):
    """Two models under two prompts: `effect` of (value, frequency) under "best", none else."""
    value = rng.choice([-4.0, -2.0, -1.0, 1.0, 2.0, 4.0], 150)
    often = rng.normal(size=150)
    frames = []
    for model in NAMES:
        for prompt in PROMPTS:
            planted = effect(value, often) if prompt == "best" else 0.0
            columns = {"word": [f"w{i}" for i in range(150)], "value": value}
            columns |= {"log_frequency": often, "reward": planted + rng.normal(size=150)}
            keys = (pl.lit(model).alias("model"), pl.lit(prompt).alias("prompt"))
            frames.append(pl.DataFrame(columns).select(*keys, pl.all()))
    return pl.concat(frames)


def test_slopes_of_valence_that_were_planted_are_said(rng):
    points = words(rng, lambda value, _: 0.8 * np.maximum(value, 0))
    slopes = analysis.sentiment_slopes(points)
    first, *_ = sentiment.slope_findings(slopes, QUOTED)
    assert (cited(first.text)[0], first.picture) == ("best", "sentiment_slopes")
    assert " positive words" in first.text and " other words" in first.text


@pytest.mark.parametrize(("second", "clauses"), [("a", 1), ("b", 2)])
def test_both_sides_are_one_clause_where_the_same_models_have_them(second, clauses):
    rows = [
        (m, side, 0.01 if m == sure else 0.9)
        for side, sure in (("positive", "a"), ("negative", second))
        for m in "ab"
    ]
    slopes = pl.DataFrame(rows, ("model", "valence", "q"), orient="row")
    slopes = slopes.with_columns(prompt=pl.lit("best"), slope=1.0)
    (finding,) = sentiment.slope_findings(slopes, QUOTED)
    assert len(finding.text.split("; ")) == clauses


def test_a_slope_of_frequency_that_was_planted_is_said(rng):
    points = words(rng, lambda _, often: 0.9 * often)
    (finding,) = frequency.findings(analysis.frequency_slopes(points), QUOTED)
    assert cited(finding.text)[0] == "best" and " higher " in finding.text


def test_words_without_an_effect_are_not_spoken_of(rng):
    points = words(rng, lambda *_: 0.0)
    assert not list(sentiment.slope_findings(analysis.sentiment_slopes(points), QUOTED))
    assert not list(frequency.findings(analysis.frequency_slopes(points), QUOTED))


def people(rng, weight, slighted=False):
    """Sentences on 300 items that people rank as two models do, by `weight`."""
    common = rng.normal(size=300)
    human = weight * common + np.sqrt(1 - weight**2) * rng.normal(size=300)
    models = {model: common + 0.5 * rng.normal(size=300) for model in NAMES}
    if slighted:
        for rewards in models.values():
            rewards[np.argmax(human)] = -99.0
    items = [f"item {i}" for i in range(300)]
    sides = {"item_id": range(300), "item": items, "matches": rng.integers(50, 900, 300)}
    sides = pl.DataFrame(sides | {"human": human} | models)
    table = analysis.humans_correlation(sides, "list", "p", rng, draws=99)
    ranked = analysis.humans_ranks(sides)
    chance = humans.humans_chance(ranked, rng, draws=199)["nearest"].to_numpy()
    gaps = analysis.humans_gap(ranked, "list", "p", chance)
    item = items[int(np.argmax(human))]
    told = humans.agreement_findings(table, {"p": "“p”"})
    return list(told), list(humans.item_findings(gaps)), item


def test_models_that_rank_as_people_do_are_counted(rng):
    (plain,), _, _ = people(rng, 0.6)
    assert cited(plain.text) == ["p", "list"]


def test_an_item_that_all_models_slight_is_named(rng):
    _, (found,), item = people(rng, 0.95, slighted=True)
    assert cited(found.text)[:4] == [item, "1", "300", "300"]


@pytest.mark.parametrize("weight", [0.0, 0.6])
def test_items_are_hardly_ever_named_where_people_follow_the_models_or_do_not(rng, weight):
    made = [people(rng, weight) for _ in range(8)]
    assert sum(bool(named_items) for _, named_items, _ in made) <= 2
    assert weight or sum(bool(agree) for agree, _, _ in made) <= 2
