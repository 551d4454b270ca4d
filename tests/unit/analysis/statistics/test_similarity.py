import numpy as np
import pytest
import scipy.optimize
import scipy.spatial.distance

from analysis.statistics import similarity


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
