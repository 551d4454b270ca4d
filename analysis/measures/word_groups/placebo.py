"""How far placebo kinds stand from neutral words, and from the other kinds of their axis.

Any words of one meaning differ from other words. So the place of a group of people is held against
the places of kinds of ordinary words (months, fruits, tools), of as many word stems as the group
has. They are called placebo kinds in the code, and "ordinary kinds of words" on the page.
"""

import dataclasses
import functools

import numpy as np
import polars as pl

from analysis.columns import MODEL, PROMPT, Column, P, Spec
from analysis.measures.word_groups.standing import Standing
from analysis.statistics import Array, permutation_tests
from analysis.statistics.permutation_tests import weights

LEAST_STEMS = 5  # A kind of fewer stems in a vocabulary takes no part there.
LEAST_KINDS = 20  # With fewer kinds, none can be rarer than one of twenty.
_REPEATS = 24  # Draws of words of each kind.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceboKinds:
    """The placebo words of a `Standing`."""

    standing: Standing  # words under models and prompts
    kinds: tuple[tuple[str, str], ...]  # axis and group of every kind [J]
    rows: Array  # bool [J, W], the words of each kind
    axes: Array  # bool [J, W], the words of its axis
    unit: Array  # int [W], equal for words of one stem in one kind
    keys: Array  # float64 [R, units], an order of the stems for each draw

    def distances(self, stems: Array) -> Array:
        """Mean distances from neutral words, [J, R, C]: of `stems` [C] stems of each kind.

        A kind of fewer stems takes part with all it has; NaN where it has fewer than five.
        """
        drawn = np.full((len(self.kinds), len(self.keys), len(stems)), np.nan)
        for present, cells in self._batches(stems):
            count = int(stems[cells][0])
            known = present & ~np.isnan(self.standing.distance[:, cells]).any(axis=1)
            for kind, rows in enumerate(self.rows & known):
                chosen = self._draw(rows, count)
                if chosen is not None:
                    mean = chosen / chosen.sum(axis=1, keepdims=True)
                    drawn[kind][:, cells] = mean @ self.standing.distance[np.ix_(rows, cells)]
        return drawn

    def contrasts(self, stems: Array, others: Array) -> Array:
        """Differences from the other kinds of the axis, [J, R, C], at equal word form.

        `stems` and `others` [C] are the most stems of the kind, and of the other kinds together.
        """
        drawn = np.full((len(self.kinds), len(self.keys), len(stems)), np.nan)
        form = self.standing.words["form"].to_numpy()
        for present, cells in self._batches(stems, others):
            count, rest = int(stems[cells][0]), int(others[cells][0])
            for kind, (rows, axis) in enumerate(zip(self.rows, self.axes, strict=True)):
                mine, other = rows & present, axis & ~rows & present
                chosen, beside = self._draw(mine, count), self._draw(other, rest)
                if chosen is None or beside is None:
                    continue
                both = np.concatenate([np.flatnonzero(mine), np.flatnonzero(other)])
                labels = np.concatenate([chosen, np.zeros_like(beside)], axis=1)
                included = np.concatenate([chosen, beside], axis=1)
                each = weights(labels, form[both], included)
                drawn[kind][:, cells] = each @ self.standing.adjusted[np.ix_(both, cells)]
        return drawn

    def first(self, rows: Array, count: int) -> Array | None:
        """Those of the words `rows` [W] that have the first `count` stems of the first draw."""
        chosen = self._draw(rows, count)
        if chosen is None:
            return None
        drawn = np.zeros_like(rows)
        drawn[rows] = chosen[0]
        return drawn

    def _batches(self, *sizes: Array) -> list[tuple[Array, Array]]:
        """Cells of the same words and sizes together: words [W] and indices of the cells."""
        batches = []
        for _, adjusted, cells in self.standing.same_words:
            each, which = np.unique(np.stack(sizes)[:, cells], axis=1, return_inverse=True)
            for at in range(each.shape[1]):
                if each[:, at].all():
                    batches.append((adjusted, cells[which == at]))
        return batches

    def _draw(self, rows: Array, count: int) -> Array | None:
        """Which of the words `rows` have the first `count` stems of each draw: bool [R, N]."""
        place = self._places.get(rows.tobytes())
        if place is None:
            units, unit = np.unique(self.unit[rows], return_inverse=True)
            place = self.keys[:, units].argsort(axis=1).argsort(axis=1)[:, unit]
            place = place if len(units) >= LEAST_STEMS else np.empty(0)
            self._places[rows.tobytes()] = place
        return place < count if place.size else None

    @functools.cached_property
    def _places(self) -> dict[bytes, Array]:
        """Words [W] -> place of the stem of each one in each draw, [R, N]; empty for few stems."""
        return {}


def placebo_kinds(standing: Standing, rng: np.random.Generator) -> PlaceboKinds:
    """The placebo words of `standing`; `rng` draws the order of their stems."""
    words = standing.words
    named = words.filter(placebo=True).select("axis", "group").unique()
    kinds = tuple(named.sort("axis", "group").rows())
    rows = [standing.rows(placebo=True, axis=axis, group=group) for axis, group in kinds]
    axes = [standing.rows(placebo=True, axis=axis) for axis, _ in kinds]
    shape = (len(kinds), words.height)
    return PlaceboKinds(
        standing=standing,
        kinds=kinds,
        rows=np.array(rows, dtype=bool).reshape(shape),
        axes=np.array(axes, dtype=bool).reshape(shape),
        unit=words["unit"].to_numpy(),
        keys=rng.random((_REPEATS, words.height + 1)),
    )


def percentile(drawn: Array, observed: Array) -> Array:
    """Share of kinds that stand lower than `observed` [C], ties counted half; NaN without kinds.

    `drawn` is float64 [J, R, C]; NaN where a kind takes no part.
    """
    below = (drawn < observed) + 0.5 * (drawn == observed)
    share, kinds = _over_draws(below, drawn)
    enough = (kinds >= LEAST_KINDS) & ~np.isnan(observed)
    return np.where(enough, share / np.maximum(kinds, 1), np.nan)


def lower(drawn: Array, observed: Array) -> tuple[Array, Array]:
    """How many kinds stand lower than `observed` [C] in the mean of their draws, and the kinds.

    Both are int [C], and 0 where `observed` is NaN.
    """
    known = ~np.isnan(drawn)
    draws = known.sum(axis=1)
    means = np.where(known, drawn, 0.0).sum(axis=1) / np.maximum(draws, 1)
    there = (draws > 0) & ~np.isnan(observed)
    return (there & (means < observed)).sum(axis=0), there.sum(axis=0)


def rarity(drawn: Array, observed: Array) -> Array:
    """Share of kinds that are as far from 0 as `observed` [C], which counts as one of them.

    For a kind that is like all others, the share is at most x with probability x.
    """
    far = np.abs(drawn) >= np.abs(observed) * (1 - 1e-9)
    share, kinds = _over_draws(far.astype(np.float64), drawn)
    enough = (kinds >= LEAST_KINDS) & ~np.isnan(observed)
    return np.where(enough, (1 + share) / (1 + kinds), np.nan)


def _over_draws(holds: Array, drawn: Array) -> tuple[Array, Array]:
    """The sum over kinds of the share of draws in which something is so, and the kinds: [C]."""
    known = ~np.isnan(drawn)
    draws = known.sum(axis=1)
    share = np.where(known, holds, 0.0).sum(axis=1) / np.maximum(draws, 1)
    return share.sum(axis=0), (draws > 0).sum(axis=0)


def placebo_contrasts(
    kinds: PlaceboKinds, stems: int, other_stems: int, rng: np.random.Generator
) -> pl.DataFrame:
    """The table `PLACEBO`: every kind against the other kinds of its axis, as if it were a group.

    A kind has `stems` stems at most, as a typical group has, and the other kinds of its axis have
    `other_stems`.
    """
    standing, frames = kinds.standing, []
    form, unit = standing.words["form"].to_numpy(), standing.words["unit"].to_numpy()
    for _, adjusted, at in standing.same_words:
        for kind, (axis, group) in enumerate(kinds.kinds):
            rows = kinds.rows[kind] & adjusted
            others = kinds.axes[kind] & ~kinds.rows[kind] & adjusted
            mine, beside = kinds.first(rows, stems), kinds.first(others, other_stems)
            if mine is None or beside is None:
                continue
            here = mine | beside
            estimates = permutation_tests.contrast(
                standing.adjusted[np.ix_(here, at)],
                *(mine[here], form[here], unit[here], rng, _PERMUTATIONS),
            )
            numbers = {"contrast": pl.Series(estimates.value), "p": pl.Series(estimates.p)}
            same = {"group": group, "axis": axis, "words": int(mine.sum())}
            frames.append(PLACEBO.frame(standing.cells[at].with_columns(**numbers), **same))
    order = pl.Enum(standing.cells["model"].unique(maintain_order=True))
    return PLACEBO.concat(frames).sort(pl.col("model").cast(order), "prompt", "axis", "group")


def left_out(table: pl.DataFrame) -> pl.DataFrame:
    """`PLACEBO` with `placebo_share`, as groups of people have it: each kind among the other kinds.

    The share of the kinds of a model and prompt whose contrast is as far from 0, the kind itself
    counted as one of them.
    """
    size = pl.col("contrast").abs().fill_nan(0.0).round(9)
    share = (size.rank("max", descending=True) / pl.len()).over("model", "prompt")
    return table.with_columns(placebo_share=share)
