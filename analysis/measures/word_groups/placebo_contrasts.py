"""Placebo kinds through the test of the groups: how often different things differ."""

import numpy as np
import polars as pl

from analysis.columns import MODEL, PROMPT, Column, P, Spec
from analysis.measures.word_groups.placebo import PlaceboKinds
from analysis.statistics import permutation_tests

PLACEBO = Spec(
    "identity_placebo",
    (
        *(MODEL, PROMPT, Column("group", help="an ordinary kind of words"), Column("axis")),
        Column("words", "count"),
        Column("contrast", "share", help="less other kinds, at the size of a group of people"),
        P,
    ),
)
_PERMUTATIONS = 999  # p is only compared with 0.05.


def placebo_contrasts(
    placebo: PlaceboKinds, stems: int, other_stems: int, rng: np.random.Generator
) -> pl.DataFrame:
    """The table `PLACEBO`: every kind against the other kinds of its axis, as if it were a group.

    A kind has `stems` stems at most, as a typical group has, and the other kinds of its axis have
    `other_stems`.
    """
    standing, frames = placebo.standing, []
    form, unit = standing.words["form"].to_numpy(), standing.words["unit"].to_numpy()
    for _, adjusted, at in standing.same_words:
        for kind, (axis, group) in enumerate(placebo.kinds):
            rows = placebo.rows[kind] & adjusted
            others = placebo.axes[kind] & ~placebo.rows[kind] & adjusted
            own, beside = placebo.first(rows, stems), placebo.first(others, other_stems)
            if own is None or beside is None:
                continue
            here = own | beside
            found = permutation_tests.contrast(
                standing.adjusted[np.ix_(here, at)],
                *(own[here], form[here], unit[here], rng, _PERMUTATIONS),
            )
            numbers = {"contrast": pl.Series(found.difference), "p": pl.Series(found.p)}
            same = {"group": group, "axis": axis, "words": int(own.sum())}
            frames.append(PLACEBO.frame(standing.cells[at].with_columns(**numbers), **same))
    return PLACEBO.concat(frames).sort("model", "prompt", "axis", "group")


def left_out(table: pl.DataFrame) -> pl.DataFrame:
    """`PLACEBO` with `placebo_share`, as groups of people have it: each kind among the other kinds.

    The share of the kinds of a model and prompt whose contrast is as far from 0, the kind itself
    counted as one of them.
    """
    size = pl.col("contrast").abs().fill_nan(0.0).round(9)
    share = (size.rank("max", descending=True) / pl.len()).over("model", "prompt")
    return table.with_columns(placebo_share=share)
