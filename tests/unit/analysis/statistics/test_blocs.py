import numpy as np
import pytest
import scipy.cluster.hierarchy

from analysis.statistics.similarity import blocs


def test_two_blocs_are_found_in_any_order_of_the_models():
    side = np.array([1, -1, 1, 1, -1])
    assert blocs(np.outer(side, side) * 0.4) == [[0, 2, 3], [1, 4]]


def test_models_without_certain_agreement_stay_alone():
    assert blocs(np.full((3, 3), -0.01)) == [[0], [1], [2]]
    assert blocs(np.zeros((2, 2))) == [[0], [1]]


def test_a_group_holds_no_pair_that_disagrees_however_high_its_mean():
    assert blocs(np.array([[1, 0.5, 0.3], [0.5, 1, -0.25], [0.3, -0.25, 1]])) == [[0, 1], [2]]


@pytest.mark.parametrize("seed", range(20))
def test_the_groups_are_those_of_complete_linkage(seed):
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 1, size=(9, 9))
    values = (values + values.T) / 2
    above = values[np.triu_indices(9, 1)]
    tree = scipy.cluster.hierarchy.linkage(1 - above, method="complete")
    labels = scipy.cluster.hierarchy.fcluster(tree, 1.0 - 1e-12, criterion="distance")
    expected = {tuple(np.flatnonzero(labels == label)) for label in set(labels)}
    found = blocs(values)
    assert {tuple(group) for group in found} == expected
    assert [len(group) for group in found] == sorted(map(len, found), reverse=True)
