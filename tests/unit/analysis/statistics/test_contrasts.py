"""Differences of groups of words, against independent computations."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from analysis.statistics import permutation_tests


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def plain(values, labels, rng, draws):
    """The contrast of words of one form, each its own stem."""
    count = len(values)
    return permutation_tests.contrast(values, labels, np.zeros(count), np.arange(count), rng, draws)


def test_words_of_one_form_without_relatives_have_the_interval_of_the_t_test(rng):
    values, labels = rng.normal(size=(16, 3)), np.arange(16) < 5
    found = plain(values, labels, rng, draws=5000)  # 4,368 arrangements
    expected = scipy.stats.ttest_ind(values[labels], values[~labels])
    interval = expected.confidence_interval()
    np.testing.assert_allclose(found.low, interval.low)
    np.testing.assert_allclose(found.high, interval.high)


def fitted(values, labels, strata):
    """The coefficient of the label in least squares on the label and the strata, and its t."""
    design = np.column_stack([labels, *(strata == stratum for stratum in np.unique(strata))])
    design = design.astype(float)
    coefficients, square, *_ = np.linalg.lstsq(design, values, rcond=None)
    variance = square[0] / (len(values) - design.shape[1]) * np.linalg.inv(design.T @ design)[0, 0]
    return coefficients[0], coefficients[0] / math.sqrt(variance)


def test_few_arrangements_are_enumerated_and_words_of_one_stem_stay_together(rng):
    units = np.array([0, 0, 1, 2, 2, 3, 4, 4, 5])
    strata = np.array(["one", "many", "one", "one", "many", "many", "one", "many", "one"])
    labels = np.isin(units, (0, 3))
    values = rng.normal(size=9) + labels
    every = [
        fitted(values, np.isin(units, pair), strata)[1]
        for pair in itertools.combinations(range(6), 2)
    ]
    observed, t = fitted(values, labels, strata)
    found = permutation_tests.contrast(values[:, None], labels, strata, units, rng, draws=99)
    assert found.difference[0] == pytest.approx(observed)
    assert found.p[0] == pytest.approx(np.mean(np.abs(every) >= abs(t) - 1e-9))


def test_where_there_are_many_arrangements_some_are_drawn(rng):
    values, labels = rng.normal(size=(16, 2)), np.arange(16) < 5
    exact = plain(values, labels, rng, draws=5000)
    drawn = plain(values, labels, rng, draws=4000)
    np.testing.assert_allclose(drawn.p, exact.p, atol=0.03)
    assert ((4001 * drawn.p) % 1 < 1e-6).all()  # (1 + as large) / (1 + draws)


def test_every_arrangement_is_there_once():
    ways, exact = permutation_tests.arrangements(2, 5, np.random.default_rng(0), 10)
    assert exact
    assert len({tuple(way) for way in ways.tolist()}) == 10
    assert (ways.sum(axis=1) == 2).all()
    drawn, exact = permutation_tests.arrangements(2, 5, np.random.default_rng(0), 9)
    assert not exact
    assert (drawn.sum(axis=1) == 2).all()


def test_words_of_another_form_change_nothing(rng):
    labels, units = np.array([True, False, False, True]), np.arange(4)
    forms = np.array(["plural", "plural", "plural", "adjective"])
    found = permutation_tests.contrast(
        np.array([[3.0], [1.0], [2.0], [50.0]]), labels, forms, units, rng, 99
    )
    assert found.difference[0] == pytest.approx(1.5)
    assert permutation_tests.compared(labels, forms) == (1, 2)


def test_without_words_of_one_form_nothing_is_compared(rng):
    labels, forms = np.array([True, False]), np.array(["plural", "adjective"])
    found = permutation_tests.contrast(np.ones((2, 1)), labels, forms, np.arange(2), rng, 99)
    assert all(math.isnan(number[0]) for number in (found.difference, found.low, found.p))


def test_words_that_do_not_count_have_no_weight(rng):
    labels = rng.random((6, 9)) < 0.5
    included = rng.random((6, 9)) < 0.7
    strata = np.arange(9) % 2
    values = rng.normal(size=9)
    found = permutation_tests.weights(labels, strata, included) @ values
    for row in range(6):
        kept = included[row]
        alone = permutation_tests.weights(labels[row][kept][None], strata[kept])[0] @ values[kept]
        np.testing.assert_allclose(found[row], alone)


def alarms(rng, units, test_units, draws=300):
    """Share of p < .05 where stems differ, words of a stem hardly, and groups not at all."""
    count = len(np.unique(units))
    found = 0
    for _ in range(draws):
        values = rng.normal(size=count)[units] + 0.3 * rng.normal(size=len(units))
        labels = np.isin(units, rng.permutation(count)[: count // 2])
        strata = np.arange(len(units)) % 2
        found += (
            permutation_tests.contrast(values[:, None], labels, strata, test_units, rng, 199).p[0]
            < 0.05
        )
    return found / draws


@pytest.mark.slow
def test_stems_hold_the_nominal_rate_and_words_alone_would_not(rng):
    units = np.repeat(np.arange(10), 2)
    assert alarms(rng, units, units) < 0.09
    assert alarms(rng, units, np.arange(20)) > 0.12


@pytest.mark.slow
def test_the_interval_holds_the_difference_at_its_rate_even_of_one_stem(rng):
    units = np.repeat(np.arange(12), 2)
    strata = np.arange(24) % 2
    for chosen in (1, 5):
        labels, held = units < chosen, 0
        for _ in range(400):
            values = 0.5 * labels + rng.normal(size=12)[units] + 0.3 * rng.normal(size=24) + strata
            found = permutation_tests.contrast(values[:, None], labels, strata, units, rng, 199)
            held += found.low[0] <= 0.5 <= found.high[0]
        assert 0.91 <= held / 400 <= 0.99
