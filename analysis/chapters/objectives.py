"""What a reward is made of: a model's objectives, their weights, and the tokens of each.

For sweeps with `--config.objectives=values` or `quantiles` (ArmoRM, QRM, URM).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Heading, Picture
from analysis.charts.estimates import estimates
from analysis.charts.heat_map import heat_map
from analysis.columns import MODEL, PROMPT, SPEARMAN, TOKENS, Column, Spec
from analysis.ends import both_ends
from analysis.run import Run
from analysis.statistics import Array, ranks
from analysis.study import NO_VOCABULARY, Analysis, Study, Table, table
from engine.runs.result import Result

REWARD = "reward"
_FEW = 4  # Tokens at each end beside an objective on the page; the file holds all.
_CELL = (MODEL, PROMPT, Column("objective"))
OBJECTIVES = Spec(
    "objectives",
    (
        *_CELL,
        Column("n", "count"),
        Column("weight", "number", help="coefficient under the prompt"),
        Column("pearson", "fixed"),
        SPEARMAN.but(help="with the reward"),
        Column("share", "share", help="of the reward's variance; they sum to 1"),
        Column("spread", "number", help="mean distance from lowest to highest quantile"),
    ),
)
ENDS = Spec("objectives_tokens", (*_CELL, *TOKENS[1:], Column("value", "number", dtype=pl.Float32)))
_PAGE = Spec(  # With the first tokens of both ends.
    "objectives",
    (*OBJECTIVES.columns, Column("top", "tokens", "highest"), Column("bottom", "tokens", "lowest")),
    page="model objective weight spearman share spread top bottom",
)
_KEYS = [column.key for column in _CELL]
_NONE = "No model was swept with its objectives (--config.objectives=values)."


def _tables(study: Study) -> Iterator[Table]:
    """One square table for each model and prompt, and two of all."""
    run, count = study.run, study.settings.top
    for cell in [key for key, result in run.results.items() if result.objectives]:
        yield table("objectives", *cell, make=partial(objectives_spearman, run, *cell))
    why = _NONE if run.results else NO_VOCABULARY
    yield table(OBJECTIVES.name, make=partial(objectives_table, run, study.models), why=why)
    yield table(ENDS.name, make=partial(objectives_ends, run, study.models, count), why=_NONE)


def objectives_table(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """Each objective of each model against the reward, over the model's whole vocabulary.

    Args:
      run: the run.
      models: slugs in the order of the rows; those without objectives are left out.

    Returns:
      The table `OBJECTIVES`, by model, prompt, then in the model's order of its objectives. With
      a gate the reward is the sum of weight × objective, and share is weight × covariance with
      the reward / variance of the reward: an objective that works against the reward is below 0.
      weight is null without a gate, spread where quantiles were not written. A gated model that
      was swept without its objectives has its weights alone.
    """
    each = []
    for result in _results(run, models):
        weights = result.coefficients or {}
        scores = run.objectives(result.model, result.prompt) if result.objectives else None
        for name in _names(result):
            about = dict(zip(_KEYS, (result.model, result.prompt, name), strict=True))
            numbers = {}
            if scores is not None:
                ranked = run.ranked(result.model, result.prompt).average
                numbers = _against_reward(scores, ranked, name, weights.get(name))
            each.append({**about, "weight": weights.get(name), **numbers})
    return OBJECTIVES.frame(each)


def objectives_spearman(run: Run, model: str, prompt: str) -> pl.DataFrame:
    """Spearman's rho of the reward and the objectives of a model with each other.

    Returns:
      The table `objectives_<model>_<prompt>.csv`: a square one whose first column is `objective`,
      the reward first. NaN for an objective that is the same for every token.
    """
    scores = run.objectives(model, prompt)
    names = [REWARD, *_names(run.results[model, prompt])]
    of_objectives = [ranks.average_ranks(scores[name].to_numpy()) for name in names[1:]]
    order = [run.ranked(model, prompt).average, *of_objectives]
    matrix = np.array([[ranks.pearson(x, y) for x in order] for y in order])
    schema = {"objective": pl.String, **dict.fromkeys(names, pl.Float64)}
    return pl.DataFrame([names, *matrix], schema=schema, orient="col")


def objectives_ends(run: Run, models: Sequence[str], count: int) -> pl.DataFrame:
    """The `count` highest and lowest tokens of each objective, over the whole vocabulary.

    Returns:
      The table `ENDS`; ties go to the lower token_id.
    """
    frames = []
    for result in _results(run, models):
        if not result.objectives:
            continue
        scores = run.objectives(result.model, result.prompt)
        for name in _names(result):
            ends = both_ends(scores.select("token_id", "token", value=name), "value", count)
            same = dict(zip(_KEYS, (result.model, result.prompt, name), strict=True))
            frames.append(ENDS.frame(ends, **same))
    return ENDS.concat(frames)


def _results(run: Run, models: Sequence[str]) -> Iterator[Result]:
    """Results over a vocabulary that have objectives or their weights, by model, then by prompt."""
    for model in models:
        for prompt in run.vocabulary_prompts:
            result = run.results.get((model, prompt))
            if result is not None and _names(result):
                yield result


def _names(result: Result) -> list[str]:
    """Objectives of a result without their quantiles, which are columns like `<objective>-q01`."""
    columns = list(result.objectives)
    quantiles = {name for objective in columns for name in _quantiles(columns, objective)}
    return [name for name in columns if name not in quantiles] or list(result.coefficients or {})


def _quantiles(columns: Sequence[str], objective: str) -> list[str]:
    """The columns of an objective's quantiles, lowest first."""
    pattern = re.compile(rf"{re.escape(objective)}-q\d+")
    return sorted(name for name in columns if pattern.fullmatch(name))


def _against_reward(
    scores: pl.DataFrame, ranked: Array, name: str, weight: float | None
) -> dict[str, float]:
    x, reward = scores[name].to_numpy(), scores[REWARD].to_numpy()
    numbers = {
        "n": scores.height,
        "pearson": ranks.pearson(x, reward),
        "spearman": ranks.pearson(ranks.average_ranks(x), ranked),
    }
    variance = float(np.var(reward, dtype=np.float64))
    if weight is not None and variance > 0:
        deviation = np.std(x, dtype=np.float64) / np.sqrt(variance)
        numbers["share"] = float(weight * deviation * numbers["pearson"]) if deviation > 0 else 0.0
    if quantiles := _quantiles(scores.columns, name):
        lowest, highest = (scores[end].to_numpy() for end in (quantiles[0], quantiles[-1]))
        numbers["spread"] = float((highest - lowest).mean(dtype=np.float64))
    return numbers


_PANELS = {
    "spearman": "Spearman’s ρ with the reward",
    "weight": "weight in the gate",
    "share": "share of the reward’s variance",
}


def _drawn(study: Study) -> Iterator[Block]:
    objectives, ends = study.tables[OBJECTIVES.name], study.tables.get(ENDS.name)
    caption = (
        "How far the reward orders tokens as the objective does; the gate’s weight, in the units "
        "of the objective; and what the objective adds to the variance of the rewards: the shares "
        "of a model sum to 1, and one below 0 works against the reward. What is not known has no "
        "dot."
    )
    for (prompt,), part in objectives.group_by("prompt", maintain_order=True):
        yield Heading(f"Asked {study.prompt_names[prompt]}")
        measures = part.unpivot(
            [*_PANELS], index=["model", "objective"], variable_name="measure"
        ).with_columns(pl.col("measure").replace(_PANELS))
        draw = partial(estimates, measures, study.names, "", value="value", row="objective")
        draw = partial(draw, panel="measure", shared=False, width=190, form="number")
        yield Picture(f"objectives_{prompt}", caption, draw)
        yield from _PAGE.rows(_with_tokens(part, ends))
        for model in part["model"].unique(maintain_order=True):
            matrix = study.tables.get("objectives", model, prompt)
            if matrix is not None:
                said = f"{study.names[model]}: Spearman’s ρ of the reward and the objectives."
                draw = partial(heat_map, matrix, {}, "Spearman’s ρ")
                yield Picture(f"objectives_{model}_{prompt}", said, draw)


def _with_tokens(part: pl.DataFrame, ends: pl.DataFrame | None) -> pl.DataFrame:
    """`part` with the first tokens of both ends of each objective, as lists."""
    few = pl.DataFrame(schema=ENDS.schema) if ends is None else ends
    few = few.filter(pl.col("rank") <= _FEW).sort("rank")
    for end in ("top", "bottom"):
        tokens = few.filter(end=end).group_by(_KEYS).agg(pl.col("token").alias(end))
        part = part.join(tokens, on=_KEYS, how="left", validate="1:1", maintain_order="left")
    return part


ANALYSIS = Analysis(
    id="objectives",
    title="What a reward is made of",
    label="Objectives",
    lead="Some models predict several objectives and mix them into the reward: ArmoRM and QRM by "
    "a gate that reads the prompt, URM by a gate that reads the reply. Which objectives decide "
    "the reward of a single token, and which tokens does each rate high?",
    make=_tables,
    parts=(_drawn,),
    caveats=lambda study: (
        "The names of the objectives are those of the data they were trained on; what an "
        "objective measures on one token is another question.",
        "The spread is the mean distance from an objective’s lowest to its highest quantile.",
        "Correlated objectives share what they add to the reward: the split of the variance among "
        "them is one of many.",
    ),
)
