import math

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
import scipy.stats
from hypothesis import given

import analysis
from analysis.statistics import inference
from analysis.statistics.inference import clustered


@pytest.mark.parametrize("size", [2, 3, 10])
def test_the_mean_of_numbers_without_clusters_has_the_interval_and_p_of_scipy(size):
    values = np.random.default_rng(0).normal(1.0, 1.0, size)
    expected = scipy.stats.ttest_1samp(values, 0.0)
    ends = expected.confidence_interval(0.95)
    found = (values.mean(), ends.low, ends.high, expected.pvalue)
    mean = values.mean()
    assert clustered(mean, values - mean, np.arange(size)) == pytest.approx(found)


@pytest.mark.parametrize("clusters", [np.arange(300) // 10, np.arange(300)])
def test_rows_that_do_not_cluster_are_draws_of_their_own(rng, clusters):
    """Within a fifth of Wilson's interval of SciPy; two models' of the difference of its shares."""
    hits = rng.random((2, 200, 300)) < np.array([0.85, 0.8])[:, None, None]
    widths = [np.subtract(*inference.clustered_share(hit, clusters)[2:0:-1]) for hit in hits[0]]
    theirs = scipy.stats.binomtest(255, 300).proportion_ci(method="wilson")
    assert np.median(widths) == pytest.approx(theirs.high - theirs.low, rel=0.2)
    apart = [inference.paired_difference(a, b, clusters) for a, b in zip(*hits, strict=True)]
    error = math.sqrt((0.85 * 0.15 + 0.8 * 0.2) / 300)
    assert np.median([high - low for _, low, high, _ in apart]) == pytest.approx(
        2 * 1.96 * error, rel=0.2
    )


def test_two_models_that_judge_alike_have_a_short_interval_and_never_none(rng):
    """Against the bootstrap over clusters, which draws both models together."""
    first = rng.random(400) < 0.8
    second, of = first ^ (rng.random(400) < 0.1), np.arange(400) // 4
    value, low, high, _ = inference.paired_difference(first, second, of)
    apart = (first.astype(float) - second).reshape(100, 4).mean(axis=1)
    drawn = apart[rng.integers(0, 100, size=(2000, 100))].mean(axis=1)
    assert (value, low, high) == pytest.approx(
        (apart.mean(), *np.quantile(drawn, (0.025, 0.975))), abs=0.01
    )
    _, low, high, _ = inference.paired_difference(first, first, of)
    assert -0.04 < low < 0 < high < 0.04


def test_a_share_of_one_half_and_its_complement_have_one_interval():
    hit, clusters = np.array([1, 1, 1, 0, 1, 0, 0, 0], bool), np.array([0, 0, 0, 0, 1, 2, 3, 4])
    share, low, high, _ = inference.clustered_share(hit, clusters)
    other = inference.clustered_share(~hit, clusters)
    assert (share, low, high) == pytest.approx((0.5, 1 - other.high, 1 - other.low), rel=1e-12)


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
