"""Reward against the sentiment of a word, and against how often the word is used (Fig 3)."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from analysis import lexicons, matching, regression, resampling
from analysis.load import Run
from engine.runs.schema import Columns

SLOPES: Columns = {"slope": pl.Float64, "stderr": pl.Float64, "p": pl.Float64, "n": pl.Int64}
CELL: Columns = {"model": pl.String, "prompt": pl.String}


def sentiment_points(
    run: Run, models: Sequence[str], lexicon: pl.DataFrame, trim: bool = False
) -> pl.DataFrame:
    """Tokens that a lexicon knows, with their rewards.

    Args:
      run: the run.
      models: slugs in the order of the rows.
      lexicon: what `lexicons.afinn` (or `bing`) returns.
      trim: as in `lexicons.match`.

    Returns:
      model, prompt, token_id, token, word, value (or valence), reward.
    """
    return matching.points(run, models, lambda vocab: lexicons.match(vocab, lexicon, trim))


def sentiment_slopes(points: pl.DataFrame) -> pl.DataFrame:
    """Least squares of reward on value, positive (> 0) and negative (<= 0) words apart.

    Errors are clustered by word: the spellings of one word share their value and much of their
    reward. A slope is NaN where too few words, or words of one value, matched.

    Args:
      points: what `sentiment_points` returns.

    Returns:
      The table `sentiment_slopes.csv`: model, prompt, valence, slope (reward a unit of value),
      stderr, p (two-sided, against 0), n (tokens).
    """
    rows = []
    for (model, prompt), own in _cells(points):
        for valence, chosen in (
            ("positive", pl.col("value") > 0),
            ("negative", pl.col("value") <= 0),
        ):
            part = own.filter(chosen)
            fit = regression.ols(
                part["reward"].to_numpy(), part["value"].to_numpy(), groups=part["word"].to_numpy()
            )
            rows.append({"model": model, "prompt": prompt, "valence": valence} | _slope(fit))
    return pl.DataFrame(rows, schema=CELL | {"valence": pl.String} | SLOPES)


def frequency_points(points: pl.DataFrame, frequency: pl.DataFrame) -> pl.DataFrame:
    """Tokens of known sentiment and known frequency.

    Args:
      points: what `sentiment_points` returns.
      frequency: what `lexicons.frequency` returns.

    Returns:
      model, prompt, token_id, token, word, log_frequency (natural log of occurrences per
      million words), value, reward, residual (reward less the fitted part of the value, so that
      the slope of Fig 3D is the slope of these points).
    """
    joined = points.join(
        frequency, on="word", how="inner", validate="m:1", maintain_order="left"
    ).with_columns(log_frequency=pl.col("per_million").log())
    frames = []
    for _, own in _cells(joined):
        value = _frequency_fit(own).coefficients[2]
        residual = pl.col("reward") - (0.0 if math.isnan(value) else value) * pl.col("value")
        frames.append(own.with_columns(residual=residual))
    named = ["token_id", "token", "word", "log_frequency", "value", "reward"]
    columns = [*CELL, *named]
    if not frames:
        return joined.select(columns).with_columns(residual=pl.col("reward"))
    return pl.concat(frames).select(*columns, "residual")


def frequency_slopes(points: pl.DataFrame) -> pl.DataFrame:
    """Least squares of reward on log frequency and value: what frequency adds to sentiment.

    Args:
      points: what `frequency_points` returns.

    Returns:
      The table `frequency_slopes.csv`: model, prompt, slope (reward a unit of natural log
      frequency), stderr (clustered by word), p, n (tokens).
    """
    rows = [
        {"model": model, "prompt": prompt} | _slope(_frequency_fit(own))
        for (model, prompt), own in _cells(points)
    ]
    return pl.DataFrame(rows, schema=CELL | SLOPES)


def valence_effects(points: pl.DataFrame) -> pl.DataFrame:
    """Positive against negative words of a lexicon without grades (Bing, Fig A3).

    Args:
      points: `sentiment_points` of `lexicons.bing`.

    Returns:
      model, prompt, cohens_d, auc (chance that a positive word scores higher), ci_low, ci_high
      (of auc, 95 %), p (of auc against 1/2; both clustered by word, as the slopes are),
      n_positive, n_negative (tokens).
    """
    rows = []
    for (model, prompt), own in _cells(points):
        sides = (own.filter(valence=valence) for valence in ("positive", "negative"))
        (good, words), (bad, others) = (
            (side["reward"].to_numpy(), side["word"].to_numpy()) for side in sides
        )
        chance, low, high, p = resampling.auc(good, bad, words, others)
        effect = {"cohens_d": resampling.cohens_d(good, bad), "auc": chance}
        interval = {"ci_low": low, "ci_high": high, "p": p}
        counts = {"n_positive": len(good), "n_negative": len(bad)}
        rows.append({"model": model, "prompt": prompt} | effect | interval | counts)
    numbers = dict.fromkeys(("cohens_d", "auc", "ci_low", "ci_high", "p"), pl.Float64)
    return pl.DataFrame(
        rows, schema=CELL | numbers | {"n_positive": pl.Int64, "n_negative": pl.Int64}
    )


def _frequency_fit(own: pl.DataFrame) -> regression.Fit:
    design = own.select("log_frequency", "value").to_numpy()
    return regression.ols(own["reward"].to_numpy(), design, groups=own["word"].to_numpy())


def _cells(points: pl.DataFrame) -> Iterator[tuple[tuple[str, str], pl.DataFrame]]:
    for key, own in points.group_by("model", "prompt", maintain_order=True):
        yield (str(key[0]), str(key[1])), own


def _slope(fit: regression.Fit) -> dict[str, float | int]:
    slope, stderr, p = (float(np.asarray(v)[1]) for v in (fit.coefficients, fit.stderr, fit.p))
    return {"slope": slope, "stderr": stderr, "p": p, "n": fit.n}
