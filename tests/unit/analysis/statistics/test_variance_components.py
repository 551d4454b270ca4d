import math

import numpy as np
import pytest

from analysis.statistics import variance
from analysis.statistics.variance import estimated_shares, noise_shares, shares


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_noise_has_the_shares_that_the_reference_says(rng):
    found = np.mean(
        [shares(rng.normal(size=(200, 5, 3)), np.arange(200))[0] for _ in range(40)], axis=0
    )
    assert noise_shares(5, 3) == pytest.approx([1 / 15, 4 / 15, 2 / 15, 8 / 15])
    assert found == pytest.approx(noise_shares(5, 3), abs=0.005)


def test_corrected_shares_are_those_of_the_planted_variances(rng):
    deviations = np.array([1.0, 0.5, 0.7, 0.8])
    tokens, models, prompts = 4000, 5, 3
    sizes = ((tokens, 1, 1), (tokens, models, 1), (tokens, 1, prompts), (tokens, models, prompts))
    cube = sum(d * rng.normal(size=size) for d, size in zip(deviations, sizes, strict=True))
    share, low, high = estimated_shares(cube, np.arange(tokens))
    truth = deviations**2 / (deviations**2).sum()
    assert share == pytest.approx(truth, abs=0.03)
    assert (low < truth).all()
    assert (truth < high).all()
    raw = shares(cube, np.arange(tokens))[0]
    assert abs(raw - truth).max() > 0.1  # The raw shares answer another question.


def test_spellings_that_repeat_a_word_leave_the_interval_as_wide(rng):
    cube = rng.normal(size=(300, 4, 3)) + rng.normal(size=(300, 1, 1))
    _, low, high = estimated_shares(cube, np.arange(300))
    repeated = estimated_shares(np.repeat(cube, 4, axis=0), np.repeat(np.arange(300), 4))
    assert repeated[2] - repeated[1] == pytest.approx(high - low, rel=0.02)
    alone = estimated_shares(np.repeat(cube, 4, axis=0), np.arange(1200))
    assert ((alone[2] - alone[1]) < 0.6 * (high - low)).all()


def test_noise_alone_is_in_its_interval(rng):
    alarms = 0
    for _ in range(200):
        words = np.repeat(np.arange(100), 2)
        cube = rng.normal(size=(100, 4, 3))[words]
        alarms += (estimated_shares(cube, words)[1][:3] > 0).any()
    assert alarms <= 20


@pytest.mark.parametrize("shape", [(20, 1, 3), (20, 3, 1)])
def test_one_model_or_prompt_cannot_be_corrected(rng, shape):
    cube = rng.normal(size=shape)
    assert np.isnan(estimated_shares(cube, np.arange(20))).all()
    assert np.isnan(variance.estimates(cube)).all()
    share, *_ = shares(cube, np.arange(20))
    assert math.fsum(share) == pytest.approx(1.0)


def test_shares_of_more_tokens_than_are_centred_at_a_time_are_those_of_the_whole(rng):
    tokens = variance._TOKENS + 500
    cube = rng.normal(size=(tokens, 3, 2)) + np.linspace(-4, 4, tokens)[:, None, None]
    centred = cube - cube.mean(axis=0)
    own = centred.mean(axis=(1, 2))
    expected = 6 * (own**2).sum() / (centred**2).sum()
    assert shares(cube, np.arange(tokens))[0][0] == pytest.approx(expected, rel=1e-12)
