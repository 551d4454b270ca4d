import itertools
import math

import numpy as np
import pytest

from analysis.statistics.permutation_tests import label_agreement


@pytest.fixture
def rng():
    return np.random.default_rng(0)


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
    found = label_agreement(
        np.eye(3), np.array(labels), np.ones((3, 3), dtype=bool), np.zeros(3), rng, 99
    )
    assert all(math.isnan(number) for number in found)


def test_pairs_that_are_not_compared_do_not_count(rng):
    similarity = np.full((4, 4), 0.5)
    similarity[0, 2] = similarity[2, 0] = 9.0
    compared = np.ones((4, 4), dtype=bool)
    compared[0, 2] = compared[2, 0] = False
    found = label_agreement(similarity, np.array([0, 0, 1, 1]), compared, np.zeros(4), rng, 99)
    assert found == (0.0, 1.0)
