"""What training on a reward would make of a reference policy, in closed form.

Where every reply has a known probability p and a known reward r, no training and no sampling is
needed: the policy that maximises E[r] - β KL(π ‖ p) is π ∝ p exp(r / β) (Korbak et al. 2022,
arXiv 2205.11275, eq. 4), and the best of n draws has the distribution of a highest order statistic.
Logarithms are natural, so KL and entropy are in nats. Everything is float64. `log_p` are the
log-probabilities of the reference policy [N], which sum to 1, and `reward` is of each reply [N].
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from analysis.statistics import Array
from analysis.statistics.ranks import dot

_FLAT = 1e-9  # a spread of rewards, relative to the largest: below, they differ by rounding
_CLOSE = 1e-8  # relative error of a KL


def normalised(log_p: Array) -> Array:
    """Log-probabilities [N] shifted so that the probabilities sum to 1."""
    log_p = np.asarray(log_p, np.float64)
    return log_p - _log_sum(log_p)


def _log_sum(x: Array) -> float:
    """Log of the sum of exp(x); in a third of the time of `scipy.special.logsumexp`."""
    top = float(x.max())
    return top + math.log(np.exp(x - top).sum())


def optimal(log_p: Array, reward: Array, strength: float) -> Array:
    """Log-probabilities [N] of the optimum of KL-regularised training; -inf where π is 0.

    `strength` is 1/β, at least 0, per unit of reward. 0 gives the reference policy; infinity gives
    the replies of the highest reward, in the proportions of the reference policy.
    """
    reward = np.asarray(reward, np.float64)
    if math.isinf(strength):
        return normalised(np.where(reward == reward.max(), log_p, -np.inf))
    return normalised(log_p + strength * (reward - reward.max()))


def best_of(log_p: Array, reward: Array, draws: Sequence[float]) -> Iterator[Array]:
    """Log-probabilities [N] of the reply of highest reward among n draws, for each n of `draws`.

    Each is at least 1. Among draws of equal reward, each is taken with the same chance, so replies
    of equal reward keep their proportions. Very unlikely replies may be -inf.
    """
    # Replies of one reward win together: with the mass above a, and their own mass b, the chance
    # is (1 - a)^n - (1 - a - b)^n. A mass below the smallest number counts as that number.
    _, group = np.unique(-np.asarray(reward, np.float64), return_inverse=True)
    mass = np.maximum(np.bincount(group, np.exp(log_p)), np.finfo(np.float64).tiny)
    above = np.minimum(np.cumsum(mass) - mass, 1.0)
    share = np.where(above < 1, np.minimum(mass / np.maximum(1 - above, mass), 1.0), 1.0)
    for n in draws:
        with np.errstate(divide="ignore"):
            log_not_above = n * np.log1p(-above)
            log_wins = log_not_above + np.log(-np.expm1(n * np.log1p(-share)))
            policy = normalised(log_p + (log_wins - np.log(mass))[group])
        yield policy


def best_of_bound(n: float) -> float:
    """Upper bound of the KL of best-of-n from its reference: log n - (n - 1)/n.

    Beirami et al. 2024 (arXiv 2401.01879); exact where no two replies have the same reward and no
    single reply has much probability.
    """
    return math.log(n) - (n - 1) / n


def kl(log_pi: Array, log_p: Array) -> float:
    """KL(π ‖ p) in nats, of log-probabilities [N]; replies of π = 0 count 0."""
    pi = np.exp(log_pi)
    return max(0.0, dot(pi, np.where(pi > 0, log_pi - log_p, 0.0)))


def entropy(log_pi: Array) -> float:
    """Entropy of π in nats; its exponential is the effective number of replies."""
    pi = np.exp(log_pi)
    return max(0.0, -dot(pi, np.where(pi > 0, log_pi, 0.0)))


def strengths(log_p: Array, reward: Array, kls: Array) -> Array:
    """The 1/β [K] at which the optimal policy is each of `kls` (ascending [K]) from the reference.

    NaN where no β reaches the KL: above -log(probability of the best replies), and everywhere for
    rewards that are equal but for rounding.
    """
    reward = np.asarray(reward, np.float64)
    p, gap = np.exp(log_p), reward - reward.max()
    reached = np.full(len(kls), np.nan)
    spread = math.sqrt(dot(p, (gap - dot(p, gap)) ** 2))
    if spread <= _FLAT * np.abs(reward).max():
        return reached
    most, at = -_log_sum(log_p[gap == 0]), _tilted(log_p, gap, 1 / spread)
    for k, wanted in enumerate(kls):
        if not wanted < most * (1 - 1e-9):
            break
        at = _solved(log_p, gap, float(wanted), at)
        reached[k] = at.strength
    return reached


class _Tilted(NamedTuple):
    """What a policy of a given 1/β has; dKL/d(1/β) is variance / β."""

    strength: float  # 1/β.
    nats: float  # KL(π ‖ p).
    variance: float  # Of the reward under π.


def _solved(log_p: Array, gap: Array, wanted: float, at: _Tilted) -> _Tilted:
    """The policy of one KL: Newton's method on sqrt(KL), nearly linear in 1/β, in a bracket."""
    low, high = 0.0, math.inf
    for _ in range(200):
        guess, nats, variance = at
        if abs(nats - wanted) <= _CLOSE * wanted:
            break
        low, high = (guess, high) if nats < wanted else (low, guess)
        slope = guess * variance / (2 * math.sqrt(nats)) if nats > 0 else 0.0
        guess += (math.sqrt(wanted) - math.sqrt(nats)) / slope if slope else math.inf
        if not low < guess < high:
            guess = (low + high) / 2 if math.isfinite(high) else 2 * low
        at = _tilted(log_p, gap, guess)
    return at


def _tilted(log_p: Array, gap: Array, strength: float) -> _Tilted:
    """The policy of `strength`, of gaps to the highest reward [N]."""
    exponent = log_p + strength * gap
    top = float(exponent.max())
    weights = np.exp(exponent - top)
    total = float(weights.sum())
    mean = dot(weights, gap) / total
    nats = strength * mean - top - math.log(total)
    variance = dot(weights, (gap - mean) ** 2) / total
    return _Tilted(strength, max(0.0, nats), variance)
