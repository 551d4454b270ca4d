"""What a reward is made of: a model's objectives, their weights, and the tokens of each.

For sweeps with `--config.objectives=values` or `quantiles` (ArmoRM, QRM, URM).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import MODEL, SPEARMAN, Block, Column, Heading, Picture, Section, notes, rows
from analysis.charts.heat_map import heat_map
from analysis.ends import both_ends
from analysis.figures import style
from analysis.run import Run
from analysis.statistics import ranks
from analysis.study import (
    NO_VOCABULARY,
    Absent,
    Study,
    Table,
    prompts_in,
    required,
    table,
)
from engine.runs.reader import Result
from engine.runs.schema import Columns

REWARD = "reward"
_FEW = 4  # Tokens at each end beside an objective on the page; the file holds all.
_CELL: Columns = {"model": pl.String, "prompt": pl.String, "objective": pl.String}
_NUMBERS = ("weight", "pearson", "spearman", "share", "spread")
_ENDS: Columns = {
    "end": pl.String,
    "rank": pl.UInt32,
    "token_id": pl.UInt32,
    "token": pl.String,
    "value": pl.Float32,
}


def tables(study: Study) -> Iterator[Table]:
    """objectives_<model>_<prompt>.csv, objectives.csv and objectives_tokens.csv."""
    run = study.run
    cells = [key for key, result in run.results.items() if result.objectives]
    for model, prompt in cells:
        yield table(
            "objectives", model, prompt, make=partial(objectives_spearman, run, model, prompt)
        )
    yield table("objectives", make=partial(_objectives, study))
    yield table("objectives_tokens", make=partial(_tokens, study))


def objectives_table(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """Each objective of each model against the reward, over the model's whole vocabulary.

    Args:
      run: the run.
      models: slugs in the order of the rows; those without objectives are left out.

    Returns:
      The table `objectives.csv`: model, prompt, objective, n (tokens), weight (the gate's
      coefficient under the prompt: the reward is the sum of weight × objective; null without a
      gate), pearson and spearman (with the reward), share (of the reward's variance that the
      objective contributes: weight × covariance with the reward / variance of the reward; they
      sum to 1, and an objective that works against the reward is below 0), spread (mean distance
      from its lowest to its highest quantile; null where quantiles were not written). A gated model
      that was swept without its objectives has its weights alone. By model, prompt, then in the
      model's order of its objectives.
    """
    each = []
    for result in _results(run, models):
        weights = result.coefficients or {}
        scores = run.objectives(result.model, result.prompt) if result.objectives else None
        for name in _names(result):
            about = dict(zip(_CELL, (result.model, result.prompt, name), strict=True))
            numbers = {} if scores is None else _against_reward(scores, name, weights.get(name))
            each.append({**about, "weight": weights.get(name), **numbers})
    schema = {**_CELL, "n": pl.Int64, **dict.fromkeys(_NUMBERS, pl.Float64)}
    return pl.DataFrame(each, schema=schema)


def objectives_spearman(run: Run, model: str, prompt: str) -> pl.DataFrame:
    """Spearman's rho of the reward and the objectives of a model with each other.

    Returns:
      The table `objectives_<model>_<prompt>.csv`: a square one whose first column is `objective`,
      the reward first. NaN for an objective that is the same for every token.
    """
    scores = run.objectives(model, prompt)
    names = [REWARD, *_names(run.results[model, prompt])]
    order = [ranks.average_ranks(scores[name].to_numpy()) for name in names]
    matrix = np.array([[ranks.pearson(x, y) for x in order] for y in order])
    schema: Columns = {"objective": pl.String, **dict.fromkeys(names, pl.Float64)}
    return pl.DataFrame([names, *matrix], schema=schema, orient="col")


def objectives_ends(run: Run, models: Sequence[str], count: int) -> pl.DataFrame:
    """The `count` highest and lowest tokens of each objective, over the whole vocabulary.

    Returns:
      The table `objectives_tokens.csv`: model, prompt, objective, end ("top" or "bottom"), rank
      (1 is the extreme), token_id, token, value. Ties go to the lower token_id.
    """
    frames = [pl.DataFrame(schema={**_CELL, **_ENDS})]
    for result in _results(run, models):
        if not result.objectives:
            continue
        scores = run.objectives(result.model, result.prompt)
        for name in _names(result):
            own = scores.select("token_id", "token", value=name)
            cell = zip(_CELL, (result.model, result.prompt, name), strict=True)
            keys = {key: pl.lit(value) for key, value in cell}
            ends = both_ends(own, "value", count).with_columns(**keys)
            frames.append(ends.select(*_CELL, *_ENDS))
    return pl.concat(frames)


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


def _against_reward(scores: pl.DataFrame, name: str, weight: float | None) -> dict[str, float]:
    x, reward = scores[name].to_numpy(), scores[REWARD].to_numpy()
    numbers = {
        "n": scores.height,
        "pearson": ranks.pearson(x, reward),
        "spearman": ranks.spearman(x, reward),
    }
    variance = float(np.var(reward, dtype=np.float64))
    if weight is not None and variance > 0:
        deviation = np.std(x, dtype=np.float64) / np.sqrt(variance)
        numbers["share"] = float(weight * deviation * numbers["pearson"]) if deviation > 0 else 0.0
    if quantiles := _quantiles(scores.columns, name):
        lowest, highest = (scores[end].to_numpy() for end in (quantiles[0], quantiles[-1]))
        numbers["spread"] = float((highest - lowest).mean(dtype=np.float64))
    return numbers


def _objectives(study: Study) -> pl.DataFrame:
    if not study.run.results:
        raise Absent(NO_VOCABULARY)
    why = "No model was swept with its objectives (--config.objectives=values)."
    return required(objectives_table(study.run, study.models), why)


def _tokens(study: Study) -> pl.DataFrame:
    ends = objectives_ends(study.run, study.models, study.settings.top)
    return required(ends, "No model was swept with its objectives (--config.objectives=values).")


_PANELS = (
    ("spearman", "Spearman’s ρ with the reward", style.TOP),
    ("weight", "weight in the gate", style.FAINT),
    ("share", "share of the reward’s variance", style.BOTTOM),
)


@style.styled
def makeup(table: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """Objectives of each model: correlation with the reward, weight, and share of its variance.

    One row of panels per model. A panel stays empty where its numbers are not known (the weights of
    a model without a gate).

    Args:
      table: rows of `objectives.csv` for one prompt.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    parts = {m: table.filter(model=m) for m in names if m in table["model"]}
    sizes = [0.19 * part.height + 0.75 for part in parts.values()]
    figure = style.canvas(9.0, sum(sizes) + 0.2)
    axes = figure.subplots(len(parts), len(_PANELS), squeeze=False, height_ratios=sizes)
    colours = style.colours(names)
    for row, (model, part) in zip(axes, parts.items(), strict=True):
        for ax, (key, label, colour) in zip(row, _PANELS, strict=True):
            _bars(ax, part[key], colour)
            ax.set_xlabel(label)
        row[0].set_yticks(range(part.height), [style.name(o, 30) for o in part["objective"]])
        style.title(row[0], names[model], colours[model])
    return figure


def _bars(ax: style.Axes, values: pl.Series, colour: str) -> None:
    numbers = values.cast(pl.Float64).fill_null(np.nan).to_numpy()
    known = np.isfinite(numbers)
    ax.set_yticks([])
    ax.set_ylim(len(numbers) - 0.4, -0.6)
    if not known.any():
        ax.text(0.5, 0.5, "not known", transform=ax.transAxes, ha="center", color=style.FAINT)
        ax.set_xticks([])
        return
    places = np.arange(len(numbers))[known]
    ax.barh(places, numbers[known], color=colour, height=0.66)
    ax.axvline(0, color=style.INK, linewidth=0.8)
    ax.grid(axis="x", color=style.GRID, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.locator_params(axis="x", nbins=5)


def section(study: Study) -> Section:
    """Bars, numbers and correlations, prompt by prompt."""
    objectives = study.tables.get("objectives")
    ends = study.tables.get("objectives_tokens")
    blocks: list[Block] = notes([study.tables.reason("objectives")])
    for prompt in prompts_in(objectives):
        part = study.tables["objectives"].filter(prompt=prompt)
        caption = (
            "Left: how far the reward orders tokens as the objective does. Middle: the gate’s "
            "weight, in the units of the objective. Right: what the objective adds to the variance "
            "of the rewards; the bars of a model sum to 1, and a bar below 0 works against the "
            "reward."
        )
        blocks += [
            Heading(f"Under “{prompt}”"),
            Picture(f"objectives_{prompt}", caption, partial(makeup, part, study.names)),
            *rows(_with_tokens(part, ends), _COLUMNS, "objectives.csv"),
        ]
        for model in part["model"].unique(maintain_order=True):
            matrix = study.tables.get("objectives", model, prompt)
            if matrix is not None:
                caption = (
                    f"{study.names[model]}: Spearman’s ρ of the reward and the objectives with "
                    "each other."
                )
                draw = partial(heat_map, matrix, {}, "Spearman’s ρ")
                blocks.append(Picture(f"objectives_{model}_{prompt}", caption, draw))
    return Section(
        id="objectives",
        title="What a reward is made of",
        label="Objectives",
        lead="Some models predict several objectives and mix them into the reward: ArmoRM and QRM "
        "by a gate that reads the prompt, URM by a gate that reads the reply. Which objectives "
        "decide the reward of a single token, and which tokens does each rate high?",
        blocks=blocks,
        caveats=(
            "The names of the objectives are those of the data they were trained on; what an "
            "objective measures on one token is another question.",
            "The spread is the mean distance from an objective’s lowest to its highest quantile.",
            "Correlated objectives share what they add to the reward: the split of the variance "
            "among them is one of many.",
        ),
    )


def _with_tokens(part: pl.DataFrame, ends: pl.DataFrame | None) -> pl.DataFrame:
    """`part` with the first tokens of both ends of each objective, as lists."""
    keys = list(_CELL)
    few = pl.DataFrame(schema={**_CELL, **_ENDS}) if ends is None else ends
    few = few.filter(pl.col("rank") <= _FEW).sort("rank")
    for end in ("top", "bottom"):
        tokens = few.filter(end=end).group_by(keys).agg(pl.col("token").alias(end))
        part = part.join(tokens, on=keys, how="left", validate="1:1", maintain_order="left")
    return part


_COLUMNS: tuple[Column, ...] = (
    MODEL,
    ("objective", "objective", "text"),
    ("weight", "weight", "number"),
    SPEARMAN,
    ("share", "share", "share"),
    ("spread", "spread", "number"),
    ("top", "highest", "tokens"),
    ("bottom", "lowest", "tokens"),
)
