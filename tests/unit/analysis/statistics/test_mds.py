import numpy as np
import pytest
import scipy.optimize
import scipy.spatial.distance

from analysis.statistics import similarity


def distances(points):
    return scipy.spatial.distance.squareform(scipy.spatial.distance.pdist(points))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_points_of_a_plane_come_back_but_for_turns(rng, size):
    wanted = distances(rng.normal(size=(size, 2)))
    for points in (similarity.classical_mds(wanted), similarity.metric_mds(wanted, rng)[0]):
        np.testing.assert_allclose(distances(points), wanted, atol=1e-6)


def test_a_plane_has_no_stress(rng):
    assert similarity.metric_mds(distances(rng.normal(size=(7, 2))), rng)[1] == pytest.approx(
        0, abs=1e-5
    )


def test_metric_scaling_is_no_worse_than_a_general_minimiser(rng):
    wanted = distances(rng.normal(size=(8, 5)))

    def raw(flat):
        return ((distances(flat.reshape(8, 2)) - wanted) ** 2).sum()

    starts = rng.normal(size=(10, 16))
    best = min(scipy.optimize.minimize(raw, start).fun for start in starts)
    points, _ = similarity.metric_mds(wanted, rng)
    assert raw(points.ravel()) <= best * (1 + 1e-4)


def test_stress_is_kruskals_first_written_out(rng):
    points, wanted = rng.normal(size=(5, 2)), distances(rng.normal(size=(5, 3)))
    above = below = 0.0
    for i in range(5):
        for j in range(i):
            drawn = float(np.linalg.norm(points[i] - points[j]))
            above += (drawn - wanted[i, j]) ** 2
            below += drawn**2
    assert similarity.stress(wanted, points) == pytest.approx(np.sqrt(above / below))


def test_the_map_does_not_depend_on_the_draws_of_its_starts(rng):
    wanted = distances(rng.normal(size=(6, 2)))
    first, second = (similarity.metric_mds(wanted, np.random.default_rng(s))[0] for s in (1, 2))
    np.testing.assert_allclose(first, second, atol=1e-4)


def test_models_that_agree_wholly_fall_on_one_point(rng):
    points, stress = similarity.metric_mds(np.zeros((3, 3)), rng)
    assert stress == 0.0
    assert not points.any()
