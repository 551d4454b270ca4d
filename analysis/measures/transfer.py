"""Found replies under every model and prompt that scored their texts: the transfer matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis.run import Run
from engine.runs import schema
from engine.runs.schema import Columns

_UNIVERSAL = re.compile(r"(?P<method>.+)-(?P<rule>mean|minimum)-(?P<group>[0-9a-f]{8})(-ascent)?")
TOGETHER = "all together"  # the source of a reply that was sought for several judges

MATRIX: Columns = {
    **dict.fromkeys(("source", "source_prompt", "direction", "method"), pl.String),
    "seed": pl.Int64,
    "text": pl.String,
    "target": pl.String,
    "prompt": pl.String,
    "reward": pl.Float32,
    "standardised": pl.Float64,
}
SEARCH = ["source", "source_prompt", "direction", "method", "seed", "text"]


def rule_of(method: str) -> str | None:
    """`mean` or `minimum` for the method of a universal search; None for another."""
    match = _UNIVERSAL.fullmatch(method)
    return None if match is None else match["rule"]


def transfer_matrix(run: Run, best: pl.DataFrame) -> pl.DataFrame:
    """The reward of every found reply under every model and prompt that scored its text.

    Args:
      run: the run.
      best: what `sequences_table` returns.

    Returns:
      The table `sequence_matrix.csv`: source and source_prompt (model and prompt that were
      searched; `all together` for a universal search), direction, method, seed, text, target and
      prompt (model and prompt that score it), reward (of the text), standardised (by mean and
      standard deviation of the target's single tokens under the prompt; null where the vocabulary
      was not scored). Replies of one direction together, universal ones first.
    """
    together = pl.col("method").map_elements(lambda m: rule_of(m) is not None, pl.Boolean)
    found = best.select(
        source=pl.when(together).then(pl.lit(TOGETHER)).otherwise("model"),
        source_prompt=pl.when(together).then(pl.lit(TOGETHER)).otherwise("prompt"),
        direction="direction",
        method="method",
        seed="seed",
        text="text",
    ).unique(maintain_order=True)
    frames = [pl.DataFrame(schema=MATRIX), *_scored(run, found)]
    keys = ["direction", "universal", *SEARCH, "target", "prompt"]
    joined = pl.concat(frames).unique([*SEARCH, "target", "prompt"], maintain_order=True)
    joined = joined.with_columns(universal=pl.col("source") != TOGETHER)
    return joined.sort(list(dict.fromkeys(keys))).select(list(MATRIX))


def _scored(run: Run, found: pl.DataFrame) -> Iterator[pl.DataFrame]:
    moments: dict[tuple[str, str], tuple[float, float]] = {}
    for items, target, prompt in run.items:
        if not items.startswith(schema.FOUND):
            continue
        scores = run.item_scores(items, prompt, [target]).unique("item", keep="first")
        scores = scores.select(text="item", reward=target)
        own = found.join(scores, on="text", how="inner", validate="m:1")
        cell = (target, prompt)
        if cell in run.results and cell not in moments:
            rewards = run.rewards(*cell)[1].astype(np.float64)
            moments[cell] = float(rewards.mean()), float(rewards.std())
        mean, sd = moments.get(cell, (np.nan, np.nan))
        known = bool(sd > 0)
        standardised = (pl.col("reward").cast(pl.Float64) - mean) / sd if known else pl.lit(None)
        yield own.with_columns(
            target=pl.lit(target),
            prompt=pl.lit(prompt),
            standardised=standardised.cast(pl.Float64),
        ).select(list(MATRIX))


def summary(matrix: pl.DataFrame) -> pl.DataFrame:
    """Each reply over all targets: lowest and mean standardised reward, in the direction sought.

    Args:
      matrix: what `transfer_matrix` returns.

    Returns:
      The columns of a search, targets (how many scored it), mean and least: of the standardised
      rewards, with the sign turned for `min`; in the order of `matrix`. Replies without are left
      out.
    """
    sign = pl.when(pl.col("direction") == "max").then(1.0).otherwise(-1.0)
    known = matrix.filter(pl.col("standardised").is_not_null())
    return known.group_by(SEARCH, maintain_order=True).agg(
        targets=pl.len().cast(pl.Int64),
        mean=(sign * pl.col("standardised")).mean(),
        least=(sign * pl.col("standardised")).min(),
    )
