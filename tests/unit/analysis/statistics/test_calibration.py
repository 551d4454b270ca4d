"""Losses, calibration and temperature of margins, against other ways to compute them."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from analysis.statistics import calibration, inference


@pytest.fixture
def pairs(rng):
    """Margins of 300 pairs and their prompts, of which some have several pairs."""
    prompts = np.sort(rng.integers(0, 150, 300))
    return 2 * rng.normal(0.6, 1.0, 300), np.unique(prompts, return_inverse=True)[1]


def loss(margins):
    """The loss of training, as a loop."""
    return [math.log(1 + math.exp(-margin)) for margin in margins]


def test_losses_are_those_of_the_formulas(pairs):
    margins, prompts = pairs
    found = calibration.log_loss(margins, prompts)
    assert found.value == pytest.approx(np.mean(loss(margins)))
    assert found.low < found.value < found.high
    squares = [(1 - 1 / (1 + math.exp(-margin))) ** 2 for margin in margins]
    assert calibration.brier(margins) == pytest.approx(np.mean(squares))
    assert calibration.brier(np.zeros(3)) == 0.25
    assert calibration.log_loss(np.zeros(9), np.arange(9)).value == pytest.approx(math.log(2))


def test_the_temperature_minimises_the_loss_and_goes_with_the_margins(pairs):
    margins, prompts = pairs
    best = scipy.optimize.minimize_scalar(
        lambda t: np.mean(loss(margins / t)), bounds=(0.01, 100), options={"xatol": 1e-9}
    )
    found = calibration.temperature(margins, prompts)
    assert found.value == pytest.approx(best.x, rel=1e-5)
    three = calibration.temperature(3 * margins, prompts)
    assert three[:3] == pytest.approx([3 * number for number in found[:3]], rel=1e-9)


def test_its_interval_is_that_of_the_jackknife_over_prompts(pairs):
    margins, prompts = pairs
    rest = [prompts != prompt for prompt in set(prompts)]
    left = [calibration.temperature(margins[at], np.arange(at.sum())).value for at in rest]
    b, count = 1 / np.array(left), len(left)
    error = math.sqrt((count - 1) / count * np.sum((b - b.mean()) ** 2))
    half = scipy.stats.t.ppf(0.975, inference.effective_clusters(prompts) - 1) * error
    found = calibration.temperature(margins, prompts)
    assert 1 / found.low - 1 / found.high == pytest.approx(2 * half, rel=0.05)


@pytest.mark.parametrize(("margins", "has"), [([1, 2, 3], 0), ([-2, 1], 0), ([-1, 3, 2], 1)])
def test_margins_that_are_all_right_or_wrong_on_average_have_no_temperature(margins, has):
    found = calibration.temperature(np.array(margins, float), np.arange(len(margins)))
    assert np.isfinite(found.value) == has


def test_a_temperature_may_have_no_upper_end():
    found = calibration.temperature(np.array([1.0, -0.9] * 20), np.arange(40))
    assert found.low > 0 and math.isnan(found.high)


def test_bins_hold_equal_numbers_of_pairs_and_their_errors_are_averaged(pairs):
    margins, prompts = pairs
    found, order = calibration.bins(margins, prompts), sorted(margins, key=abs)
    gaps = []
    for number, (n, low, high, claimed, right) in enumerate(found):
        part = order[30 * number : 30 * (number + 1)]
        confidence = np.mean([1 / (1 + math.exp(-abs(margin))) for margin in part])
        share = np.mean([margin > 0 for margin in part])
        assert (n, low, high) == (30, abs(part[0]), abs(part[-1]))
        assert (claimed, right.value) == pytest.approx((confidence, share))
        assert right.low < share < right.high or share == 1
        gaps.append(abs(share - confidence))
    assert len(gaps) == calibration.BINS
    assert calibration.calibration_error(margins, prompts)[0] == pytest.approx(np.mean(gaps))
    assert len(calibration.bins(margins[:59], prompts[:59])) == 2
    assert calibration.bins(np.zeros(4), np.arange(4))[0][4].value == 0.5


def test_right_margins_have_the_error_that_is_said_to_be_chance(rng):
    size = rng.exponential(1.0, (100, 400))
    margins = np.where(rng.random(size.shape) < 1 / (1 + np.exp(-size)), size, -size)
    found = [calibration.calibration_error(sample, np.arange(400)) for sample in margins]
    assert np.mean(found, axis=0)[0] == pytest.approx(np.mean(found, axis=0)[1], rel=0.07)


def test_the_sign_test_is_that_of_scipy_and_counts_prompts(rng):
    x = rng.choice([-1.0, 0.0, 1.0], 60, p=[0.2, 0.4, 0.4])
    above, below = int((x > 0).sum()), int((x < 0).sum())
    expected = scipy.stats.binomtest(above, above + below).pvalue
    assert inference.sign_test(x, np.arange(60)) == pytest.approx(expected)
    assert inference.sign_test(np.tile(x, 3), np.tile(np.arange(60), 3)) == pytest.approx(expected)
    assert inference.sign_test(np.zeros(5), np.arange(5)) == 1.0
