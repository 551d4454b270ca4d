"""Optimise one reward exactly, read another: what over-optimisation costs."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from analysis.measures.reference_policy import KLS, Replies
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
    "course": pl.String,
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
# A curve that ends this far below its peak turns down if it had risen as far, and else falls.
RISES, TURNS, FALLS = "rises", "turns down", "falls"
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
        kls, gains = _climb(replies, replies.standardised[at], replies.strengths[at])
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
      policy), peak and last KL and gain, loss (peak less last), course (`RISES`, `TURNS` or
      `FALLS`); the greatest loss first. A peak at KL 0 is the reference policy itself.
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
        turned = TURNS if gains[peak] >= LEAST_LOSS else FALLS
        course = RISES if loss < LEAST_LOSS else turned
        rows.append({**names, "correlation": found, **ends, "course": course})
    frame = pl.DataFrame(rows, schema=PAIRS)
    return frame.sort("loss", "optimised", "read", descending=[True, False, False])


def losses_of(replies: Replies, pairs: pl.DataFrame, count: int) -> pl.DataFrame:
    """The replies that carry the loss of each pair that falls or turns down.

    Between the peak and the last policy, a reply of standardised read reward z contributes
    (π_peak - π_last)(z - mean z at the peak) to the loss; the contributions sum to it.

    Returns:
      Rows of `overoptimisation_replies.csv`, the largest contributions first.
    """
    z = replies.standardised
    places = {model: at for at, model in enumerate(replies.models)}
    rows: list[dict[str, Any]] = []
    for pair in pairs.filter(pl.col("course") != RISES).to_dicts():
        a, b = places[pair["optimised"]], places[pair["read"]]
        start = pair["peak_kl"] == 0
        peak = np.exp(replies.log_p) if start else replies.policy(a, pair["peak_kl"])
        last = replies.policy(a, pair["last_kl"])
        contribution = (peak - last) * (z[b] - peak @ z[b])
        chosen = np.argsort(-contribution, kind="stable")[:count]
        for rank, i in enumerate(chosen.tolist(), start=1):
            numbers = {"at_peak": peak[i], "at_last": last[i], "loss": contribution[i]}
            rewards = {"optimised_reward": z[a, i], "read_reward": z[b, i]}
            own = {"rank": rank, "reply_id": int(replies.ids[i]), "reply": replies.texts[i]}
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
    climbs = [
        _climb(replies, replies.standardised[i], replies.strengths[i])
        for i in range(len(replies.models))
        if i != read
    ]
    shared = min((kls for kls, _ in climbs), key=len)
    yield "single", (shared, np.mean([g[: len(shared), read] for _, g in climbs], axis=0))
    together: Mapping[str, Array] = {
        "mean": others.mean(axis=0),
        "lower quartile": np.quantile(others, _LOW_QUANTILE, axis=0),
        "minimum": others.min(axis=0),
    }
    for how, reward in together.items():
        kls, gains = _climb(replies, reward, strengths(replies.log_p, reward, np.array(KLS)))
        yield how, (kls, gains[:, read])


def _climb(replies: Replies, reward: Array, reached: Array) -> tuple[Array, Array]:
    """KLs [K] of the policies of `reward` [N] at 1/β `reached`, and all models' gains [K, M]."""
    known, z = np.isfinite(reached), replies.standardised
    gains = [z @ np.exp(optimal(replies.log_p, reward, strength)) for strength in reached[known]]
    return np.array(KLS)[known], np.array(gains).reshape(-1, len(z))


def _literals(names: Mapping[str, str]) -> dict[str, pl.Expr]:
    return {name: pl.lit(value) for name, value in names.items()}


def _typed(schema: Columns) -> dict[str, pl.Expr]:
    return {name: pl.col(name).cast(kind) for name, kind in schema.items()}
