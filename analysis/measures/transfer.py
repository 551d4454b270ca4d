"""Found replies under every model and prompt that scored their texts: the transfer matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis.columns import PROMPT, Column, Spec
from analysis.run import Run
from engine.runs import schema

_UNIVERSAL = re.compile(r"(?P<method>.+)-(?P<rule>mean|minimum)-(?P<group>[0-9a-f]{8})(-ascent)?")
TOGETHER = "all together"  # the source of a reply that was sought for several judges

MATRIX = Spec(
    "sequence_matrix",
    (
        Column("source", "model", "sought for"),
        Column(
            "source_prompt", title="under", help="searched; `all together` for a universal search"
        ),
        Column("direction"),
        Column("method"),
        Column("seed", "count"),
        Column("text", "token"),
        Column("length", "count", "tokens", "its tokens in the search"),
        Column("target", "model", "scored by"),
        PROMPT.but(help="that score the text"),
        Column("reward", "number", dtype=pl.Float32),
        Column(
            "standardised",
            "fixed",
            "sd",
            "by mean and standard deviation of the target's single tokens under the prompt",
        ),
    ),
    page="source source_prompt direction method text length target prompt reward standardised",
)
_COMPARED = {
    **dict.fromkeys(("direction", "rule"), pl.String),
    **dict.fromkeys(("judges", "known"), pl.Int64),
    "text": pl.String,
    "value": pl.Float64,
    "alone": pl.String,
    "alone_value": pl.Float64,
}
SEARCH = ["source", "source_prompt", "direction", "method", "seed", "text", "length"]


def rule_of(method: str) -> str | None:
    """`mean` or `minimum` for the method of a universal search; None for another."""
    match = _UNIVERSAL.fullmatch(method)
    return None if match is None else match["rule"]


def transfer_matrix(run: Run, best: pl.DataFrame) -> pl.DataFrame:
    """The reward of every found reply under every model and prompt that scored its text.

    The table `MATRIX` of what `sequences_table` returns, replies of one direction together,
    universal ones first; standardised is null where the vocabulary was not scored.
    """
    universal = pl.col("method").map_elements(lambda m: rule_of(m) is not None, pl.Boolean)
    replies = best.select(
        pl.when(universal).then(pl.lit(TOGETHER)).otherwise("model").alias("source"),
        pl.when(universal).then(pl.lit(TOGETHER)).otherwise("prompt").alias("source_prompt"),
        *("direction", "method", "seed", "text", "length"),
    ).unique(maintain_order=True)
    scores = MATRIX.concat(_scored(run, replies))
    scores = scores.unique([*SEARCH, "target", "prompt"], maintain_order=True)
    models = run.place("source"), run.place("target")  # -1 for `TOGETHER`
    keys = [name for name in SEARCH if name not in ("direction", "source")]
    return scores.sort("direction", models[0], *keys, models[1], "prompt")


def _scored(run: Run, replies: pl.DataFrame) -> Iterator[pl.DataFrame]:
    moments: dict[tuple[str, str], tuple[float, float]] = {}
    for items, target, prompt in run.items:
        if not items.startswith(schema.FOUND):
            continue
        scores = run.item_scores(items, prompt, [target]).unique("item", keep="first")
        scores = scores.select(text="item", reward=target)
        known = replies.join(scores, on="text", how="inner", validate="m:1")
        cell = (target, prompt)
        if cell in run.results and cell not in moments:
            rewards = run.rewards(*cell)[1].astype(np.float64)
            moments[cell] = float(rewards.mean()), float(rewards.std())
        mean, sd = moments.get(cell, (np.nan, np.nan))
        standardised = (pl.col("reward").cast(pl.Float64) - mean) / sd if sd > 0 else pl.lit(None)
        known = known.with_columns(standardised=standardised)
        yield MATRIX.frame(known, target=target, prompt=prompt)


def judges_of(run: Run) -> dict[str, set[tuple[str, str]]]:
    """Method of a universal search -> the models and prompts that it was sought for."""
    judges: dict[str, set[tuple[str, str]]] = {}
    for keys, _, record in run.read_searches():
        if rule_of(keys["method"]):
            sought = judges.setdefault(keys["method"], set())
            sought.add((keys["model"], keys["prompt"]))
            listed = (record.universal or {}).get("judges", ())
            sought |= {(model, prompt) for model, prompt, *_ in listed}
    return judges


def together_or_alone(run: Run, matrix: pl.DataFrame) -> pl.DataFrame:
    """Each universal search beside the best reply that was sought for one of its judges.

    Both are compared over the same judges, by the rule of the universal search: other models and
    prompts that scored the replies do not count, nor do replies sought for the mean of prompts.

    Returns:
      Of the table `MATRIX`: direction, rule, judges (of the search), known (those whose rewards can
      be standardised, at least two), text, value, the same of the other reply (alone, alone_value).
      Values are standard deviations, with the sign turned for `min`: higher is better. One row per
      direction and method, of its best seed; none where there is nothing to compare.
    """
    rows, keys = [], ["target", "prompt"]
    sign = pl.when(direction="max").then(1.0).otherwise(-1.0)
    known = matrix.filter(pl.col("standardised").is_not_null())
    known = known.with_columns(value=sign * pl.col("standardised"))
    for method, judges in sorted(judges_of(run).items()):
        rule, value = rule_of(method), pl.col("value")
        sought = pl.DataFrame(sorted(judges), schema=keys, orient="row")
        for direction in ("max", "min"):
            part = known.filter(direction=direction).join(sought, on=keys, how="semi")
            cells = part.filter(method=method).select(keys).unique()
            every = (
                part.join(cells, on=keys, how="semi")
                .group_by(SEARCH)
                .agg(targets=pl.len(), value=value.mean() if rule == "mean" else value.min())
            )
            every = every.filter(targets=cells.height)
            every = every.sort("value", "text", "seed", descending=[True, False, False])
            universal = every.filter(method=method)
            single = every.join(
                sought,
                left_on=["source", "source_prompt"],
                right_on=keys,
                how="semi",
                maintain_order="left",
            )
            if cells.height > 1 and universal.height and single.height:
                best, alone = universal.row(0, named=True), single.row(0, named=True)
                both = [reply[name] for reply in (best, alone) for name in ("text", "value")]
                rows.append((direction, rule, len(judges), cells.height, *both))
    return pl.DataFrame(rows, schema=_COMPARED, orient="row")
