"""Whether margins are log-odds of people's choices: losses, their calibration and a temperature.

A margin (float64 [N]) is the reward of the reply that people chose less that of the rejected one.
The model of Bradley and Terry, with which rewards are trained, says that people choose so with the
probability sigmoid(margin).
"""

import math

import numpy as np
import scipy.optimize
from scipy.special import expit

from analysis.statistics import Array
from analysis.statistics.inference import Estimate, clustered, clustered_share

BINS, LEAST = 10, 20  # Bins of margins, and pairs of a bin; of fewer pairs there are fewer bins.


def log_loss(margins: Array, clusters: Array) -> Estimate:
    """Mean of −log sigmoid(margin), the loss of training, in nats; with its interval."""
    losses = np.logaddexp(0.0, -margins)
    return clustered(float(losses.mean()), losses - losses.mean(), clusters).within(0.0, math.inf)


def brier(margins: Array) -> float:
    """Brier's score: the mean of (1 − sigmoid(margin))²; .25 where every margin is 0."""
    return float(np.mean(expit(-margins) ** 2))


def temperature(margins: Array, clusters: Array) -> Estimate:
    """The T that minimises the log loss of margin / T, with its interval.

    The loss is convex in b = 1 / T. The interval is that of b, by its influence values, turned
    round: its upper end is NaN where no T is too high. All are NaN without such a T: where no
    margin is below 0, or their mean is not above it.
    """
    if not margins.mean() > 0 or not (margins < 0).any():
        return Estimate(math.nan)
    scale, top = float(np.abs(margins).mean()), 1.0
    x = margins / scale

    def falls(b: float) -> float:  # how fast the loss falls as b rises
        return float(np.mean(x * expit(-b * x)))

    while falls(top) > 0:
        top *= 2
    b = scipy.optimize.brentq(falls, 0.0, top)
    curvature = float(np.mean(x**2 * expit(b * x) * expit(-b * x)))
    _, low, high, _ = clustered(b, x * expit(-b * x) / curvature, clusters)
    return Estimate(scale / b, scale / high, scale / low if low > 0 else math.nan)


def bins(margins: Array, clusters: Array) -> list[tuple[int, float, float, float, Estimate]]:
    """`BINS` bins of equal numbers of pairs by |margin|, or fewer of `LEAST` pairs.

    Returns:
      Of each bin its pairs, its smallest and largest |margin|, the mean of sigmoid(|margin|), and
      the share of pairs that people chose as the model, in which a margin of 0 counts half.
    """
    order, rows = np.argsort(np.abs(margins), kind="stable"), []
    for at in np.array_split(order, min(BINS, max(len(order) // LEAST, 1))):
        size, right = np.abs(margins[at]), (np.sign(margins[at]) + 1) / 2
        share = clustered_share(right, np.unique(clusters[at], return_inverse=True)[1])
        rows.append((len(at), float(size[0]), float(size[-1]), float(expit(size).mean()), share))
    return rows


def calibration_error(margins: Array, clusters: Array) -> tuple[float, float]:
    """Mean |share right − mean sigmoid(|margin|)| over all pairs, by bin; and the same by chance.

    That is, its mean for margins that are right, of independent pairs: normal, sd sqrt(p(1−p)/n).
    """
    rows = bins(margins, clusters)
    n, confidence = np.array([(row[0], row[3]) for row in rows]).T
    gaps = np.abs([row[4].value for row in rows] - confidence)
    chance = np.sqrt(2 / math.pi * confidence * (1 - confidence) / n)
    return float(np.average(gaps, weights=n)), float(np.average(chance, weights=n))
