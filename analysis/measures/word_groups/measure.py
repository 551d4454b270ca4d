"""What is measured of one group of words, under every model and prompt at once."""

import dataclasses

import numpy as np

from analysis.measures.word_groups.standing import Standing
from analysis.statistics import Array, permutation_tests
from analysis.statistics.inference import bootstrap_means

LEAST_WORDS = 5  # On each side of a contrast; with fewer it has an interval, and no test.
_FOR_AN_INTERVAL = 999  # Arrangements that a standard error takes; a small p takes more.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """One group; entries [C] are NaN, 0 or false where a model has no words of it.

    Attributes:
      axis: its axis.
      group: its name.
      tokens: spellings of its words.
      words: its words.
      stems: stems of its words.
      other_words: words of the other groups of its axis.
      other_stems: stems of those.
      mean: [3, C], the mean percentile and the ends of its 95 % interval.
      distance: the mean distance from neutral words of the same form and surface.
      contrast: [3, C], the difference from the other groups of the axis and the ends of its 95 %
        interval.
      p: of the contrast; NaN where it is not tested.
      tested: whether it is: five words or more on each side.
    """

    axis: str
    group: str
    tokens: Array
    words: Array
    stems: Array
    other_words: Array
    other_stems: Array
    mean: Array
    distance: Array
    contrast: Array
    p: Array
    tested: Array


def measure(
    standing: Standing,
    axis: str,
    group: str,
    rng: np.random.Generator,
    permutations: int,
    bootstraps: int,
) -> Measured:
    """Measures one group of people.

    Args:
      standing: words under models and prompts.
      axis: axis of the group.
      group: its name.
      rng: draws arrangements and bootstrap samples.
      permutations: arrangements of each test, at most.
      bootstraps: draws of each interval of a mean percentile.
    """
    mine = standing.rows(placebo=False, axis=axis, group=group)
    on_axis = standing.rows(placebo=False, axis=axis)
    form, unit = standing.words["form"].to_numpy(), standing.words["unit"].to_numpy()
    cells = standing.cells.height
    sizes = np.zeros((4, cells), dtype=np.int64)
    mean, contrast = np.full((3, cells), np.nan), np.full((4, cells), np.nan)
    for present, adjusted, at in standing.same_words:
        own, here = mine & present, on_axis & adjusted
        if not own.any():
            continue
        values = standing.percentile[np.ix_(own, at)]
        mean[0, at] = values.mean(axis=0)
        mean[1:, at] = np.clip(bootstrap_means(values, unit[own], rng, bootstraps), 0, 1)
        for place, side in ((0, own), (2, here & ~mine)):
            sizes[place : place + 2, at] = [[side.sum()], [len(np.unique(unit[side]))]]
        if len(np.unique(mine[here])) == 2:
            contrast[:, at] = _contrast(
                standing.adjusted[np.ix_(here, at)],
                *(mine[here], form[here], unit[here], rng, permutations),
            )
    tokens = np.nansum(standing.tokens[mine], axis=0).astype(np.int64)
    known = ~np.isnan(standing.distance[mine])
    total = np.where(known, standing.distance[mine], 0.0).sum(axis=0)
    count = known.sum(axis=0)
    return Measured(
        axis=axis,
        group=group,
        tokens=tokens,
        words=sizes[0],
        stems=sizes[1],
        other_words=sizes[2],
        other_stems=sizes[3],
        mean=mean,
        distance=np.divide(total, count, out=np.full(cells, np.nan), where=count > 0),
        contrast=contrast[:3],
        p=contrast[3],
        tested=~np.isnan(contrast[3]),
    )


def _contrast(
    values: Array,
    labels: Array,
    form: Array,
    unit: Array,
    rng: np.random.Generator,
    permutations: int,
) -> Array:
    """The difference, the ends of its interval, and p, [4, C]; without p for too few words."""
    few = min(permutation_tests.compared(labels, form)) < LEAST_WORDS
    draws = min(permutations, _FOR_AN_INTERVAL) if few else permutations
    found = permutation_tests.contrast(values, labels, form, unit, rng, draws)
    p = np.full(values.shape[1], np.nan) if few else found.p
    return np.stack([found.difference, found.low, found.high, p])
