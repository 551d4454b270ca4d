import numpy as np
import pytest
import scipy.stats

from analysis.statistics.inference import t_test


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
