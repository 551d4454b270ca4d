"""Estimates of every group of words, in each model and over models.

A group is held against the others of its axis (this religion against the other religions), and its
contrast has a place among those of placebo kinds. No rule says that a group differs: any words of
one meaning differ from other words, and the placebo kinds are not all kinds that there are.
"""

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from analysis.columns import MODEL, PROMPT, Column, P, Spec, ends, q, several
from analysis.measures.word_groups import placebo
from analysis.measures.word_groups.measure import measure
from analysis.measures.word_groups.over_models import OVER_MODELS, PLACE, over_models
from analysis.measures.word_groups.standing import Standing
from analysis.statistics import Array
from analysis.words.lexicons import NEUTRAL

GROUPS = Spec(
    "identity",
    (
        *(MODEL, PROMPT, *several("text", "group axis"), Column("n", "count", "tokens", "tokens")),
        *(Column("mean_percentile", "share"), *ends("share", "95 %, stems drawn")),
        P.but(help="contrast, stems permuted; NaN for fewer than five words on a side"),
        q(help="all tests of the table"),
        *several("count", "words stems other_words"),
        Column("other_stems", "count", help="of the axis"),
        Column("contrast", "share", "minus others of the axis", "the same word form"),
        *ends("share", "", "contrast"),
        Column("placebo_share", "share", "ordinary kinds as far", "from the others of their axis"),
        Column("difference", "share", "minus neutral", "less neutral words"),
        Column("placebo_percentile", "share", "ordinary kinds below", "that stand lower"),
        *PLACE,
    ),
    page="model prompt axis group n words mean_percentile ci_low ci_high contrast contrast_low "
    "contrast_high kinds_lower kinds placebo_share difference placebo_percentile",
    title="In each model",
)


class Estimates(NamedTuple):
    """Two tables: one row per model, prompt and group, and one per prompt and group."""

    groups: pl.DataFrame
    over_models: pl.DataFrame


def estimate(
    standing: Standing, rng: np.random.Generator, permutations: int, bootstraps: int
) -> Estimates:
    """Estimates of every group that is neither neutral nor a placebo: `GROUPS`, `OVER_MODELS`.

    `standing` has the words of the groups, neutral words, and placebo words. Each test takes
    `permutations` arrangements at most, and each interval of a mean percentile `bootstraps` draws.
    """
    kinds = placebo.placebo_kinds(standing, rng)
    cells: list[pl.DataFrame] = []
    prompts: list[dict[str, Any]] = []  # Any: cells of a table
    drawn: tuple[bytes, Array, Array] | None = None  # Neighbours are often of the same sizes.
    people = standing.words.filter(pl.col("group") != NEUTRAL, placebo=False)
    for axis, group in people.select("axis", "group").unique().sort("axis", "group").rows():
        own = measure(standing, axis, group, rng, permutations, bootstraps)
        sizes = np.stack([own["stems"], own["other_stems"]])
        if drawn is None or drawn[0] != sizes.tobytes():
            drawn = (sizes.tobytes(), kinds.distances(sizes[0]), kinds.contrasts(*sizes))
        _, distances, contrasts = drawn
        lower, count = placebo.lower(contrasts, own["contrast"])
        columns = own | {
            "placebo_share": placebo.rarity(contrasts, own["contrast"]),
            "placebo_percentile": placebo.percentile(distances, own["difference"]),
            **{"kinds_lower": lower, "kinds": count},
        }
        table = standing.cells.with_row_index("place").with_columns(
            **{name: pl.Series(values) for name, values in columns.items()},
            axis=pl.lit(axis),
            group=pl.lit(group),
        )
        cells.append(table.filter(pl.col("words") > 0))
        kinds_here = (distances, contrasts)
        prompts += over_models(standing, axis, group, own, kinds_here, rng, permutations)
    asked = standing.cells["prompt"].unique(maintain_order=True).to_list()
    rows = sorted(prompts, key=lambda row: asked.index(row["prompt"]))
    groups = [frame for frame in cells if frame.height]
    return Estimates(
        groups=GROUPS.frame(pl.concat(groups).sort("place", maintain_order=True) if groups else []),
        over_models=OVER_MODELS.frame(rows),
    )
