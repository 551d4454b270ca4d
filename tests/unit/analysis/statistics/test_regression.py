import numpy as np
import pytest
import scipy.stats

from analysis.statistics import regression


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 2))
    y = 1.5 + x @ [2.0, -1.0] + rng.normal(size=60) * np.exp(x[:, 0])
    return y, x


def loop_stderr(y, x, groups):
    """The sandwich of Cameron & Miller 2015 with Stata's factor, cluster by cluster."""
    design = np.column_stack([np.ones(len(y)), x])
    n, k = design.shape
    inverse = np.linalg.inv(design.T @ design)
    residuals = y - design @ (inverse @ design.T @ y)
    labels = sorted(set(groups))
    meat = np.zeros((k, k))
    for label in labels:
        own = [i for i in range(n) if groups[i] == label]
        score = sum(design[i] * residuals[i] for i in own)
        meat += np.outer(score, score)
    factor = len(labels) / (len(labels) - 1) * (n - 1) / (n - k)
    return np.sqrt(np.diag(inverse @ meat @ inverse) * factor)


@pytest.mark.parametrize("size", [1, 3])
def test_errors_are_the_written_out_sandwich(data, size):
    y, x = data
    groups = np.repeat(np.arange(60 // size), size)
    fit = regression.ols(y, x, groups)
    np.testing.assert_allclose(fit.stderr, loop_stderr(y, x, groups))
    t = np.abs(fit.coefficients / fit.stderr)
    np.testing.assert_allclose(fit.p, 2 * scipy.stats.t.sf(t, 60 // size - 1))


def test_coefficients_are_scipys(data):
    y, x = data
    fit, expected = regression.ols(y, x[:, 0], np.arange(60)), scipy.stats.linregress(x[:, 0], y)
    assert fit.coefficients.tolist() == pytest.approx([expected.intercept, expected.slope])
    assert fit.n == 60


def test_copies_of_an_observation_do_not_shrink_the_errors(data):
    y, x = data
    once = regression.ols(y, x, np.arange(60))
    copies = np.tile(y, 2), np.tile(x, (2, 1))
    twice = regression.ols(*copies, np.tile(np.arange(60), 2))
    np.testing.assert_allclose(twice.coefficients, once.coefficients)
    np.testing.assert_allclose(twice.stderr, once.stderr, rtol=0.03)
    assert regression.ols(*copies, np.arange(120)).stderr[1] < 0.8 * once.stderr[1]


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
    fit = regression.ols(np.array(y), np.array(x), np.arange(len(y)))
    assert np.isnan(fit.coefficients).all()
    assert np.isnan(fit.stderr).all()
    assert np.isnan(fit.p).all()
