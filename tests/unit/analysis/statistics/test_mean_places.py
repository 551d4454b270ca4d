"""Whether a mean place is beyond chance."""

import itertools

import numpy as np
import pytest

from analysis.statistics.permutation_tests import mean_place_test


def test_p_is_that_of_all_permutations():
    places = np.array([[0.1, 0.3, 0.5, 0.7, 0.9], [0.3, 0.1, 0.5, 0.7, 0.9]])
    every = [np.mean(pair) for pair in itertools.product(*places)]
    found = places.mean(axis=0)
    expected = [np.mean(np.abs(np.subtract(every, 0.5)) >= abs(x - 0.5) - 1e-9) for x in found]
    p = mean_place_test(places, np.random.default_rng(0), 200_000)
    assert p == pytest.approx(expected, abs=0.002)
    assert expected[4] == pytest.approx(2 / 25)


def test_noise_gives_uniform_p():
    rng = np.random.default_rng(1)
    below = [
        mean_place_test(rng.permuted(np.tile(np.arange(50.0), (6, 1)), axis=1), rng, 999) < 0.05
        for _ in range(100)
    ]
    assert np.mean(below) == pytest.approx(0.05, abs=0.01)


def test_one_order_is_no_evidence():
    assert np.isnan(mean_place_test(np.arange(5.0)[None], np.random.default_rng(0), 99)).all()
