"""How each model's rewards are distributed under each prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Picture, Text
from analysis.charts.estimates import estimates
from analysis.charts.look import PANELS
from analysis.charts.violins import violins
from analysis.columns import MODEL, PROMPT, Column, P, Spec, q
from analysis.measures.matched_words import CELL
from analysis.measures.shared_tokens import stems_of
from analysis.run import Run
from analysis.sentences import part_of, significant, unclear
from analysis.statistics import Array
from analysis.statistics.distributions import density, moments, skewness_p
from analysis.study import NO_VOCABULARY, Absent, Analysis, Study, Table, table
from analysis.words.stems import stem_numbers

# Slug, prompt id, rewards [N], and the number of the word of each token [N].
Sample: TypeAlias = tuple[str, str, Array, Array]

MOMENTS = Spec(
    "moments",
    (
        MODEL,
        PROMPT,
        Column("n", "count"),
        Column("mean", "number"),
        Column("variance", "number", help="ddof 0"),
        *(Column(name, "number") for name in ("skewness", "kurtosis", "min", "max")),
        Column("distinct_rewards", "count"),
        P.but(help="of skewness 0, clustered by stem"),
        q(title="q of skewness 0"),
    ),
    page="model prompt n mean variance skewness kurtosis min max distinct_rewards q",
)
_SLIGHT = 0.2  # Skewness below which a reader sees hardly any.
_QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}


def _tables(study: Study) -> Iterator[Table]:
    """For charts: ("quantiles",) and ("densities",)."""
    rewards = {prompt: frame for (prompt,), frame in study.tables.of("shared_rewards").items()}
    data = list(samples(study.run, rewards))
    yield table(MOMENTS.name, make=partial(moments_table, data))
    yield table("quantiles", make=partial(quantiles_table, data), file=False)
    yield table("densities", make=partial(density_table, data), file=False)


def samples(run: Run, rewards: Mapping[str, pl.DataFrame]) -> Iterator[Sample]:
    """Every scored model and prompt with its rewards, by prompt, then in the order of the columns.

    Args:
      run: the run.
      rewards: prompt -> what `shared_rewards` returns. Where that has no rows, the models share
        nothing, and the sample is each model's whole vocabulary.
    """
    for prompt, frame in rewards.items():
        shared = stem_numbers(frame["token"])
        for model in frame.columns[1:]:
            if frame.height:
                yield model, prompt, frame[model].to_numpy(), shared
            else:
                token_ids, whole = run.rewards(model, prompt)
                yield model, prompt, whole, stems_of(run, model, token_ids)


def moments_table(data: Iterable[Sample]) -> pl.DataFrame:
    """The table `MOMENTS`, one row per sample; tests keep forms of one word together."""
    return MOMENTS.frame(
        {"model": model, "prompt": prompt, **moments(x), "p": skewness_p(x, stems)}
        for model, prompt, x, stems in data
    )


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


def _drawn(study: Study) -> Iterator[Block]:
    made = study.tables[MOMENTS.name]
    if not made.height:
        raise Absent(NO_VOCABULARY)
    if made["skewness"].is_nan().all():
        yield Text("Every score is the same.", "note")
    caption = (
        "Height is the share of tokens near a reward. The thick bar holds the middle half, the "
        "thin line the middle 90 %, and the white mark is the median. Each model has its own "
        "axis: rewards of two models have no common unit."
    )
    shapes = (study.tables["densities"], study.tables["quantiles"])
    kinds = {prompt: study.prompt_names[prompt] for prompt in study.run.vocabulary_prompts}
    draw = partial(violins, *shapes, study.names, kinds, "reward")
    if len(study.scored) > PANELS:
        shown = made.with_columns(question=pl.col("prompt").replace(study.prompt_names))
        draw = partial(estimates, shown, study.names, "skewness", value="skewness", panel="name")
        draw, caption = (
            partial(draw, row="question"),
            "Right of zero, the longer tail is of high rewards.",
        )
    yield Picture("distributions", caption, draw)
    whole = not study.tables["shared_vocabulary"].height
    sample = "each model’s whole vocabulary" if whole else "the shared vocabulary"
    yield from MOMENTS.rows(made, title=f"Moments over {sample}")
    yield Text(
        "Variance divides by n; skewness is biased; kurtosis is excess, 0 for a normal "
        "distribution. Few distinct rewards mean many ties. q tests skewness 0. It keeps "
        "forms of one word together, and corrects over all rows.",
        "how",
    )


def findings(moments: pl.DataFrame) -> Iterator[Finding]:
    """How many distributions are skewed to which side, each beyond chance."""
    certain, skew = significant(moments), pl.col("skewness")
    counts = {"high": certain.filter(skew > 0).height, "low": certain.filter(skew < 0).height}
    sides = {side: n for side, n in counts.items() if n}
    if not sides:
        return
    tails = " and ".join(
        f"{n} " * (len(sides) > 1) + f"towards {side} rewards" for side, n in sides.items()
    )
    slight = certain.filter(skew.abs() < _SLIGHT).height
    all_slight = slight == certain.height
    skewed = part_of(certain.height, moments.height, "distribution")
    which = f"{skewed[0].upper()}{skewed[1:]} (one per model and prompt)"
    single = moments.height == 1
    text = (
        f"{'The distribution of rewards' if single else which} "
        f"{'have' if certain.height > 1 else 'has'} a {'slightly ' * all_slight}longer tail"
        f"{':' * (len(sides) > 1)} {tails}"
        f"{f', {slight} of them only slightly' if slight and not all_slight else ''}."
    )
    yield Finding(text=text, picture="distributions")


ANALYSIS = Analysis(
    id="distributions",
    title="Distributions",
    lead="How are the rewards of a model spread, and to which side are they skewed?",
    make=_tables,
    parts=(_drawn,),
    told=(lambda study: findings(study.tables[MOMENTS.name]),),
    described=lambda study: unclear(study.tables[MOMENTS.name], "measures of skewness"),
)
