"""How each model's rewards are distributed under each prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import polars as pl

from analysis.blocks import MODEL, PROMPT, Block, Column, Finding, Picture, Section, Text, rows
from analysis.chapters.tokens import stems_of
from analysis.figures import style
from analysis.measures.matched_words import CELL
from analysis.run import Run
from analysis.sentences import span
from analysis.significant_effects import significant
from analysis.statistics import Array
from analysis.statistics.distributions import density, moments, skewness_interval
from analysis.statistics.inference import with_q
from analysis.study import NO_VOCABULARY, Study, Table, table
from analysis.words.stems import stem_numbers
from engine.runs.schema import Columns

# Slug, prompt id, rewards [N], and the number of the word of each token [N].
Sample: TypeAlias = tuple[str, str, Array, Array]

_FLOATS = ("mean", "variance", "skewness", "kurtosis", "min", "max")
_MOMENTS: Columns = {
    **CELL,
    "n": pl.Int64,
    **dict.fromkeys(_FLOATS, pl.Float64),
    "distinct_rewards": pl.Int64,
    **dict.fromkeys(("skewness_low", "skewness_high", "p"), pl.Float64),
}
_QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
_HALF = 0.42  # Width of half a violin, where violins are 1 apart.


def tables(study: Study) -> Iterator[Table]:
    """moments.csv. For the figures: ("quantiles",) and ("densities",)."""
    rewards = {prompt: frame for (prompt,), frame in study.tables.of("shared_rewards").items()}
    data = list(samples(study.run, rewards))
    yield table("moments", make=partial(moments_table, data))
    yield table("quantiles", make=partial(quantiles_table, data), file=False)
    yield table("densities", make=partial(density_table, data), file=False)


def samples(run: Run, rewards: Mapping[str, pl.DataFrame]) -> Iterator[Sample]:
    """Every scored model and prompt with its rewards, by prompt, then in the order of the columns.

    Args:
      run: the run.
      rewards: prompt -> its table of `tokens.shared_rewards`. Where that table has no rows, the
        models share nothing, and the sample is each model's whole vocabulary.
    """
    for prompt, frame in rewards.items():
        shared = stem_numbers(frame["token"])
        for model in frame.columns[1:]:
            if frame.height:
                yield model, prompt, frame[model].to_numpy(), shared
            else:
                token_ids, own = run.rewards(model, prompt)
                yield model, prompt, own, stems_of(run, model, token_ids)


def moments_table(data: Iterable[Sample]) -> pl.DataFrame:
    """The table `moments.csv`, one row per sample.

    Returns:
      model, prompt, the keys of `moments`, skewness_low, skewness_high (95 %, forms of one word
      resampled together), p (of skewness 0) and q (over all rows).
    """
    rows = []
    for model, prompt, x, own in data:
        interval = skewness_interval(x, own)
        tested = zip(("skewness_low", "skewness_high", "p"), interval, strict=True)
        rows.append({"model": model, "prompt": prompt, **moments(x), **dict(tested)})
    return with_q(pl.DataFrame(rows, schema=_MOMENTS))


def quantiles_table(data: Iterable[Sample]) -> pl.DataFrame:
    """model, prompt, q05, q25, median, q75, q95 of the rewards; one row per sample."""
    levels = list(_QUANTILES.values())
    return pl.DataFrame(
        [(m, p, *np.quantile(x.astype(np.float64), levels).tolist()) for m, p, x, _ in data],
        schema={**CELL, **dict.fromkeys(_QUANTILES, pl.Float64)},
        orient="row",
    )


def density_table(data: Iterable[Sample]) -> pl.DataFrame:
    """model, prompt, reward, density (as `density` gives them); rewards ascend in a sample."""
    numbers = dict.fromkeys(("reward", "density"), pl.Float64)
    frames = [pl.DataFrame(schema={**CELL, **numbers})]
    for model, prompt, x, _ in data:
        curve = pl.DataFrame(dict(zip(numbers, density(x), strict=True)), schema=numbers)
        keys = (pl.lit(model).alias("model"), pl.lit(prompt).alias("prompt"))
        frames.append(curve.select(*keys, "reward", "density"))
    return pl.concat(frames)


@style.styled
def violins(
    densities: pl.DataFrame,
    quantiles: pl.DataFrame,
    names: Mapping[str, str],
    prompts: Sequence[str],
) -> style.Figure:
    """Violins of the rewards, one panel per model, each on its own axis.

    Rewards of two models have no common unit, so only shapes, and prompts within one model,
    can be compared; one axis for all would flatten most models to a line.

    Args:
      densities: the table of `density_table`.
      quantiles: the table of `quantiles_table`.
      names: slug -> nickname, in the order of the panels.
      prompts: prompt ids in the order of the violins.
    """
    figure, axes = style.panels(names, list(names), 5, (2.1, 2.7))
    colours = style.colours(names)
    for model, ax in axes.items():
        for place, prompt in enumerate(prompts):
            shape = densities.filter(model=model, prompt=prompt).sort("reward")
            if shape.height:
                spread = quantiles.filter(model=model, prompt=prompt).row(0, named=True)
                _violin(ax, place, shape, spread, colours[model])
        ax.set_xticks(range(len(prompts)), [style.name(p, 14) for p in prompts])
        ax.set_xlim(-0.6, len(prompts) - 0.4)
        ax.grid(visible=False, axis="x")
    figure.supylabel("reward", fontsize=9)
    return figure


def _violin(
    ax: style.Axes, place: int, shape: pl.DataFrame, spread: Mapping[str, float], colour: str
) -> None:
    reward, height = shape["reward"].to_numpy(), shape["density"].to_numpy()
    half = _HALF * height / height.max()
    if len(reward) == 1:  # All rewards are equal: a line shows it better than a flat violin.
        ax.plot([place - _HALF, place + _HALF], [reward[0]] * 2, color=colour)
    ax.fill_betweenx(reward, place - half, place + half, color=colour, alpha=0.45, linewidth=0.6)
    ax.vlines(place, spread["q05"], spread["q95"], color=style.INK, linewidth=0.9)
    ax.vlines(place, spread["q25"], spread["q75"], color=style.INK, linewidth=3.6)
    ax.plot(place, spread["median"], "o", color="white", markersize=2, zorder=4)


def section(study: Study) -> Section:
    """Violins and moments."""
    title, label = "Distributions", "Distributions"
    table_of_moments = study.tables["moments"]
    if not table_of_moments.height:
        blocks = [Text(NO_VOCABULARY, "note")]
        return Section(id="distributions", title=title, label=label, lead="", blocks=blocks)
    flat = table_of_moments["skewness"].is_nan().all()
    same: list[Block] = [Text("Every score is the same.", "note")] if flat else []
    caption = (
        "Width is the share of tokens near a reward. The thick bar holds the middle half, the thin "
        "line the middle 90 %, and the dot is the median. Each model has its own axis: "
        "rewards of two models have no common unit."
    )
    names = {model: study.names[model] for model in study.scored}
    shapes = (study.tables["densities"], study.tables["quantiles"])
    draw = partial(violins, *shapes, names, list(study.run.vocabulary_prompts))
    how = (
        "Variance divides by n; skewness is biased; kurtosis is excess, 0 for a normal "
        "distribution. Few distinct rewards mean many ties. The interval of skewness is a 95 % "
        "interval that keeps forms of one word together; q is over all rows."
    )
    return Section(
        id="distributions",
        title=title,
        label=label,
        lead="",
        blocks=[
            *same,
            Picture("distributions", caption, draw),
            *rows(
                table_of_moments,
                _COLUMNS,
                "moments.csv",
                f"Moments over {_sample(study)}",
                unfolded=True,
            ),
            Text(how, "how"),
        ],
        findings=findings(table_of_moments),
    )


def findings(moments: pl.DataFrame) -> list[Finding]:
    """How many distributions are skewed, each beyond chance; nothing where none is."""
    certain = significant(moments)
    sides = {
        "above": certain.filter(pl.col("skewness") > 0),
        "below": certain.filter(pl.col("skewness") < 0),
    }
    parts = [
        f"{side} 0 in {own.height} ({span(own['skewness'].to_numpy())})"
        for side, own in sides.items()
        if own.height
    ]
    if not parts:
        return []
    text = (
        f"Of {moments.height} distributions of rewards, one per model and prompt, skewness is "
        f"{' and '.join(parts)}, each with q < .05. It is 0 for a symmetric distribution."
    )
    return [Finding(text=text, picture="distributions")]


def _sample(study: Study) -> str:
    shared = study.tables.get("shared_vocabulary")
    if shared is None:
        return "each model’s whole vocabulary"
    if not shared.height:
        return "each model’s whole vocabulary (the models share no tokens)"
    if len(study.names) > 1:
        return "the shared vocabulary"
    return "the tokens whose text no other token shares"


_COLUMNS: tuple[Column, ...] = (
    MODEL,
    PROMPT,
    ("n", "n", "count"),
    *((name, name, "number") for name in _FLOATS),
    ("distinct_rewards", "distinct rewards", "count"),
    ("skewness_low", "skewness from", "fixed"),
    ("skewness_high", "to", "fixed"),
    ("q", "q of skewness 0", "p"),
)
