"""Exact policies of each reward model: how far they get at each KL, and what they would say."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from analysis.columns import MODEL, PROMPT, Column, Spec
from analysis.measures.reference_policy import KLS, Replies
from analysis.statistics import Array
from analysis.statistics.exact_policies import (
    best_of,
    best_of_bound,
    entropy,
    kl,
    optimal,
    strengths,
)
from analysis.statistics.ranks import dot, extremes

OPTIMAL, BEST_OF_N = "optimal", "best of n"
DRAWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536, 262144, 1_000_000)
_ROUNDING = 1e-9  # A KL below it is that of the reference policy itself.
SHOWN_KL = 1.0  # Nats at which the page lists replies: as far as best of 6.

_PLACE = (Column("of", title="replies of", help="`vocabulary`, or `list` and its name"), PROMPT)
POLICIES = Spec(
    "policies",
    (
        *(*_PLACE, MODEL),
        Column("reference", "model", help="slug of the language model"),
        Column("covered", "number", "covered, %", "probability of all these replies; at most 1"),
        Column("method", title="policy", help="`optimal` or `best of n`"),
        Column("n", "count", help="draws"),
        Column("beta", "number", "β", "in units of the reward; 0: only the best replies"),
        Column(
            "kl",
            "fixed",
            "KL, nats",
            "nats, from the reference: optimal policies at fixed KLs up to 10, at each nat beyond, "
            "and at those of best of n",
        ),
        Column("bound", "fixed", help="of best of n, from above"),
        Column("reward", "number", "mean reward", "mean"),
        Column("gain", "fixed", "gain, sd", "rise of the mean, in deviations under the reference"),
        Column("entropy", "fixed", help="nats"),
        Column("replies", "number", help="its exponential"),
        Column("top_id", "count", dtype=pl.UInt32),
        Column("top", "token", "most probable"),
        Column("top_share", "share", "its share", "the most probable reply"),
    ),
    page="of prompt model covered method n beta kl bound reward gain entropy replies top top_share",
    title="Policies at a few KLs",
)
REPLIES = Spec(
    "policy_replies",
    (
        *(_PLACE[0].but(help=""), PROMPT, MODEL),
        Column("kl", "number", help="1 or 4 nats"),
        Column("end", help="`gains`, `loses`"),
        Column("rank", "count", dtype=pl.UInt32),
        Column("reply_id", "count", dtype=pl.UInt32),
        Column("reply", "token"),
        Column("p", "number", "reference, %", "reference"),
        Column("policy", "number", "policy, %"),
        Column("change", "number", "change, points", "policy − p"),
    ),
    page="model end rank reply p policy change",
)
MOVERS = REPLIES.schema


def policies_of(replies: Replies) -> pl.DataFrame:
    """The optimal policy at each KL of `KLS`, and best-of-n for each n of `DRAWS`, by model.

    The optimal policies at the KLs of best-of-n are there too, so that a line through the optimal
    policies is nowhere below best-of-n, and those at each nat beyond `KLS`.

    Returns:
      Rows of `POLICIES`; the optimal policies of a model by KL. The last of them has
      β = 0: it says the replies of the highest reward alone, and no policy is further away.
    """
    rows = [row for at in range(len(replies.models)) for row in _rows_of(replies, at)]
    return pl.DataFrame(rows, schema=POLICIES.schema)


def _rows_of(replies: Replies, at: int) -> Iterator[dict[str, Any]]:
    reward, z = replies.rewards[at], replies.standardised[at]
    # The reward's standard deviation under the reference, in its own unit.
    unit = float(np.ptp(reward) / np.ptp(z))
    keys: dict[str, Any] = {"of": replies.of, "prompt": replies.prompt}
    keys |= {"model": replies.models[at]}
    keys |= {"reference": replies.reference, "covered": replies.covered}
    best = best_of(replies.log_p, reward, DRAWS)
    drawn = {n: _numbers(replies, at, policy) for n, policy in zip(DRAWS, best, strict=True)}
    for strength in _line(replies, at, [own["kl"] for own in drawn.values()]):
        own = {"method": OPTIMAL, "n": None, "beta": unit / strength, "bound": None}
        yield {**keys, **own, **_numbers(replies, at, optimal(replies.log_p, z, strength))}
    for n, numbers in drawn.items():
        own = {"method": BEST_OF_N, "n": n, "beta": None, "bound": best_of_bound(n)}
        yield {**keys, **own, **numbers}


def _line(replies: Replies, at: int, kls: Sequence[float]) -> list[float]:
    """1/β, ascending, at the KLs of `KLS`, each nat beyond, and `kls`; infinity is the last."""
    z = replies.standardised[at]
    beyond = np.arange(KLS[-1] + 1, kl(optimal(replies.log_p, z, math.inf), replies.log_p))
    between = np.unique([*(nats for nats in kls if nats > _ROUNDING), *beyond])
    found = np.append(replies.strengths[at], strengths(replies.log_p, z, between))
    return [*np.unique(found[np.isfinite(found)]).tolist(), math.inf]


def _numbers(replies: Replies, at: int, policy: Array) -> dict[str, Any]:
    pi, top, nats = np.exp(policy), int(policy.argmax()), entropy(policy)
    return {
        "kl": kl(policy, replies.log_p),
        "reward": dot(pi, replies.rewards[at]),
        "gain": dot(pi, replies.standardised[at]),
        "entropy": nats,
        "replies": float(np.exp(nats)),
        "top_id": int(replies.ids[top]),
        "top": replies.texts[top],
        "top_share": float(pi[top]),
    }


def movers(replies: Replies, kls: Sequence[float], count: int) -> pl.DataFrame:
    """The replies that gain and lose most probability, by model.

    Args:
      replies: the replies.
      kls: nats, some of `KLS`.
      count: replies at each end.

    Returns:
      Rows of `REPLIES`; ties go to the lower id.
    """
    p, rows = np.exp(replies.log_p), []
    cells = [(at, nats) for at in range(len(replies.models)) for nats in KLS if nats in kls]
    for at, nats in cells:
        pi = replies.policy(at, nats)
        if pi is None:
            continue
        keys = {"of": replies.of, "prompt": replies.prompt, "model": replies.models[at], "kl": nats}
        for end, change in (("gains", pi - p), ("loses", p - pi)):
            chosen = extremes(change, count, highest=True)
            for rank, i in enumerate(chosen[change[chosen] > 0].tolist(), start=1):
                own = {"end": end, "rank": rank}
                own |= {"reply_id": int(replies.ids[i]), "reply": replies.texts[i]}
                numbers = {"p": p[i], "policy": pi[i], "change": pi[i] - p[i]}
                rows.append({**keys, **own, **numbers})
    return pl.DataFrame(rows, schema=MOVERS)
