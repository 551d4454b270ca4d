import math

import numpy as np
import pytest

from analysis.statistics import inference


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.slow
def test_the_interval_of_a_mean_holds_it_at_its_rate_even_for_six(rng):
    low, high = inference.bootstrap_means(
        rng.normal(2.0, 1.0, size=(6, 400)), np.arange(6), rng, draws=1000
    )
    assert 0.92 <= np.mean((low <= 2.0) & (high >= 2.0)) <= 0.98


def test_rows_of_one_unit_are_drawn_together(rng):
    values = rng.normal(size=(6, 2))
    low, high = inference.bootstrap_means(values, np.arange(6), rng, draws=4000)
    twice = inference.bootstrap_means(
        np.repeat(values, 3, axis=0), np.repeat(np.arange(6), 3), rng, draws=4000
    )
    np.testing.assert_allclose(twice, (low, high), rtol=0.1, atol=0.02)


def test_one_unit_has_no_interval(rng):
    low, high = inference.bootstrap_means(np.array([[1.0], [2.0]]), np.array([7, 7]), rng, 99)
    assert math.isnan(low[0])
    assert math.isnan(high[0])
