"""A short version of the nulls of `bench.claims`: claims about nothing stay at their rate."""

import numpy as np
import pytest
import scipy.stats

import analysis
from bench.claims import agreement, distributions, framing, variance
from bench.support.shuffled_stems import shuffled_places
from tests.support import runs

DRAWS = 12
PROMPTS = ("greatest", "best", "worst")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three models that agree, under prompts of which the last turns the order round."""
    rng = np.random.default_rng(0)
    tokens = [f"{space}w{i}" for i in range(80) for space in ("", " ")]
    value = np.repeat(rng.normal(size=80), 2)
    scores = {
        (f"m{i}", prompt): (-1 if prompt == "worst" else 1) * value + 0.5 * rng.normal(size=160)
        for i in range(3)
        for prompt in PROMPTS
    }
    folder = tmp_path_factory.mktemp("null") / "run"
    models = {f"m{i}": "v" for i in range(3)}
    return analysis.load(runs.write_run(folder, {"v": tokens}, models, scores, 200))


@pytest.mark.parametrize("chapter", [agreement, distributions, variance, framing])
def test_of_nothing_no_more_is_said_than_promised(run, chapter):
    rates = list(chapter.rates(run, DRAWS))
    assert len(rates) >= 3
    for rate in rates:
        above = scipy.stats.binomtest(rate.appeared, rate.draws, rate.nominal, "greater")
        assert above.pvalue > 0.001, rate


def test_shuffled_places_are_a_permutation_that_keeps_neighbours():
    words = np.repeat(np.arange(50), 4)
    places = shuffled_places(words, np.random.default_rng(1))
    assert sorted(places) == list(range(200))
    taken = words[places].reshape(50, 4)
    together = np.mean([len(set(row)) for row in taken])
    assert together == 1  # All words have four spellings, so whole words are exchanged.
    assert (taken[:, 0] != np.arange(50)).sum() > 40
