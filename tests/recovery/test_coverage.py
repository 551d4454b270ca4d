"""How often 95 % intervals of the page hold the truth, in made-up data whose truth is known.

Of those that no other test holds against SciPy, a bootstrap or fits without one cluster.

`SAMPLES=1000 python -m pytest -n 0 -s` with this file prints rows of docs/correctness.md.
Words: "20x4" are 20 stems of 4 forms, "unequal" 30 stems of 40, 20, 14, 10, … 2 forms. Values of a
stem correlate by .7 where no other number is given.
"""

import math
import os

import numpy as np
import polars as pl
import pytest
import scipy.stats

from analysis.measures import pairs
from analysis.statistics import calibration, correlation, inference, kendall
from analysis.statistics.inference import Estimate

pytestmark = pytest.mark.slow
CHAT = tuple(pairs.REWARDBENCH["Chat"])


def stems(words):
    if words == "unequal":
        return np.repeat(np.arange(30), np.ceil(40 / np.arange(1, 31)).astype(int))
    count, _, forms = words.partition("x")
    return np.repeat(np.arange(int(count)), int(forms or 1))


def normal(rng, words, columns=1, alike=0.7):
    """Normal values [columns, N] that correlate by `alike` within a stem, and the stems [N]."""
    of = stems(words)
    shared, own = rng.normal(size=(columns, of.max() + 1)), rng.normal(size=(columns, len(of)))
    return (*(math.sqrt(alike) * shared[:, of] + math.sqrt(1 - alike) * own), of)


def correlated(rng, words, *rs):
    """Values [N], others that correlate with them by `rs` [N] each, and the stems [N]."""
    x, *others, of = normal(rng, words, 1 + len(rs))
    mixed = (r * x + math.sqrt(1 - r * r) * y for r, y in zip(rs, others, strict=True))
    return x, *mixed, of


def share(rng, words, p, alike):
    x, of = normal(rng, words, alike=alike)
    return inference.clustered_share(x < scipy.stats.norm.ppf(p), of), p


def two_shares(rng, words, p, q, alike):
    x, y, of = normal(rng, words, 2, alike)
    right, other = ((x + z) / math.sqrt(2) < scipy.stats.norm.ppf(s) for z, s in ((y, p), (-y, q)))
    return inference.paired_difference(right, other, of), p - q


def section(rng, count, p):
    subset = pl.Series("subset", np.repeat(CHAT, count))
    right = pl.Series("right", rng.random(len(subset)) < p)
    judged = pl.DataFrame([right, subset.alias("prompt"), right.cast(float).alias("margin")])
    *_, accuracy, low, high, _, _ = next(pairs._sections("m", "l", judged, subset))
    return Estimate(accuracy, low, high), p


def temperature(rng, words, true):
    size, of = normal(rng, words)
    size = 2 * np.abs(size)
    z, _ = normal(rng, words)
    right = scipy.stats.norm.cdf(z) < 1 / (1 + np.exp(-size / true))
    found = calibration.temperature(np.where(right, size, -size), of)
    return found._replace(high=math.inf if math.isnan(found.high) else found.high), true


def pearson_less_another(rng, words, r, other):
    *xs, of = correlated(rng, words, r, other)
    x, y, z = map(correlation.standardised, xs)
    points = correlation.influence(x, y) - correlation.influence(x, z)
    least = correlation.LEAST_FOR_A_DIFFERENCE
    return inference.clustered(float(np.mean(x * (y - z))), points, of, least, 2), r - other


def tau(rng, words, r):
    x, y, of = correlated(rng, words, r)
    first, second = map(kendall.Order.of, (x, y))
    found = kendall.pair_interval(first, second, of, kendall.tau_b(x, y), 1)
    return found, 2 / math.pi * math.asin(r)


def tau_less_another(rng, words, r, other):
    *xs, of = correlated(rng, words, r, other)
    x, *orders = map(kendall.Order.of, xs)
    first, second = (kendall.tau_of(x.ranking, y.ranking) for y in orders)
    points = np.subtract(*(kendall.pair_influence(x, y) for y in orders))
    truth = 2 / math.pi * (math.asin(r) - math.asin(other))
    return inference.clustered(first - second, points, of, 4, 2), truth


def mean_tau(rng, items, r):
    x = math.sqrt(r) * rng.normal(size=items) + math.sqrt(1 - r) * rng.normal(size=(5, items))
    weights = (1 - np.eye(5)) / 20
    shares = kendall.contributions(x, weights[None])[0]
    value = float((kendall.tau_b_matrix(x) * weights).sum())
    return kendall.sum_interval(shares, value, items), 2 / math.pi * math.asin(r)


SETTINGS = {
    share: (("100x2", 0.8, 0.0), ("20x10", 0.95, 0.7), ("unequal", 0.8, 0.7)),
    two_shares: (("100", 0.8, 0.75, 0.0), ("40x5", 0.9, 0.8, 0.7), ("unequal", 0.8, 0.7, 0.7)),
    section: ((5, 0.7), (5, 0.95), (60, 0.9)),
    temperature: (("100x2", 2.0), ("300x3", 0.7), ("unequal", 1.0)),
    pearson_less_another: (("50", 0.8, 0.5), ("100x3", 0.9, 0.2), ("300", 0.5, 0.4)),
    tau: (("80x3", 0.0), ("30", 0.5), ("unequal", 0.5), ("unequal", 0.8)),
    tau_less_another: (("20", 0.8, 0.5), ("50", 0.8, 0.5), ("unequal", 0.8, 0.5)),
    mean_tau: ((10, 0.3), (20, 0.5), (20, 0.9)),
}


SLOW = (two_shares, temperature, tau, tau_less_another, mean_tau)


@pytest.mark.parametrize("estimator", SETTINGS, ids=lambda estimator: estimator.__name__)
def test_intervals_hold_the_truth_in_95_of_100_samples(estimator):
    """At 92 and above. `SAMPLES=1000` draws of slow estimators as many as the table says."""
    samples = int(os.environ.get("SAMPLES", "400")) if estimator in SLOW else 1000
    samples = samples * 3 // 10 if estimator is section else samples
    for setting in SETTINGS[estimator]:
        rng = np.random.default_rng(0)
        found = [estimator(rng, *setting) for _ in range(samples)]
        held = np.mean([interval.low <= truth <= interval.high for interval, truth in found])
        print(f"| {estimator.__name__} | {', '.join(map(str, setting))} | {100 * held:.1f} |")
        assert held >= 0.92, setting
        assert all(interval.high > interval.low for interval, _ in found), setting
