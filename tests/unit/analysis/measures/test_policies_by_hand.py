"""Exact policies on a few replies, against numbers worked out here."""

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import scipy.optimize

from analysis.chapters import policies
from analysis.chapters.policies import BEST_OF_N, OPTIMAL, movers, policies_of
from analysis.measures.reference_policy import VOCABULARY, Replies
from analysis.statistics.exact_policies import normalised

P = np.array([0.4, 0.3, 0.2, 0.1])
HIGH = [0, 2]  # the replies of the high reward, which have 0.6 together


def _replies(p, *rewards):
    return Replies(
        of=VOCABULARY,
        prompt="greatest",
        reference="lm",
        form="greatest",
        ids=np.arange(len(p)),
        texts=pl.Series([f"w{i}" for i in range(len(p))]),
        log_p=normalised(np.log(p)),
        covered=1.0,
        models=tuple("abcdef"[: len(rewards)]),
        rewards=np.array(rewards, float),
    )


def _mass(base, nats):
    """Mass of replies that have `base` of the reference, where the policy is `nats` away."""

    def excess(m):
        return m * np.log(m / base) + (1 - m) * np.log((1 - m) / (1 - base)) - nats

    return scipy.optimize.brentq(excess, base, 1 - 1e-12)


@pytest.fixture
def two_levels():
    """Rewards 10 and 0: a policy at a KL is known by the mass of the replies with 10."""
    return _replies(P, [10, 0, 10, 0])


def test_replies_that_gain_and_lose_are_those_of_high_and_low_reward(two_levels):
    table = movers(two_levels, [0.2], 4)
    ends = table.select("end", "rank", "reply_id").rows()
    assert ends == [("gains", 1, 0), ("gains", 2, 2), ("loses", 1, 1), ("loses", 2, 3)]
    high = _mass(0.6, 0.2)
    scale = np.where(np.isin(range(4), HIGH), high / 0.6, (1 - high) / 0.4)
    expected = [P[i] * (scale[i] - 1) for i in (0, 2, 1, 3)]
    np.testing.assert_allclose(table["change"], expected, rtol=1e-6)
    np.testing.assert_allclose(table["policy"] - table["p"], table["change"])


def test_beta_has_the_unit_of_the_reward(two_levels):
    table = policies_of(two_levels)
    assert table.filter(method=OPTIMAL)["kl"].min() > 0.01  # not the reference itself
    (row,) = table.filter(pl.col("kl").round(6) == 0.2).to_dicts()
    high = _mass(0.6, 0.2)
    # High and low replies are exp(10 / β) apart, beside 0.6 to 0.4 in the reference.
    assert row["beta"] == pytest.approx(10 / np.log(high / 0.6 * 0.4 / (1 - high)), rel=1e-6)
    assert row["reward"] == pytest.approx(10 * high, rel=1e-6)
    assert row["gain"] == pytest.approx((high - 0.6) / np.sqrt(0.6 * 0.4), rel=1e-6)
    (one,) = table.filter(n=1, method=BEST_OF_N).to_dicts()
    same = (0, 0, np.exp(-np.sum(P * np.log(P))))  # as the reference
    found = [one[name] for name in ("kl", "gain", "replies")]
    assert found == pytest.approx(same, abs=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_the_line_of_optimal_policies_is_nowhere_below_best_of_n(seed):
    rng = np.random.default_rng(seed)
    replies = _replies(rng.dirichlet(np.full(500, 0.1)), rng.normal(size=500).round(seed))
    table = policies_of(replies)
    line = table.filter(method=OPTIMAL)
    assert (line["kl"].diff().drop_nulls() > 0).all()
    points = table.filter(pl.col("n") > 1, method=BEST_OF_N)
    kls, gains = (np.append(0, line[name]) for name in ("kl", "gain"))
    assert (np.interp(points["kl"], kls, gains) >= points["gain"].to_numpy() - 1e-7).all()
    from_zero = policies.from_zero(line, ("model",))
    assert from_zero.row(0) == ("a", 0.0, 0.0)
    under = np.interp(points["kl"], from_zero["kl"], from_zero["gain"])
    assert (under >= points["gain"].to_numpy() - 1e-7).all()
    assert np.isin([0.5, 1.0], line["kl"].round(6)).all()  # those of the table stay


def test_the_line_follows_the_optimum_to_its_end():
    p = np.array([1 - 1e-7, 1e-7 - 1e-9, 1e-9])
    line = policies_of(_replies(p, [0.0, 1.0, 1.2])).filter(method=OPTIMAL)
    assert line["kl"][-1] == pytest.approx(-np.log(1e-9))
    assert line.select("top_id", "top_share").row(-1) == (2, 1)
    assert line["kl"].diff().max() < 1.01
    assert np.isin(range(11, 21), line["kl"].round(6)).all()


_THREADS = "OPENBLAS_NUM_THREADS"
_DIGITS = f"from {__name__} import digits; print(digits())"


def digits():
    """The table of a large vocabulary, as text."""
    p, rewards = np.random.default_rng(0).normal(
        size=(2, 12_000)
    )  # BLAS divides more than 10,000 numbers
    return policies_of(_replies(np.exp(p), rewards)).write_csv()


@pytest.mark.slow
def test_digits_do_not_depend_on_the_threads_of_blas():
    alone = {**os.environ, _THREADS: "1"}
    assert subprocess.check_output([sys.executable, "-c", _DIGITS], env=alone, text=True) == (
        f"{digits()}\n"
    )
