import itertools
import math

import numpy as np
import pytest
import scipy.cluster.hierarchy
import scipy.optimize
import scipy.spatial.distance
import scipy.stats

from analysis.statistics import similarity
from analysis.statistics.similarity import blocs


def symmetric(rng, size):
    matrix = rng.normal(size=(size, size))
    return (matrix + matrix.T) / 2


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
    ((r, p),) = similarity.mantel(y, [x], similarity.pair_places(orders), exact)
    assert exact
    assert r == pytest.approx(found)
    assert p == pytest.approx(np.mean(np.array(every) >= found - 1e-12))


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


def distances(points):
    return scipy.spatial.distance.squareform(scipy.spatial.distance.pdist(points))


@pytest.mark.parametrize("size", [2, 3, 8])
def test_points_of_a_plane_come_back_but_for_turns(rng, size):
    wanted = distances(rng.normal(size=(size, 2)))
    for points in (similarity.classical_mds(wanted), similarity.metric_mds(wanted, rng)[0]):
        np.testing.assert_allclose(distances(points), wanted, atol=1e-6)
    points, stress = similarity.metric_mds(np.zeros((size, size)), rng)  # that agree wholly
    assert stress == 0.0 and not points.any()


def test_metric_scaling_is_no_worse_than_a_general_minimiser(rng):
    wanted = distances(rng.normal(size=(6, 5)))

    def raw(flat):
        return ((distances(flat.reshape(6, 2)) - wanted) ** 2).sum()

    starts = rng.normal(size=(4, 12))
    best = min(scipy.optimize.minimize(raw, start).fun for start in starts)
    points, _ = similarity.metric_mds(wanted, rng)
    assert raw(points.ravel()) <= best * (1 + 1e-4)


def test_stress_is_kruskals_first_written_out(rng):
    points, wanted = rng.normal(size=(5, 2)), distances(rng.normal(size=(5, 3)))
    drawn = distances(points)
    expected = np.sqrt(((drawn - wanted) ** 2).sum() / (drawn**2).sum())
    assert similarity.stress(wanted, points) == pytest.approx(expected)


def test_a_group_holds_no_pair_that_disagrees_however_high_its_mean():
    side = np.array([1, -1, 1, 1, -1])
    assert blocs(np.outer(side, side) * 0.4) == [[0, 2, 3], [1, 4]]
    assert blocs(np.zeros((3, 3))) == [[0], [1], [2]]
    assert blocs(np.array([[1, 0.5, 0.3], [0.5, 1, -0.25], [0.3, -0.25, 1]])) == [[0, 1], [2]]
