"""One estimate of a group of words over models: the models are the units."""

import math

import numpy as np
import polars as pl

from analysis.measures.word_groups import placebo
from analysis.measures.word_groups.measure import Measured
from analysis.measures.word_groups.placebo import Drawn
from analysis.measures.word_groups.standing import Standing
from analysis.statistics import Array, permutation_tests
from analysis.statistics.inference import t_test
from engine.runs.schema import Columns

_MEAN = ("", "_low", "_high", "_spread", "_placebo_low", "_placebo_high")
COLUMNS: Columns = {
    **dict.fromkeys(("prompt", "group", "axis"), pl.String),
    "models": pl.Int64,
    **dict.fromkeys((f"contrast{part}" for part in _MEAN), pl.Float64),
    "above": pl.Int64,
    **dict.fromkeys(("p_words", "p_models", "p", "placebo_share"), pl.Float64),
    **dict.fromkeys((f"difference{part}" for part in _MEAN), pl.Float64),
    "placebo_percentile": pl.Float64,
    **dict.fromkeys(("kinds_lower", "kinds"), pl.Int64),
}


def over_models(
    standing: Standing,
    own: Measured,
    drawn: Drawn,
    rng: np.random.Generator,
    permutations: int,
) -> pl.DataFrame:
    """Means over models of what was measured of one group, for each prompt.

    Models rate the same words, and much alike. So models that agree show little about the words:
    the same difference in every model may be that of a few words. The difference is tested twice,
    over models (t-test: would other models show it?) and over words (stems change groups, in all
    models at once: would other words?), and p is the larger of the two. A group is tested where it
    is in each of two models or more that have words of it.

    Args:
      standing: words under models and prompts.
      own: what was measured of the group.
      drawn: the placebo kinds, drawn at its sizes.
      rng: draws the arrangements of stems.
      permutations: number of arrangements, at most.

    Returns:
      `COLUMNS`. contrast is the mean over models of the difference from the others of the axis,
      _low and _high are the ends of its t interval, _spread is the standard deviation between
      models, and nine of ten draws of placebo kinds lie between _placebo_low and _placebo_high.
      above is the number of models in which it is positive. difference is the mean distance from
      neutral words, likewise; placebo_percentile is the share of placebo kinds that stand lower;
      kinds_lower is the number of placebo kinds, of `kinds`, whose contrast is lower.
    """
    p_words = _over_words(standing, own, rng, permutations)
    rows = []
    for prompt, at in _cells_of_prompts(standing).items():
        at = at[own.words[at] > 0]
        if len(at) == 0:
            continue
        contrast, distance = own.contrast[0, at], own.distance[at]
        distances, apart = (x[:, :, at].mean(axis=2) for x in (drawn.distances, drawn.contrasts))
        lower, kinds = placebo.lower(apart[:, :, None], contrast.mean(keepdims=True))
        p_models = t_test(contrast)[3]
        tested = len(at) > 1 and bool(own.tested[at].all())
        p = (p_words[prompt], p_models) if tested else (math.nan, math.nan)
        rows.append(
            (
                *(prompt, own.group, own.axis, len(at)),
                *_mean(contrast, apart),
                *(int((contrast > 0).sum()), *p, max(p)),
                placebo.rarity(apart[:, :, None], contrast.mean(keepdims=True)).item(),
                *_mean(distance, distances),
                placebo.percentile(distances[:, :, None], distance.mean(keepdims=True)).item(),
                *(lower.item(), kinds.item()),
            )
        )
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def _mean(values: Array, drawn: Array) -> tuple[float, ...]:
    """The numbers of `_MEAN`: of a group's `values` [M], and of placebo kinds, `drawn` [J, R]."""
    mean, low, high, _ = t_test(values)
    spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    known = drawn[~np.isnan(drawn)]
    ends = np.quantile(known, (0.05, 0.95)).tolist() if len(known) else (math.nan, math.nan)
    return mean, low, high, spread, *ends


def _cells_of_prompts(standing: Standing) -> dict[str, Array]:
    prompts = standing.cells["prompt"]
    return {
        prompt: (prompts == prompt).to_numpy().nonzero()[0]
        for prompt in prompts.unique(maintain_order=True)
    }


def _over_words(
    standing: Standing, own: Measured, rng: np.random.Generator, permutations: int
) -> dict[str, float]:
    """Prompt -> p of the mean contrast over models, if stems change groups in all models at once.

    A vocabulary takes part in an arrangement with those of the stems that it has.
    """
    cells = _cells_of_prompts(standing)
    if not own.tested.any():
        return dict.fromkeys(cells, math.nan)
    mine = standing.rows(placebo=False, axis=own.axis, group=own.group)
    on_axis = standing.rows(placebo=False, axis=own.axis)
    on_axis &= ~np.isnan(standing.adjusted).all(axis=1)
    form = standing.words["form"].to_numpy()
    units, unit = np.unique(standing.words["unit"].to_numpy()[on_axis], return_inverse=True)
    place = np.zeros(len(on_axis), dtype=np.int64)
    place[on_axis] = unit
    chosen = len(np.unique(place[on_axis & mine]))
    ways, exact = permutation_tests.arrangements(chosen, len(units), rng, permutations)
    permuted = np.full((len(ways), len(standing.cells)), np.nan)
    observed = np.full(len(standing.cells), np.nan)
    for _, adjusted, at in standing.same_words:
        here = on_axis & adjusted
        if len(np.unique(mine[here])) == 2:
            values = standing.adjusted[np.ix_(here, at)]
            weights = permutation_tests.weights(ways[:, place[here]], form[here])
            permuted[:, at] = permutation_tests.standardised(weights) @ values
            own_weights = permutation_tests.weights(mine[here][None], form[here])
            observed[at] = (permutation_tests.standardised(own_weights) @ values)[0]
    p = {}
    for prompt, at in cells.items():
        at = at[~np.isnan(observed[at])]
        means = permuted[:, at].mean(axis=1)  # NaN where a model cannot compare; left out.
        means = means[~np.isnan(means)]
        extreme = int(
            permutation_tests.as_large(means[:, None], observed[at].mean(keepdims=True))[0]
        )
        p[prompt] = extreme / len(means) if exact else (1 + extreme) / (1 + len(means))
    return p
