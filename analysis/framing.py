"""The same token as an answer to good and to bad: correlations, sums, differences, axes."""

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import polars as pl
import scipy.stats

from analysis import ranks, tokens
from analysis.load import Run
from engine.runs.schema import Columns

_PAIR: Columns = {"model": pl.String, "prompt_a": pl.String, "prompt_b": pl.String}

_SHARE = ("share", "ci_low", "ci_high")


def pair(run: Run, model: str, prompts: tuple[str, str]) -> pl.DataFrame:
    """token_id, a, b: float64 rewards of a model's whole vocabulary under two prompts."""
    frames = []
    for name, prompt in zip("ab", prompts, strict=True):
        ids, rewards = run.rewards(model, prompt)
        schema: Columns = {"token_id": pl.UInt32, name: pl.Float64}
        frames.append(pl.DataFrame({"token_id": ids, name: rewards}, schema=schema))
    return frames[0].join(frames[1], on="token_id", how="inner", validate="1:1").sort("token_id")


def framing_table(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """Every two prompts of a model against each other, over its whole vocabulary.

    Returns:
      The table `framing.csv`: model, prompt_a, prompt_b, pearson, spearman, kendall (tau-b); in
      the order of `models`, then of the run's prompts.
    """
    rows = []
    for model in models:
        asked = [p for p in run.vocabulary_prompts if (model, p) in run.results]
        found = _scores(run, model, asked) if len(asked) > 1 else {}
        # Ranked once a prompt, not once a pair.
        order = {p: ranks.dense_ranks(x) for p, x in found.items()}
        average = {p: ranks.average_ranks(x) for p, x in found.items()}
        for a, b in itertools.combinations(found, 2):
            rows.append(
                {
                    **dict(zip(_PAIR, (model, a, b), strict=True)),
                    "pearson": ranks.pearson(found[a], found[b]),
                    "spearman": ranks.pearson(average[a], average[b]),
                    "kendall": ranks.kendall_tau(order[a], order[b]),
                }
            )
    numbers = dict.fromkeys(("pearson", "spearman", "kendall"), pl.Float64)
    return pl.DataFrame(rows, schema={**_PAIR, **numbers})


def _scores(run: Run, model: str, prompts: Sequence[str]) -> dict[str, np.ndarray]:
    """Prompt -> float64 rewards of the tokens that were scored under all prompts, in one order."""
    each = {prompt: run.rewards(model, prompt) for prompt in prompts}
    first = next(iter(each.values()))[0]
    if all(np.array_equal(ids, first) for ids, _ in each.values()):
        return {p: x.astype(float) for p, (_, x) in each.items()}
    common = functools.reduce(np.intersect1d, (ids for ids, _ in each.values()))
    return {p: x[np.searchsorted(ids, common)].astype(float) for p, (ids, x) in each.items()}


def framing_ends(
    run: Run, models: Sequence[str], prompts: tuple[str, str], count: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tokens that a model rates high or low in both frames, and that it tells apart most.

    Args:
      run: the run.
      models: slugs in the order of the rows; those that lack a prompt are left out.
      prompts: ids of the good and the bad prompt.
      count: tokens an end.

    Returns:
      The tables `framing_sum.csv` and `framing_difference.csv` (first prompt less second):
      model, end, rank, token_id, token, reward (the sum or the difference). Ties go to the lower
      token_id.
    """
    empty = pl.DataFrame(schema={**tokens.ENDS, "reward": pl.Float64})
    sums, differences = [empty], [empty]
    for model in _with_both(run, models, prompts):
        both = pair(run, model, prompts)
        ids, a, b = (both[name].to_numpy() for name in both.columns)
        sums.append(tokens.ends(run, model, ids, a + b, count, "reward"))
        differences.append(tokens.ends(run, model, ids, a - b, count, "reward"))
    return pl.concat(sums), pl.concat(differences)


def framing_axis(run: Run, models: Sequence[str], prompts: tuple[str, str]) -> pl.DataFrame:
    """Principal axes of the rewards under two prompts (Fig A9), in reward units.

    Where good and bad are told apart, one axis is opposed (one prompt up, the other down) and
    the axis orthogonal to it is shared: what the model likes or dislikes whatever the question.

    Returns:
      model, prompt_a, prompt_b, axis (1 holds more variance), axis_kind ("opposed" or "same"),
      loading_a (>= 0), loading_b (unit length together), share (of variance; 1 over both axes),
      ci_low, ci_high (of the share, 95 %, tokens taken as drawn), n (tokens).
    """
    rows = []
    for model in _with_both(run, models, prompts):
        both = pair(run, model, prompts)
        axes = principal_axes(both["a"].to_numpy(), both["b"].to_numpy())
        for axis, (a, b, *share) in enumerate(axes, 1):
            rows.append(
                {
                    **dict(zip(_PAIR, (model, *prompts), strict=True)),
                    "axis": axis,
                    "axis_kind": "same" if b >= 0 else "opposed",
                    "loading_a": a,
                    "loading_b": b,
                    **dict(zip(_SHARE, share, strict=True)),
                    "n": both.height,
                }
            )
    numbers = dict.fromkeys(("loading_a", "loading_b", *_SHARE), pl.Float64)
    schema = _PAIR | {"axis": pl.Int64, "axis_kind": pl.String} | numbers | {"n": pl.Int64}
    return pl.DataFrame(rows, schema=schema)


def principal_axes(
    a: np.ndarray, b: np.ndarray, level: float = 0.95
) -> list[tuple[float, float, float, float, float]]:
    """Both principal axes of the points (a, b) [N], by falling share.

    The interval of a share is by the delta method, whose influence of a point is that of the
    eigenvalues (Critchley 1985): no law of the rewards is assumed.

    Returns:
      Loading of a (>= 0), of b, share of the variance, and the ends of the share's interval, an
      axis; empty for N < 2, shares NaN where all points are one.
    """
    if len(a) < 2:
        return []
    points = np.stack([a - a.mean(), b - b.mean()], axis=1)
    values, vectors = np.linalg.eigh(points.T @ points / len(a))
    squares = (points @ vectors) ** 2
    total = float(values.sum())
    found = []
    for k in (1, 0):
        first, second = (float(v) for v in vectors[:, k])
        sign = -1.0 if first < 0 or (first == 0 and second < 0) else 1.0
        ends = _share(squares[:, k], squares.sum(axis=1), level) if total > 0 else (math.nan,) * 3
        found.append((sign * first, sign * second, *ends))
    return found


def _share(part: np.ndarray, whole: np.ndarray, level: float) -> tuple[float, float, float]:
    """Ratio of the sums of `part` and `whole` [N], and its interval."""
    share = float(part.sum() / whole.sum())
    error = math.sqrt(len(part)) * float((part - share * whole).std()) / float(whole.sum())
    half = float(scipy.stats.norm.ppf(0.5 + level / 2)) * error
    return share, max(share - half, 0.0), min(share + half, 1.0)


def _with_both(run: Run, models: Sequence[str], prompts: tuple[str, str]) -> list[str]:
    return [m for m in models if all((m, prompt) in run.results for prompt in prompts)]
