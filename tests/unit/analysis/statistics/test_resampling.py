import itertools
import math

import numpy as np
import pytest

from analysis.statistics import resampling


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.slow
def test_the_interval_of_a_mean_holds_it_at_its_rate_even_for_six(rng):
    held = 0
    for _ in range(400):
        low, high = resampling.bootstrap_mean(rng.normal(2.0, 1.0, size=6), rng, draws=1000)
        held += low <= 2.0 <= high
    assert 0.92 <= held / 400 <= 0.98


def test_one_value_has_no_interval(rng):
    assert all(math.isnan(end) for end in resampling.bootstrap_mean(np.array([1.0]), rng, 99))


def test_permuting_inside_strata_is_the_enumeration(rng):
    values = np.array([3.0, 1.0, 2.0, 0.5, 5.0, 4.0, 1.5])
    labels = np.array([1, 0, 0, 0, 1, 0, 0], dtype=bool)
    strata = np.array([0, 0, 0, 0, 1, 1, 1])

    def statistic(chosen):
        return sum(
            sum(values[i] for i in part) - len(part) * np.mean([values[j] for j in rest])
            for part, rest in chosen
        )

    def split(rows, one):
        return [one], [i for i in rows if i != one]

    found = statistic([split(range(4), 0), split((4, 5, 6), 4)])
    every = [
        statistic([split(range(4), a), split((4, 5, 6), b)])
        for a, b in itertools.product(range(4), (4, 5, 6))
    ]
    exact = np.mean(np.abs(every) >= abs(found) - 1e-12)
    difference, p = resampling.stratified_test(values[:, None], labels, strata, rng, draws=20_000)
    assert difference[0] == pytest.approx(found / 2)  # of two labelled things
    assert p[0] == pytest.approx(exact, abs=0.01)


def test_without_their_like_nothing_can_be_compared(rng):
    labels, strata = np.array([True, False]), np.array(["plural", "adjective"])
    both = resampling.stratified_test(np.array([[1.0], [2.0]]), labels, strata, rng, draws=99)
    assert np.isnan(both).all()


def test_things_of_another_stratum_change_nothing(rng):
    values = np.array([[5.0], [1.0], [1.1], [0.9], [99.0]])
    labels = np.array([True, False, False, False, False])
    strata = np.array(["a", "a", "a", "a", "b"])
    with_other = resampling.stratified_test(values, labels, strata, np.random.default_rng(1), 999)
    without = resampling.stratified_test(
        values[:4], labels[:4], strata[:4], np.random.default_rng(1), 999
    )
    np.testing.assert_allclose(with_other, without)
