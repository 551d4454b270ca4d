import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given

from analysis.statistics import kendall
from analysis.statistics.kendall import concordant_shares, ranking, tau_b, tau_b_matrix

# Few different values, so that ties are the rule.
TABLES = st.lists(st.tuples(*[st.integers(-3, 3)] * 3), min_size=0, max_size=30)
PAIRS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=40)


def loop_tau_b(x, y):
    net = ties_x = ties_y = 0
    n = len(x)
    for i in range(n):
        for j in range(i):
            net += int(np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]))
            ties_x += int(x[i] == x[j])
            ties_y += int(y[i] == y[j])
    total = n * (n - 1) // 2
    scale = math.sqrt((total - ties_x) * (total - ties_y))
    return net / scale if scale else math.nan


@given(PAIRS)
def test_tau_is_the_written_out_double_loop(pairs):
    x, y = np.array(pairs, dtype=np.float32).T
    assert tau_b(x, y) == pytest.approx(loop_tau_b(x, y), abs=1e-12, nan_ok=True)


@given(TABLES, st.sampled_from([0, 1_000]))
def test_the_matrix_is_tau_of_each_pair_however_many_things_there_are(rows, small):
    columns = np.array(rows, dtype=np.float32).reshape(-1, 3).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kendall, "_SMALL", small)
        matrix = tau_b_matrix(columns)
    for i, x in enumerate(columns):
        for j, y in enumerate(columns):
            assert matrix[i, j] == pytest.approx(tau_b(x, y), abs=1e-12, nan_ok=True)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)


def test_tau_of_many_values_with_and_without_ties_is_scipy_to_the_last_bit():
    rng = np.random.default_rng(0)
    common = rng.normal(size=3000)
    exact, rounded = (common + rng.normal(size=3000) for _ in range(2))
    rounded = np.round(2 * rounded)
    columns = [exact, rounded, np.round(exact), -exact]
    matrix = tau_b_matrix(columns)
    for i, x in enumerate(columns):
        for j, y in enumerate(columns[: i + 1]):
            assert matrix[i, j] == tau_b(x, y) == scipy.stats.kendalltau(x, y).statistic
    assert matrix[3, 0] == -1.0


@pytest.mark.parametrize("small", [0, 1_000])
def test_tau_is_not_defined_for_a_constant_a_nan_or_a_single_value(monkeypatch, small):
    monkeypatch.setattr(kendall, "_SMALL", small)
    constant, unknown, varied = np.array([[1.0, 1.0], [1.0, math.nan], [1.0, 2.0]])
    assert math.isnan(tau_b(constant, varied)) and math.isnan(tau_b(varied, unknown))
    found = np.isnan(tau_b_matrix([constant, unknown, varied]))
    assert found.tolist() == [[True] * 3, [True] * 3, [True, True, False]]
    single = np.array([1.0])
    assert math.isnan(tau_b(single, single)) and np.isnan(tau_b_matrix([single])).all()
    assert tau_b(varied, varied) == 1.0


def test_threads_do_not_change_the_order_of_the_matrix(monkeypatch):
    monkeypatch.setattr(kendall, "_SMALL", 0)
    columns = np.random.default_rng(1).normal(size=(9, 50))
    matrix = tau_b_matrix(columns)
    assert matrix[7, 2] == tau_b(columns[7], columns[2]) == matrix[2, 7]
    assert np.diag(matrix) == pytest.approx(1.0)


def test_concordant_and_discordant_pairs_are_counted_where_there_are_ties():
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 6, size=40), rng.integers(0, 4, size=40)
    signs = [
        np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]) for i, j in itertools.combinations(range(40), 2)
    ]
    expected = [signs.count(1) / len(signs), signs.count(-1) / len(signs)]
    found = concordant_shares(ranking(x), ranking(y), tau_b(x, y))
    assert found == pytest.approx(expected)
    assert sum(found) < 0.7  # So tau-b says nothing of such shares by itself.
