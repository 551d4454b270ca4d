import itertools
import math

import numpy as np
import pytest
import scipy.stats

from analysis.statistics import similarity


def symmetric(rng, size):
    matrix = rng.normal(size=(size, size))
    return (matrix + matrix.T) / 2


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_mantel_is_the_written_out_loop_over_all_orders(rng):
    y, x = symmetric(rng, 5), symmetric(rng, 5)
    lower = np.tril_indices(5, -1)
    correlate = scipy.stats.pearsonr
    found = correlate(y[lower], x[lower]).statistic
    every = [
        correlate(y[np.ix_(order, order)][lower], x[lower]).statistic
        for order in map(list, itertools.permutations(range(5)))
    ]
    orders, exact = similarity.permutations(5, 120, rng)
    r, p = similarity.mantel(y, x, similarity.pair_places(orders), exact)
    assert exact
    assert r == pytest.approx(found)
    assert p == pytest.approx(np.mean(np.array(every) >= found - 1e-12))


def test_more_orders_than_asked_for_are_drawn(rng):
    orders, exact = similarity.permutations(6, 100, rng)
    assert not exact
    assert orders.shape == (100, 6)
    assert (np.sort(orders, axis=1) == np.arange(6)).all()


def test_renaming_the_models_changes_nothing(rng):
    y, x = symmetric(rng, 6), np.stack([symmetric(rng, 6), symmetric(rng, 6)])
    order = rng.permutation(6)
    moved = y[np.ix_(order, order)], x[:, order][:, :, order]
    for one, other in zip(similarity.joint(y, x), similarity.joint(*moved), strict=True):
        np.testing.assert_allclose(one, other)
    orders, exact = similarity.permutations(6, 720, rng)
    places = similarity.pair_places(orders)
    plain = similarity.mantel(y, x[0], places, exact)
    assert similarity.mantel(moved[0], moved[1][0], places, exact) == pytest.approx(plain)


def test_joint_betas_are_least_squares_on_standard_scores(rng):
    y, x = symmetric(rng, 7), np.stack([symmetric(rng, 7) for _ in range(3)])
    beta, r_squared = similarity.joint(y, x)
    columns = np.stack([scipy.stats.zscore(similarity.pairs_of(m)) for m in x], axis=1)
    target = scipy.stats.zscore(similarity.pairs_of(y))
    design = np.column_stack([np.ones(21), columns])
    expected, residual, *_ = np.linalg.lstsq(design, target, rcond=None)
    np.testing.assert_allclose(beta, expected[1:])
    assert r_squared == pytest.approx(1 - residual[0] / (target**2).sum())


def test_predictors_that_say_nothing_new_have_no_beta(rng):
    y, x = symmetric(rng, 6), symmetric(rng, 6)
    stack = np.stack([np.ones((6, 6)), x, 2 * x + 1])
    beta, _ = similarity.joint(y, stack)
    assert np.isnan(beta[[0, 2]]).all()
    assert not math.isnan(beta[1])
