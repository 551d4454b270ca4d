"""Closed forms against brute force on small vocabularies, and against sampling on large ones."""

import itertools
import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
import scipy.optimize

from analysis.statistics import exact_policies as exact


def _reference(rng, n):
    return exact.normalised(rng.normal(0, 2, n))


def test_the_optimal_policy_maximises_reward_less_kl(rng):
    log_p, reward, beta = _reference(rng, 6), rng.normal(size=6), 0.7

    def loss(logits):
        log_pi = exact.normalised(logits)
        return -(np.exp(log_pi) @ reward - beta * exact.kl(log_pi, log_p))

    found = scipy.optimize.minimize(loss, np.zeros(6), tol=1e-12)
    expected = np.exp(exact.normalised(found.x))
    np.testing.assert_allclose(np.exp(exact.optimal(log_p, reward, 1 / beta)), expected, atol=1e-5)


def test_no_strength_is_the_reference_and_an_endless_one_the_best_replies():
    log_p = exact.normalised(np.log([0.5, 0.3, 0.2]))
    reward = np.array([1.0, 2.0, 2.0])
    np.testing.assert_allclose(exact.optimal(log_p, reward, 0.0), log_p)
    best = np.exp(exact.optimal(log_p, reward, math.inf))
    np.testing.assert_allclose(best, [0.0, 0.6, 0.4])
    np.testing.assert_allclose(np.exp(exact.optimal(log_p, reward, 1e4)), best, atol=1e-12)
    found = exact.strengths(log_p, reward, np.array([0.1, 0.6, 0.7]))  # -log .5 is .693
    assert np.isfinite(found[:2]).all() and np.isnan(found[2])
    assert np.isnan(exact.strengths(log_p, np.ones(3), np.array([0.1]))).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_best_of_n_is_the_enumeration_of_all_draws(n):
    p = np.array([0.4, 0.1, 0.2, 0.05, 0.25])
    reward = np.array([1.0, 3.0, 1.0, 3.0, -2.0])  # Two pairs of ties.
    expected = np.zeros(5)
    for draws in itertools.product(range(5), repeat=n):
        chance = math.prod(p[i] for i in draws)
        best = max(reward[i] for i in draws)
        winners = [i for i in draws if reward[i] == best]
        for i in winners:
            expected[i] += chance / len(winners)
    (policy,) = exact.best_of(np.log(p), reward, [n])
    np.testing.assert_allclose(np.exp(policy), expected, atol=1e-14)


def test_best_of_many_matches_arithmetic_of_arbitrary_precision(rng):
    getcontext().prec = 60
    log_p, reward = _reference(rng, 50), rng.normal(size=50)
    order = np.argsort(-reward)
    p = [Decimal(float(x)) for x in np.exp(log_p)[order]]
    numbers = [10, 1_000_000]
    for n, policy in zip(numbers, exact.best_of(log_p, reward, numbers), strict=True):
        total, above, expected = sum(p), Decimal(0), []
        for own in p:
            expected.append((1 - above / total) ** n - (1 - (above + own) / total) ** n)
            above += own
        found = np.exp(policy)[order]
        np.testing.assert_allclose(found, np.float64(expected), rtol=1e-8, atol=1e-14)


def test_kl_rises_with_strength_from_zero_and_meets_what_was_asked(rng):
    log_p, reward = _reference(rng, 300), rng.normal(size=300) * 5
    kls = [exact.kl(exact.optimal(log_p, reward, s), log_p) for s in np.geomspace(1e-4, 2, 40)]
    assert min(kls) >= 0
    assert (np.diff(kls) > 0).all()
    wanted = np.array([0.01, 0.3, 1.0, 2.0])
    found = exact.strengths(log_p, reward, wanted)
    got = [exact.kl(exact.optimal(log_p, reward, s), log_p) for s in found]
    np.testing.assert_allclose(got, wanted, rtol=1e-8)


@pytest.mark.parametrize("n", [1, 2, 1_000_000])
def test_the_kl_of_best_of_n_stays_below_its_bound(n, rng):
    log_p, reward = _reference(rng, 400), rng.normal(size=400).round(1)
    (policy,) = exact.best_of(log_p, reward, [n])
    nats = exact.kl(policy, log_p)
    assert 0 <= nats <= exact.best_of_bound(n) + 1e-12


def test_entropy_counts_replies():
    assert math.exp(exact.entropy(np.log(np.full(7, 1 / 7)))) == pytest.approx(7)
    with np.errstate(divide="ignore"):
        assert exact.entropy(np.log(np.array([1.0, 0.0]))) == 0
