import itertools
import math

import numpy as np
import pytest
import scipy.stats

from analysis.statistics import permutation_tests
from analysis.statistics.permutation_tests import label_agreement, mean_place_test, permutation_test


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
    assert found.value[0] == pytest.approx(observed)
    assert found.p[0] == pytest.approx(np.mean(np.abs(every) >= abs(t) - 1e-9))


def test_where_there_are_many_arrangements_some_are_drawn(rng):
    values, labels = rng.normal(size=(16, 2)), np.arange(16) < 5
    exact = plain(values, labels, rng, draws=5000)
    drawn = plain(values, labels, rng, draws=4000)
    np.testing.assert_allclose(drawn.p, exact.p, atol=0.03)
    assert ((4001 * drawn.p) % 1 < 1e-6).all()  # (1 + as large) / (1 + draws)


def test_words_of_another_form_change_nothing(rng):
    labels, units = np.array([True, False, False, True]), np.arange(4)
    forms = np.array(["plural", "plural", "plural", "adjective"])
    found = permutation_tests.contrast(
        np.array([[3.0], [1.0], [2.0], [50.0]]), labels, forms, units, rng, 99
    )
    assert found.value[0] == pytest.approx(1.5)
    assert permutation_tests.compared(labels, forms) == (1, 2)
    alone = permutation_tests.contrast(np.ones((2, 1)), labels[:2], forms[2:], units[:2], rng, 99)
    assert np.isnan([alone.value, alone.low, alone.p]).all()


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


def apart(x, y, axis):
    return abs(x.mean(axis=axis) - y.mean(axis=axis))


@pytest.mark.parametrize(("one", "other"), [(4, 6), (3, 3), (2, 5)])
def test_every_assignment_is_compared_as_scipy_does(rng, one, other):
    values = rng.normal(size=(one + other, 5)) + np.linspace(0, 2, 5)
    values[:one] += 1.0
    first = np.arange(one + other) < one
    found = permutation_test(values, first, rng, draws=9_999)
    theirs = scipy.stats.permutation_test(
        (values[first], values[~first]), apart, n_resamples=np.inf, alternative="greater", axis=0
    )
    np.testing.assert_allclose(np.abs(found.value), theirs.statistic)
    np.testing.assert_allclose(found.p, theirs.pvalue)
    assert found.assignments == math.comb(one + other, one)


@pytest.mark.parametrize(
    ("one", "other", "least"), [(4, 6, 1 / 210), (4, 4, 2 / 70), (2, 2, 1 / 3)]
)
def test_the_smallest_p_is_that_of_groups_wholly_apart(rng, one, other, least):
    first = np.arange(one + other) < one
    values = (np.where(first, 10.0, 0.0) + rng.normal(size=one + other))[:, None]
    found = permutation_test(values, first, rng, draws=999)
    assert found.p[0] == pytest.approx(found.least_p) == pytest.approx(least)


def test_many_assignments_are_drawn_at_random(rng):
    first = np.arange(30) < 15
    values = np.stack([np.where(first, 3.0, 0.0), np.zeros(30)], axis=1) + rng.normal(size=(30, 2))
    found = permutation_test(values, first, rng, draws=499)
    assert found.assignments == 499
    assert found.p[0] == found.least_p == 1 / 500
    assert 0.05 < found.p[1] <= 1.0
    alike = permutation_test(np.full((6, 1), 0.1), np.arange(6) < 2, rng, draws=999)
    assert alike.p[0] == 1.0


def test_the_interval_is_welchs(rng):
    values, first = rng.normal(size=(11, 3)), np.arange(11) < 4
    values[first] *= 3.0
    difference, low, high, _ = permutation_tests.welch_interval(values, first)
    theirs = scipy.stats.ttest_ind(values[first], values[~first], equal_var=False)
    expected = theirs.confidence_interval(0.95)
    np.testing.assert_allclose((low, high), (expected.low, expected.high))
    np.testing.assert_allclose(difference, values[first].mean(axis=0) - values[~first].mean(axis=0))
    assert np.isnan(permutation_tests.welch_interval(values[2:], first[2:])[1:3]).all()


def test_it_is_the_share_of_permutations_that_are_as_far_apart(rng):
    similarity = rng.normal(size=(6, 6))
    similarity += similarity.T
    labels, blocks = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 0, 0, 1, 1])
    compared = blocks[:, None] == blocks
    difference, p = label_agreement(similarity, labels, compared, blocks, rng, 4_999)

    def apart(order):
        same, other = [], []
        for i, j in itertools.combinations(range(4), 2):
            (same if order[i] == order[j] else other).append(similarity[i, j])
        return np.mean([*same, similarity[4, 5]]) - np.mean(other)

    drawn = [apart(order) for order in itertools.permutations(labels[:4])]
    assert difference == pytest.approx(apart(labels))
    assert p == pytest.approx(np.mean(np.array(drawn) >= difference - 1e-12), abs=0.03)


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2]])
def test_without_both_kinds_of_pairs_there_is_no_test(rng, labels):
    found = label_agreement(np.eye(3), np.array(labels), np.ones((3, 3)) > 0, np.zeros(3), rng, 99)
    assert all(math.isnan(number) for number in found)


def test_p_is_that_of_all_permutations():
    places = np.array([[0.1, 0.3, 0.5, 0.7, 0.9], [0.3, 0.1, 0.5, 0.7, 0.9]])
    every = [np.mean(pair) for pair in itertools.product(*places)]
    found = places.mean(axis=0)
    expected = [np.mean(np.abs(np.subtract(every, 0.5)) >= abs(x - 0.5) - 1e-9) for x in found]
    p = mean_place_test(places, np.random.default_rng(0), 200_000)
    assert p == pytest.approx(expected, abs=0.002)
    assert expected[4] == pytest.approx(2 / 25)
    assert np.isnan(mean_place_test(places[:1], np.random.default_rng(0), 99)).all()


def test_noise_gives_uniform_p(rng):
    below = [
        mean_place_test(rng.permuted(np.tile(np.arange(50.0), (6, 1)), axis=1), rng, 999) < 0.05
        for _ in range(100)
    ]
    assert np.mean(below) == pytest.approx(0.05, abs=0.01)
