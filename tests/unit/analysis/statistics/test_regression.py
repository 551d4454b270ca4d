import numpy as np
import pytest
import scipy.stats

from analysis.statistics import ranks, regression


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 2))
    y = 1.5 + x @ [2.0, -1.0] + rng.normal(size=60) * np.exp(x[:, 0])
    return y, x


def loop_jackknife(y, x, groups):
    """Every fit without one cluster, written out."""
    design = np.column_stack([np.ones(len(y)), x])
    whole = np.linalg.lstsq(design, y, rcond=None)[0]
    labels = sorted(set(groups))
    without = [
        np.linalg.lstsq(design[groups != label], y[groups != label], rcond=None)[0]
        for label in labels
    ]
    changes = np.array(without) - whole
    return np.sqrt((len(labels) - 1) / len(labels) * (changes**2).sum(axis=0))


def dense_degrees(x, groups):
    """The degrees of freedom of each standard error, from matrices of all observations."""
    design = np.column_stack([np.ones(len(x)), x])
    hat = design @ np.linalg.inv(design.T @ design) @ design.T
    own = np.equal.outer(groups, groups)  # Errors are the same inside a cluster.
    found = []
    for j in range(design.shape[1]):
        # Each cluster's part of the coefficient without it, as a linear form of the errors.
        forms = []
        for label in sorted(set(groups)):
            rows = groups == label
            left = np.eye(rows.sum()) - hat[np.ix_(rows, rows)]
            score = design[rows] @ np.linalg.inv(design.T @ design)[:, j]
            forms.append((np.eye(len(x)) - hat)[:, rows] @ np.linalg.solve(left, score))
        forms = np.array(forms)
        covariance = forms @ own @ forms.T
        found.append(np.trace(covariance) ** 2 / (covariance**2).sum())
    return found


@pytest.mark.parametrize(
    "groups",
    [np.arange(60), np.repeat(np.arange(20), 3), np.arange(60) ** 2 % 23],
    ids=["alone", "threes", "unequal"],
)
def test_errors_are_those_of_fits_without_one_cluster(data, groups):
    y, x = data
    fit = regression.ols(y, x, groups)
    np.testing.assert_allclose(fit.stderr, loop_jackknife(y, x, groups))
    t = np.abs(fit.value / fit.stderr)
    degrees = dense_degrees(x, groups)
    np.testing.assert_allclose(fit.p, 2 * scipy.stats.t.sf(t, degrees))
    half = scipy.stats.t.ppf(0.975, degrees) * fit.stderr
    np.testing.assert_allclose(fit.low, fit.value - half)
    np.testing.assert_allclose(fit.high, fit.value + half)


def test_a_slope_that_one_cluster_carries_has_no_error():
    x = np.array([0.0, 0.0, 0.0, 1.0, 2.0])
    fit = regression.ols(np.arange(5.0), x, np.array([0, 1, 2, 3, 3]))
    assert np.isfinite(fit.value).all()
    assert np.isnan(fit.stderr).all()
    assert np.isnan([fit.p, fit.low, fit.high]).all()


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
    assert np.isnan(fit.value).all()
    assert np.isnan(fit.stderr).all()
    assert np.isnan([fit.p, fit.low, fit.high]).all()


def ranked(scores):
    return np.array([ranks.average_ranks(own) for own in scores])


def lists(rng, size=300, models=4, people=0.5):
    """Ranks of models with a common order, and of people who follow it in part."""
    common = rng.normal(size=size)
    own = common + rng.normal(size=(models, size))
    human = people * common + np.sqrt(1 - people**2) * rng.normal(size=size)
    return ranked(own), ranks.average_ranks(human)


def test_the_line_is_scipys(rng):
    x, y = rng.normal(size=(2, 50))
    expected = scipy.stats.linregress(x, y)
    assert regression.line(y, x) == pytest.approx((expected.intercept, expected.slope))
    assert regression.line(y, np.ones(50)) == pytest.approx((y.mean(), 0.0))


def nearest_by_scipy(models, people):
    """The residual nearest to 0 where those of all models have one sign, else 0."""
    fits = [scipy.stats.linregress(people, own) for own in models]
    gaps = [own - fit.intercept - fit.slope * people for own, fit in zip(models, fits, strict=True)]
    low, high = np.min(gaps, axis=0), np.max(gaps, axis=0)
    return np.where(low > 0, low, np.where(high < 0, high, 0.0))


def test_the_nearest_residual_is_that_of_a_regression_for_each_model(rng):
    models, people = lists(rng, size=60, models=3)
    found = regression.nearest_residuals(models, people)
    np.testing.assert_allclose(found, nearest_by_scipy(models, people), atol=1e-9)
    assert (found == 0).any()
    assert (found > 0).any()
    assert (found < 0).any()


def test_people_drawn_by_chance_keep_their_correlation_with_each_model(rng):
    models, people = lists(rng, size=2000)
    drawn = list(regression.people_by_chance(models, people, np.zeros(2000), rng, draws=40))
    for own in models:
        found = np.mean([ranks.spearman(x, own) for x in drawn])
        assert found == pytest.approx(ranks.spearman(people, own), abs=0.03)


@pytest.mark.parametrize(("models", "size"), [(1, 300), (4, 49)])
def test_too_few_models_or_items_have_no_p(rng, models, size):
    own, people = lists(rng, size=size, models=models)
    largest = regression.largest_by_chance(own, people, np.zeros(size), rng, draws=9)
    assert len(largest) == 0
    nearest = regression.nearest_residuals(own, people)
    assert np.isnan(regression.adjusted_p(nearest, largest)).all()


def test_a_p_counts_the_draws_that_reach_as_far():
    p = regression.adjusted_p(np.array([0.0, -2.0, 5.0]), np.array([1.0, 2.0, 3.0]))
    assert p.tolist() == [1.0, 0.75, 0.25]
