import math

import numpy as np
import pytest
import scipy.stats

from analysis import regression


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 2))
    y = 1.5 + x @ [2.0, -1.0] + rng.normal(size=60) * np.exp(x[:, 0])
    return y, x


def loop_stderr(y, x, errors):
    """MacKinnon & White 1985, observation by observation."""
    design = np.column_stack([np.ones(len(y)), x])
    n, k = design.shape
    inverse = np.linalg.inv(design.T @ design)
    residuals = y - design @ (inverse @ design.T @ y)
    meat = np.zeros((k, k))
    for row, e in zip(design, residuals, strict=True):
        leverage = row @ inverse @ row
        weight = {"HC1": n / (n - k), "HC3": 1 / (1 - leverage) ** 2}[errors]
        meat += weight * e**2 * np.outer(row, row)
    return np.sqrt(np.diag(inverse @ meat @ inverse))


@pytest.mark.parametrize("errors", ["HC1", "HC3"])
def test_robust_errors_are_the_written_out_sandwich(data, errors):
    y, x = data
    fit = regression.ols(y, x, errors)
    np.testing.assert_allclose(fit.stderr, loop_stderr(y, x, errors))


def test_classical_errors_are_scipys(data):
    y, x = data
    fit, expected = regression.ols(y, x[:, 0], "classical"), scipy.stats.linregress(x[:, 0], y)
    assert fit.coefficients[1] == pytest.approx(expected.slope)
    assert fit.stderr.tolist() == pytest.approx([expected.intercept_stderr, expected.stderr])
    assert fit.p[1] == pytest.approx(expected.pvalue)
    assert fit.r_squared == pytest.approx(expected.rvalue**2)


def test_clusters_of_one_are_hc1(data):
    y, x = data
    clustered = regression.ols(y, x, groups=np.arange(60))
    np.testing.assert_allclose(clustered.stderr, regression.ols(y, x, "HC1").stderr)
    assert clustered.df == 59


def test_copies_of_an_observation_do_not_shrink_clustered_errors(data):
    y, x = data
    once = regression.ols(y, x, groups=np.arange(60))
    twice = regression.ols(np.tile(y, 2), np.tile(x, (2, 1)), groups=np.tile(np.arange(60), 2))
    np.testing.assert_allclose(twice.coefficients, once.coefficients)
    np.testing.assert_allclose(twice.stderr, once.stderr, rtol=0.03)
    assert regression.ols(np.tile(y, 2), np.tile(x, (2, 1))).stderr[1] < 0.8 * once.stderr[1]


@pytest.mark.parametrize(
    ("y", "x"),
    [
        ([1.0], [1.0]),
        ([1.0, 2.0], [0.0, 1.0]),
        ([1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 5.0, 5.0]),
        ([1.0, 2.0, 3.0, 5.0], [[0.0, 0.0], [1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]),
    ],
    ids=["one", "as many as coefficients", "constant", "collinear"],
)
def test_what_is_not_identified_is_nan(y, x):
    fit = regression.ols(np.array(y), np.array(x))
    assert np.isnan(fit.coefficients).all()
    assert np.isnan(fit.stderr).all()
    assert math.isnan(fit.r_squared)


def test_a_column_for_each_kind_of_errors_or_a_message():
    with pytest.raises(ValueError, match="errors='HC9'; allowed: 'classical', 'HC1', 'HC3'"):
        regression.ols(np.arange(9.0) ** 2, np.arange(9.0), "HC9")


def test_the_interval_is_students(data):
    fit = regression.ols(*data)
    low, high = fit.interval(0.9)
    half = scipy.stats.t.ppf(0.95, 57) * fit.stderr
    np.testing.assert_allclose(
        np.array([low, high]), [fit.coefficients - half, fit.coefficients + half]
    )
