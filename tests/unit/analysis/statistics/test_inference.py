import math

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
import scipy.stats
from hypothesis import given

import analysis
from analysis.statistics import inference
from analysis.statistics.inference import median_interval, t_test


@pytest.mark.parametrize("size", [2, 3, 10])
def test_mean_interval_and_p_are_scipys(size):
    values = np.random.default_rng(0).normal(1.0, 1.0, size)
    expected = scipy.stats.ttest_1samp(values, 0.0)
    ends = expected.confidence_interval(0.95)
    found = (values.mean(), ends.low, ends.high, expected.pvalue)
    assert t_test(values) == pytest.approx(found)


def test_one_value_has_a_mean_alone_and_equal_values_no_p():
    assert t_test(np.array([3.0]))[0] == 3.0
    assert np.isnan(t_test(np.array([3.0]))[1:]).all()
    assert t_test(np.array([3.0, 3.0]))[:3] == (3.0, 3.0, 3.0)
    assert np.isnan(t_test(np.array([3.0, 3.0]))[3])


@pytest.mark.parametrize("size", [6, 7, 20, 33, 265])
def test_the_interval_of_a_median_is_that_of_the_sign_test(size):
    x = np.random.default_rng(size).normal(size=size)
    outside = int((scipy.stats.binom.cdf(np.arange(size), size, 0.5) <= 0.025).sum()) - 1
    _, low, high, _ = median_interval(x)
    assert (low, high) == (np.sort(x)[outside], np.sort(x)[-1 - outside])
    assert np.isnan(median_interval(x[:5])[1:]).all()


@pytest.mark.slow
def test_the_interval_of_a_mean_holds_it_at_its_rate_even_for_six(rng):
    _, low, high, _ = inference.bootstrap_means(
        rng.normal(2.0, 1.0, size=(6, 400)), np.arange(6), rng, draws=1000
    )
    assert 0.92 <= np.mean((low <= 2.0) & (high >= 2.0)) <= 0.98


def test_rows_of_one_unit_are_drawn_together(rng):
    values = rng.normal(size=(6, 2))
    _, low, high, _ = inference.bootstrap_means(values, np.arange(6), rng, draws=4000)
    twice = inference.bootstrap_means(
        np.repeat(values, 3, axis=0), np.repeat(np.arange(6), 3), rng, draws=4000
    )
    np.testing.assert_allclose(twice[1:3], (low, high), rtol=0.1, atol=0.02)
    alone = inference.bootstrap_means(np.array([[1.0], [2.0]]), np.array([7, 7]), rng, 99)
    assert np.isnan(alone[1:3]).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_q_is_scipys_step_up_procedure(p):
    found = analysis.with_q(pl.DataFrame({"p": p}))["q"]
    np.testing.assert_allclose(found, scipy.stats.false_discovery_control(p))


def test_each_family_is_corrected_for_itself_and_tests_that_were_not_made_do_not_count():
    found = analysis.with_q(pl.DataFrame({"p": [0.01, math.nan, 0.04]}))["q"]
    assert found.to_list()[::2] == pytest.approx([0.02, 0.04])
    assert math.isnan(found[1])
    p = [0.01, 0.01, 0.04, None]
    table = pl.DataFrame({"prompt": ["a", "b", "a", "b"], "p": p, "n": [1, 2, 3, 4]})
    found = analysis.with_q(table, within=["prompt"])
    assert found.columns == ["prompt", "p", "q", "n"]
    assert found["q"].to_list()[:3] == pytest.approx([0.02, 0.01, 0.04])
    assert math.isnan(found["q"][3])
    assert found["n"].to_list() == [1, 2, 3, 4]
