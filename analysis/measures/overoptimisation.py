"""Optimise one reward exactly, read another: what over-optimisation costs."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from analysis.measures.policies import KLS
from analysis.measures.reference_policy import Replies
from analysis.run import Run
from analysis.statistics import Array
from analysis.statistics.exact_policies import optimal, strengths
from engine.runs.schema import Columns

_PAIR: Columns = dict.fromkeys(("of", "prompt", "optimised", "read"), pl.String)
CURVES: Columns = {**_PAIR, **dict.fromkeys(("kl", "gain", "own_gain"), pl.Float64)}
PAIRS: Columns = {
    **_PAIR,
    **dict.fromkeys(
        ("correlation", "peak_kl", "peak_gain", "last_kl", "last_gain", "loss"), pl.Float64
    ),
    "turns": pl.Boolean,
}
LOSSES: Columns = {
    **_PAIR,
    "rank": pl.UInt32,
    "reply_id": pl.UInt32,
    "reply": pl.String,
    **dict.fromkeys(("at_peak", "at_last", "optimised_reward", "read_reward", "loss"), pl.Float64),
}
ENSEMBLES: Columns = {
    **dict.fromkeys(("of", "prompt", "read", "optimised"), pl.String),
    "models": pl.Int64,
    **dict.fromkeys(("kl", "gain"), pl.Float64),
}
# A curve turns down where it ends this far below its peak: rewards of one model in float32 and in
# bfloat16 differ by less.
LEAST_LOSS = 0.1  # standard deviations of the read reward under the reference policy
_LOW_QUANTILE = 0.25


def curves_of(replies: Replies) -> pl.DataFrame:
    """Gain of every model's reward under the optimal policies of every model.

    Returns:
      Rows of `overoptimisation.csv`: of, prompt, optimised, read, kl, gain (of the read reward)
      and own_gain (of the optimised one), both in standard deviations under the reference policy.
    """
    frames = []
    for at, optimised in enumerate(replies.models):
        kls, gains = _climb(replies, replies.standardised[at])
        for own, read in enumerate(replies.models):
            frame = pl.DataFrame({"kl": kls, "gain": gains[:, own], "own_gain": gains[:, at]})
            names = {"of": replies.of, "prompt": replies.prompt}
            names |= {"optimised": optimised, "read": read}
            frames.append(frame.with_columns(**_literals(names)).select(**_typed(CURVES)))
    return pl.concat(frames) if frames else pl.DataFrame(schema=CURVES)


def pairs_of(replies: Replies, curves: pl.DataFrame) -> pl.DataFrame:
    """Where each curve of two different models peaks, and how far below it ends.

    Args:
      replies: what `curves` was made from.
      curves: what `curves_of` returned.

    Returns:
      Rows of `overoptimisation_pairs.csv`: correlation (Pearson's, weighted by the reference
      policy), peak and last KL and gain, loss (peak less last), turns (loss at least
      `LEAST_LOSS`); the greatest loss first.
    """
    z = replies.standardised
    correlation = (z * np.exp(replies.log_p)) @ z.T
    places = {model: at for at, model in enumerate(replies.models)}
    rows = []
    for key, own in curves.group_by(list(_PAIR), maintain_order=True):
        names = dict(zip(_PAIR, map(str, key), strict=True))
        if names["optimised"] == names["read"]:
            continue
        # The reference policy itself is where every curve starts.
        kls = np.append(0.0, own["kl"].to_numpy())
        gains = np.append(0.0, own["gain"].to_numpy())
        peak = int(gains.argmax())
        loss = float(gains[peak] - gains[-1])
        found = correlation[places[names["optimised"]], places[names["read"]]]
        ends = {"peak_kl": kls[peak], "peak_gain": gains[peak]}
        ends |= {"last_kl": kls[-1], "last_gain": gains[-1], "loss": loss}
        rows.append({**names, "correlation": found, **ends, "turns": loss >= LEAST_LOSS})
    frame = pl.DataFrame(rows, schema=PAIRS)
    return frame.sort("loss", "optimised", "read", descending=[True, False, False])


def losses_of(run: Run, replies: Replies, pairs: pl.DataFrame, count: int) -> pl.DataFrame:
    """The replies that carry the loss of each pair that turns down.

    Between the peak and the last policy, a reply of standardised read reward z contributes
    (π_peak - π_last) z to the loss; the contributions of all replies sum to it.

    Returns:
      Rows of `overoptimisation_replies.csv`, the largest contributions first.
    """
    z = replies.standardised
    places = {model: at for at, model in enumerate(replies.models)}
    rows: list[dict[str, Any]] = []
    for pair in pairs.filter("turns").to_dicts():
        a, b = places[pair["optimised"]], places[pair["read"]]
        peak, last = (_policy(replies, z[a], pair[key]) for key in ("peak_kl", "last_kl"))
        contribution = (peak - last) * z[b]
        chosen = np.argsort(-contribution, kind="stable")[:count]
        texts = replies.texts(run, chosen)
        for rank, (i, text) in enumerate(zip(chosen.tolist(), texts, strict=True), start=1):
            numbers = {"at_peak": peak[i], "at_last": last[i], "loss": contribution[i]}
            rewards = {"optimised_reward": z[a, i], "read_reward": z[b, i]}
            own = {"rank": rank, "reply_id": replies.ids[i], "reply": text}
            rows.append({**{key: pair[key] for key in _PAIR}, **own, **numbers, **rewards})
    return pl.DataFrame(rows, schema=LOSSES)


def ensembles_of(replies: Replies) -> pl.DataFrame:
    """Gain of each model's reward where the other models are optimised together, or one by one.

    Optimised: the mean, the minimum or the lower quartile of the other models' standardised
    rewards, or each of them alone ("single", the mean of the gains).

    Returns:
      Rows of `overoptimisation_ensembles.csv`: of, prompt, read, optimised, models (that are
      optimised), kl, gain; none for fewer than three models.
    """
    frames = [pl.DataFrame(schema=ENSEMBLES)]
    z = replies.standardised
    if len(replies.models) < 3:
        return frames[0]
    for at, read in enumerate(replies.models):
        others = np.delete(z, at, axis=0)
        for how, (kls, gains) in _ensembles(replies, others, at):
            names = {"of": replies.of, "prompt": replies.prompt, "read": read, "optimised": how}
            frame = pl.DataFrame({"kl": kls, "gain": gains}).with_columns(
                **_literals(names), models=pl.lit(len(others))
            )
            frames.append(frame.select(**_typed(ENSEMBLES)))
    return pl.concat(frames)


def _ensembles(
    replies: Replies, others: Array, read: int
) -> Iterator[tuple[str, tuple[Array, Array]]]:
    """Name, then KLs and gains [K] of the reward at index `read`, of each ensemble."""
    climbs = [_climb(replies, reward) for reward in others]
    shared = min((kls for kls, _ in climbs), key=len)
    yield "single", (shared, np.mean([g[: len(shared), read] for _, g in climbs], axis=0))
    together: Mapping[str, Array] = {
        "mean": others.mean(axis=0),
        "lower quartile": np.quantile(others, _LOW_QUANTILE, axis=0),
        "minimum": others.min(axis=0),
    }
    for how, reward in together.items():
        kls, gains = _climb(replies, reward)
        yield how, (kls, gains[:, read])


def _climb(replies: Replies, reward: Array) -> tuple[Array, Array]:
    """The KLs that the policies of `reward` [N] reach [K], and all models' gains there [K, M]."""
    reached = strengths(replies.log_p, reward, np.array(KLS))
    known = np.isfinite(reached)
    z = replies.standardised
    gains = [z @ np.exp(optimal(replies.log_p, reward, strength)) for strength in reached[known]]
    return np.array(KLS)[known], np.array(gains).reshape(-1, len(z))


def _policy(replies: Replies, reward: Array, nats: float) -> Array:
    """Probabilities [N] of the policy of `reward` [N] at a KL that it reaches."""
    if nats == 0:
        return np.exp(replies.log_p)
    (strength,) = strengths(replies.log_p, reward, np.array([nats]))
    return np.exp(optimal(replies.log_p, reward, strength))


def _literals(names: Mapping[str, str]) -> dict[str, pl.Expr]:
    return {name: pl.lit(value) for name, value in names.items()}


def _typed(schema: Columns) -> dict[str, pl.Expr]:
    return {name: pl.col(name).cast(kind) for name, kind in schema.items()}
