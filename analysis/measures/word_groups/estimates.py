"""Estimates of every group of words, in each model and over models.

A group is held against the others of its axis (this religion against the other religions), and its
contrast has a place among those of placebo kinds. No rule says that a group differs: any words of
one meaning differ from other words, and the placebo kinds are not all kinds that there are.
"""

import dataclasses

import numpy as np
import polars as pl

from analysis.measures.word_groups import placebo
from analysis.measures.word_groups.measure import Measured, measure
from analysis.measures.word_groups.over_models import COLUMNS as OVER_MODELS
from analysis.measures.word_groups.over_models import over_models
from analysis.measures.word_groups.placebo import Drawn
from analysis.measures.word_groups.standing import Standing
from analysis.statistics.inference import with_q
from analysis.words.lexicons import NEUTRAL
from engine.runs.schema import Columns

GROUPS: Columns = {
    **dict.fromkeys(("model", "prompt", "group", "axis"), pl.String),
    "n": pl.Int64,
    **dict.fromkeys(("mean_percentile", "ci_low", "ci_high", "p"), pl.Float64),
    **dict.fromkeys(("words", "stems", "other_words", "other_stems"), pl.Int64),
    **dict.fromkeys(("contrast", "contrast_low", "contrast_high", "placebo_share"), pl.Float64),
    **dict.fromkeys(("difference", "placebo_percentile"), pl.Float64),
    **dict.fromkeys(("kinds_lower", "kinds"), pl.Int64),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimates:
    """Tables of estimates; both have q behind p.

    Attributes:
      groups: one row per model, prompt and group (`GROUPS`).
      over_models: one row per prompt and group (`over_models.COLUMNS`).
    """

    groups: pl.DataFrame
    over_models: pl.DataFrame


def estimate(
    standing: Standing, rng: np.random.Generator, permutations: int, bootstraps: int
) -> Estimates:
    """Estimates of every group that is neither neutral nor a placebo.

    Args:
      standing: the words of the groups, neutral words, and placebo words.
      rng: draws arrangements, bootstrap samples, and words of the placebo kinds.
      permutations: arrangements of each test, at most.
      bootstraps: draws of each interval of a mean percentile.
    """
    kinds = placebo.placebo_kinds(standing, rng)
    cells, prompts = [pl.DataFrame(schema=GROUPS)], [pl.DataFrame(schema=OVER_MODELS)]
    last: tuple[bytes, Drawn] | None = None  # Neighbours are often of the same sizes.
    for axis, group in groups_of(standing):
        own = measure(standing, axis, group, rng, permutations, bootstraps)
        sizes = np.stack([own.stems, own.other_stems])
        if last is None or last[0] != sizes.tobytes():
            last = (sizes.tobytes(), kinds.drawn(*sizes))
        drawn = last[1]
        cells.append(_in_models(standing, own, drawn))
        prompts.append(over_models(standing, own, drawn, rng, permutations))
    asked = standing.cells.select("prompt").unique(maintain_order=True)
    return Estimates(
        groups=_ordered(pl.concat(cells), standing.cells),
        over_models=_ordered(pl.concat(prompts), asked),
    )


def groups_of(standing: Standing) -> list[tuple[str, str]]:
    """Axis and group of every group of people, sorted."""
    people = standing.words.filter(pl.col("group") != NEUTRAL, placebo=False)
    return people.select("axis", "group").unique().sort("axis", "group").rows()


def _in_models(standing: Standing, own: Measured, drawn: Drawn) -> pl.DataFrame:
    """The rows of one group, one for each model and prompt that has words of it."""
    lower, kinds = placebo.lower(drawn.contrasts, own.contrast[0])
    columns = {
        **{"group": own.group, "axis": own.axis, "n": own.tokens},
        **dict(zip(("mean_percentile", "ci_low", "ci_high"), own.mean, strict=True)),
        **{"p": own.p, "words": own.words, "stems": own.stems, "other_words": own.other_words},
        "other_stems": own.other_stems,
        **dict(zip(("contrast", "contrast_low", "contrast_high"), own.contrast, strict=True)),
        "placebo_share": placebo.rarity(drawn.contrasts, own.contrast[0]),
        "difference": own.distance,
        "placebo_percentile": placebo.percentile(drawn.distances, own.distance),
        "kinds_lower": lower,
        "kinds": kinds,
    }
    table = standing.cells.with_columns(
        pl.lit(values).alias(name) if isinstance(values, str) else pl.Series(name, values)
        for name, values in columns.items()
    )
    return table.filter(pl.col("words") > 0).cast(pl.Schema(GROUPS))


def _ordered(table: pl.DataFrame, order: pl.DataFrame) -> pl.DataFrame:
    """`table` with q, in the order of the cells, then by axis and group."""
    with_place = table.join(
        order.with_row_index("_place"), on=order.columns, how="left", validate="m:1"
    )
    return with_q(with_place.sort("_place", "axis", "group").drop("_place"))
