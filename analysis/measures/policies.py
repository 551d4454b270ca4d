"""Exact policies of each reward model: how far they get at each KL, and what they would say."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from analysis.measures.reference_policy import Replies
from analysis.run import Run
from analysis.statistics import Array
from analysis.statistics.exact_policies import (
    best_of,
    best_of_bound,
    entropy,
    kl,
    optimal,
    strengths,
)
from engine.runs.schema import Columns

OPTIMAL, BEST_OF_N = "optimal", "best of n"
# Nats at which policies are compared, and draws of best-of-n.
KLS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
DRAWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536, 262144, 1_000_000)
SHOWN_KL = 1.0  # Nats at which the page lists replies and words: about best of 6.

KEYS: Columns = dict.fromkeys(("of", "prompt", "model"), pl.String)
POLICIES: Columns = {
    **KEYS,
    **dict.fromkeys(("reference", "method"), pl.String),
    "n": pl.Int64,
    **dict.fromkeys(("beta", "kl", "bound", "reward", "gain", "entropy", "replies"), pl.Float64),
    "top_id": pl.UInt32,
    "top": pl.String,
    "top_share": pl.Float64,
}
MOVERS: Columns = {
    **KEYS,
    "kl": pl.Float64,
    "end": pl.String,
    "rank": pl.UInt32,
    "reply_id": pl.UInt32,
    "reply": pl.String,
    **dict.fromkeys(("p", "policy", "change"), pl.Float64),
}
MASSES: Columns = {
    **KEYS,
    "kl": pl.Float64,
    **dict.fromkeys(("list", "words"), pl.String),
    "tokens": pl.Int64,
    **dict.fromkeys(("p", "policy", "ratio"), pl.Float64),
}


def policies_of(run: Run, replies: Replies) -> pl.DataFrame:
    """The optimal policy at each KL of `KLS`, and best-of-n for each n of `DRAWS`, by model.

    Returns:
      Rows of `policies.csv`. gain is the rise of the mean reward in standard deviations under the
      reference policy. A KL that no policy of a model reaches has no row.
    """
    frames = [
        pl.DataFrame(list(_rows_of(run, replies, at)), schema=POLICIES)
        for at in range(len(replies.models))
    ]
    return pl.concat(frames)


def _rows_of(run: Run, replies: Replies, at: int) -> Iterator[dict[str, Any]]:
    log_p, reward = replies.log_p, replies.rewards[at]
    keys = {"of": replies.of, "prompt": replies.prompt, "model": replies.models[at]}
    keys["reference"] = replies.reference
    if np.ptp(reward) == 0:
        return
    spread = _spread(log_p, reward)
    start = float(np.exp(log_p) @ reward)
    for strength in strengths(log_p, reward, np.array(KLS)):
        if np.isfinite(strength):
            policy = optimal(log_p, reward, strength)
            own = {"method": OPTIMAL, "n": None, "beta": 1 / strength, "bound": None}
            yield {**keys, **own, **_numbers(run, replies, policy, reward, start, spread)}
    for n in DRAWS:
        policy = best_of(log_p, reward, n)
        own = {"method": BEST_OF_N, "n": n, "beta": None, "bound": best_of_bound(n)}
        yield {**keys, **own, **_numbers(run, replies, policy, reward, start, spread)}


def _numbers(
    run: Run, replies: Replies, policy: Array, reward: Array, start: float, spread: float
) -> dict[str, Any]:
    mean = float(np.exp(policy) @ reward)
    top = int(policy.argmax())
    nats = entropy(policy)
    return {
        "kl": kl(policy, replies.log_p),
        "reward": mean,
        "gain": (mean - start) / spread,
        "entropy": nats,
        "replies": float(np.exp(nats)),
        "top_id": int(replies.ids[top]),
        "top": replies.texts(run, np.array([top]))[0],
        "top_share": float(np.exp(policy[top])),
    }


def _spread(log_p: Array, reward: Array) -> float:
    p = np.exp(log_p)
    return float(np.sqrt(p @ (reward - p @ reward) ** 2))


def at_kl(replies: Replies, reward: Array, nats: float) -> Array | None:
    """The optimal policy of `reward` [N] at a KL, as log-probabilities [N]; None out of reach."""
    (strength,) = strengths(replies.log_p, reward, np.array([nats]))
    return optimal(replies.log_p, reward, strength) if np.isfinite(strength) else None


def movers(run: Run, replies: Replies, nats: float, count: int) -> pl.DataFrame:
    """The replies that gain and lose most probability at a KL, by model.

    Returns:
      Rows of `policy_replies.csv`: change is the policy's probability less the reference's; ties
      go to the lower id.
    """
    rows = []
    for model, reward in zip(replies.models, replies.rewards, strict=True):
        policy = at_kl(replies, reward, nats)
        if policy is None:
            continue
        p, pi = np.exp(replies.log_p), np.exp(policy)
        for end, sign in (("gains", -1), ("loses", 1)):
            chosen = np.argsort(sign * (pi - p), kind="stable")[:count]
            chosen = chosen[sign * (pi - p)[chosen] < 0]
            for rank, (i, text) in enumerate(
                zip(chosen.tolist(), replies.texts(run, chosen), strict=True), start=1
            ):
                numbers = {"p": p[i], "policy": pi[i], "change": pi[i] - p[i]}
                keys = {"of": replies.of, "prompt": replies.prompt, "model": model, "kl": nats}
                own = {"end": end, "rank": rank, "reply_id": replies.ids[i], "reply": text}
                rows.append({**keys, **own, **numbers})
    return pl.DataFrame(rows, schema=MOVERS)


def masses(
    replies: Replies, kls: Sequence[float], sets: Mapping[tuple[str, str], Iterable[int]]
) -> pl.DataFrame:
    """Probability of sets of tokens under the reference and under each model's policy.

    Args:
      replies: of a vocabulary.
      kls: nats.
      sets: (list, words) -> token ids, such as ("afinn", "positive words").

    Returns:
      Rows of `policy_words.csv`; ratio is policy / p.
    """
    p = np.exp(replies.log_p)
    members = {key: np.isin(replies.ids, np.array(sorted(ids))) for key, ids in sets.items()}
    rows = []
    for model, reward in zip(replies.models, replies.rewards, strict=True):
        for nats in kls:
            policy = at_kl(replies, reward, nats)
            if policy is None:
                continue
            for (source, words), inside in members.items():
                before, after = float(p[inside].sum()), float(np.exp(policy)[inside].sum())
                keys = {"of": replies.of, "prompt": replies.prompt, "model": model, "kl": nats}
                own = {"list": source, "words": words, "tokens": int(inside.sum())}
                ratio = after / before if before else float("nan")
                rows.append({**keys, **own, "p": before, "policy": after, "ratio": ratio})
    return pl.DataFrame(rows, schema=MASSES)
