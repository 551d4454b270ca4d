"""Nulls of the claims on words, traits and people: few draws on a small run."""

import dataclasses

import numpy as np
import pytest

import analysis
from bench.claims import (
    conventions,
    explained,
    frequency,
    humans,
    overoptimisation,
    sentiment,
)
from tests.support import runs

DRAWS = 8


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("claims") / "run"
    return analysis.load(runs.full_run(folder, np.random.default_rng(0)))


@pytest.mark.slow
@pytest.mark.parametrize("claims", [explained, frequency, humans, sentiment])
def test_nothing_to_find_is_seldom_spoken_of(claims, run):
    rates = list(claims.rates(run, DRAWS))
    assert len({(rate.claim, rate.null) for rate in rates}) == len(rates) >= 4
    for rate in rates:
        assert (rate.draws, rate.nominal) == (DRAWS, 0.05)
        assert rate.appeared <= 3, rate  # Four or more of eight: once in 2,700 at the nominal rate.


@pytest.mark.slow
def test_readings_and_policies_that_only_err_are_seldom_spoken_of(run, monkeypatch):
    monkeypatch.setattr(overoptimisation, "_TOKENS", 300)
    monkeypatch.setattr(conventions, "_SIZES", (0.3,))
    monkeypatch.setattr(
        conventions, "_TOKENS", len(run.rewards(run.vocabulary_models[0], "best")[0])
    )
    for claims, count in ((overoptimisation, 3), (conventions, 4)):
        rates = list(claims.rates(run, DRAWS))
        assert len(rates) == count
        for rate in rates:
            assert (rate.draws, rate.nominal) == (DRAWS, 0.05)
            assert rate.appeared <= 3, rate


def test_without_its_test_the_sentence_appears_where_rewards_rise_together(monkeypatch):
    """The control: the nulls above do hold pairs whose curves turn down by chance."""
    monkeypatch.setattr(overoptimisation, "_TOKENS", 300)
    rng = np.random.default_rng(0)
    drawn = [overoptimisation.made_up(rng, 1.0) for _ in range(DRAWS)]
    assert sum(map(overoptimisation.untested, drawn)) > DRAWS / 2


def test_a_reward_that_falls_for_many_words_is_spoken_of():
    """The planted case of the nulls: what one reward likes most, the other one does not."""
    rng = np.random.default_rng(0)
    replies = overoptimisation.made_up(rng, 1.0)
    own = replies.rewards[0]
    read = np.where(own < np.quantile(own, 0.97), own, own.min()) + 0.1 * rng.normal(size=len(own))
    turned = dataclasses.replace(replies, models=("m0", "m1"), rewards=np.array([own, read]))
    assert overoptimisation.claimed(turned, rng)
