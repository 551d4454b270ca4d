"""What is measured of one group of words, under every model and prompt at once."""

import numpy as np

from analysis.measures.word_groups.standing import Standing
from analysis.statistics import Array, permutation_tests
from analysis.statistics.inference import bootstrap_means

LEAST_WORDS = 5  # On each side of a contrast; with fewer it has an interval, and no test.
_FOR_AN_INTERVAL = 999  # Arrangements that a standard error takes; a small p takes more.
_SIZES = ("words", "stems", "other_words", "other_stems")
_CONTRAST = ("contrast", "contrast_low", "contrast_high", "p")
_NUMBERS = ("mean_percentile", "ci_low", "ci_high", *_CONTRAST, "difference")


def measure(
    standing: Standing,
    axis: str,
    group: str,
    rng: np.random.Generator,
    permutations: int,
    bootstraps: int,
) -> dict[str, Array]:
    """Columns of `estimates.GROUPS` of one group of people.

    Each test takes `permutations` arrangements at most, and each interval of a mean percentile
    `bootstraps` draws.

    Returns:
      Name -> column [C]; NaN or 0 where a model has no words of the group.
    """
    mine = standing.rows(placebo=False, axis=axis, group=group)
    on_axis = standing.rows(placebo=False, axis=axis)
    form, unit = standing.words["form"].to_numpy(), standing.words["unit"].to_numpy()
    cells = standing.cells.height
    found = {"n": np.nansum(standing.tokens[mine], axis=0).astype(np.int64)}
    found |= {name: np.zeros(cells, dtype=np.int64) for name in _SIZES}
    found |= {name: np.full(cells, np.nan) for name in _NUMBERS}
    for present, adjusted, at in standing.same_words:
        own, here = mine & present, on_axis & adjusted
        if not own.any():
            continue
        values = standing.percentile[np.ix_(own, at)]
        ends = np.clip(bootstrap_means(values, unit[own], rng, bootstraps), 0, 1)
        for name, numbers in zip(_NUMBERS, (values.mean(axis=0), *ends), strict=False):
            found[name][at] = numbers
        sides = (own, here & ~mine)
        sizes = [size for side in sides for size in (side.sum(), len(np.unique(unit[side])))]
        for name, size in zip(_SIZES, sizes, strict=True):
            found[name][at] = size
        if len(np.unique(mine[here])) == 2:
            contrast = _contrast(
                standing.adjusted[np.ix_(here, at)],
                *(mine[here], form[here], unit[here], rng, permutations),
            )
            for name, numbers in zip(_CONTRAST, contrast, strict=True):
                found[name][at] = numbers
    known = ~np.isnan(standing.distance[mine])
    total = np.where(known, standing.distance[mine], 0.0).sum(axis=0)
    count = known.sum(axis=0)
    np.divide(total, count, out=found["difference"], where=count > 0)
    return found


def _contrast(
    values: Array,
    labels: Array,
    form: Array,
    unit: Array,
    rng: np.random.Generator,
    permutations: int,
) -> tuple[Array, Array, Array, Array]:
    """The difference, the ends of its interval, and p, each [C]; without p for too few words."""
    few = min(permutation_tests.compared(labels, form)) < LEAST_WORDS
    draws = min(permutations, _FOR_AN_INTERVAL) if few else permutations
    found = permutation_tests.contrast(values, labels, form, unit, rng, draws)
    p = np.full(values.shape[1], np.nan) if few else found.p
    return found.difference, found.low, found.high, p
