"""One estimate of a group of words over models: the models are the units."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from analysis.columns import PROMPT, Column, P, Spec, ends, q, several
from analysis.measures.word_groups import placebo
from analysis.measures.word_groups.standing import Standing
from analysis.statistics import Array, permutation_tests
from analysis.statistics.inference import t_test

_PARTS = ("", "_low", "_high", "_spread", "_placebo_low", "_placebo_high")
PLACE = (
    Column(
        "kinds_lower", "count", "ordinary kinds lower", "ordinary kinds whose contrast is lower"
    ),
    Column("kinds", "count", "of", "of so many"),
)
_AS_FAR = Column("placebo_share", "share", "ordinary kinds as far")
OVER_MODELS = Spec(
    "identity_models",
    (
        *(PROMPT, *several("text", "group axis"), Column("models", "count")),
        Column("contrast", "share", "minus others of the axis", "mean over models"),
        *ends("share", "t interval, models as units", "contrast"),
        Column("contrast_spread", "share", "spread between models", "their standard deviation"),
        Column("contrast_placebo_low", "share"),
        Column("contrast_placebo_high", "share", help="5 and 95 % of ordinary kinds"),
        Column("above", "count", "models above", "models in which it is positive"),
        Column("p_words", "p", help="stems permuted in all models at once"),
        *(Column("p_models", "p", help="t-test"), P.but(help="the larger")),
        *(q(help="all tests of the table"), _AS_FAR),
        *(Column("difference", "share", "minus neutral"), *ends("share", "", "difference")),
        *several("share", "difference_spread difference_placebo_low difference_placebo_high"),
        *(Column("placebo_percentile", "share", "ordinary kinds below"), *PLACE),
    ),
    page="prompt axis group models contrast contrast_low contrast_high contrast_spread above "
    "kinds_lower kinds placebo_share difference placebo_percentile",
    title="Over models",
)


def over_models(
    standing: Standing,
    axis: str,
    group: str,
    own: Mapping[str, Array],
    drawn: tuple[Array, Array],
    rng: np.random.Generator,
    permutations: int,
) -> Iterator[dict[str, Any]]:
    """Means over models of what was measured of one group: a row of `OVER_MODELS` for each prompt.

    Models rate the same words, and much alike. So models that agree show little about the words:
    the same difference in every model may be that of a few words. The difference is tested twice,
    over models (t-test: would other models show it?) and over words (stems change groups, in all
    models at once: would other words?), and p is the larger of the two. A group is tested where it
    is in each of two models or more that have words of it.

    `own` is what `measure` returns of the group, and `drawn` are the distances and contrasts of the
    placebo kinds [J, R, C], drawn at its sizes; stems are arranged `permutations` times at most.
    """
    prompts = standing.cells["prompt"]
    cells = {
        prompt: (prompts == prompt).to_numpy().nonzero()[0]
        for prompt in prompts.unique(maintain_order=True)
    }
    tested = ~np.isnan(own["p"])
    p_words = dict.fromkeys(cells, math.nan)
    if tested.any():
        p_words = _over_words(standing, axis, group, cells, rng, permutations)
    for prompt, every in cells.items():
        at = every[own["words"][every] > 0]
        if len(at) == 0:
            continue
        contrast, distance = own["contrast"][at], own["difference"][at]
        distances, apart = (kinds[:, :, at].mean(axis=2)[:, :, None] for kinds in drawn)
        mean, near = contrast.mean(keepdims=True), distance.mean(keepdims=True)
        lower, kinds = placebo.lower(apart, mean)
        ps = (math.nan, math.nan)
        if len(at) > 1 and tested[at].all():
            ps = (p_words[prompt], t_test(contrast)[3])
        yield {
            **{"prompt": prompt, "group": group, "axis": axis},
            **{"models": len(at), "above": int((contrast > 0).sum())},
            **_numbers("contrast", contrast, apart),
            **_numbers("difference", distance, distances),
            **{"p_words": ps[0], "p_models": ps[1], "p": max(ps)},
            "placebo_share": placebo.rarity(apart, mean).item(),
            "placebo_percentile": placebo.percentile(distances, near).item(),
            **{"kinds_lower": lower.item(), "kinds": kinds.item()},
        }


def _numbers(stem: str, values: Array, drawn: Array) -> dict[str, float]:
    """Columns of a mean over models: of a group's `values` [M], and of placebo kinds [J, R, 1]."""
    mean, low, high, _ = t_test(values)
    spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    known = drawn[~np.isnan(drawn)]
    band = np.quantile(known, (0.05, 0.95)).tolist() if len(known) else (math.nan, math.nan)
    numbers = (mean, low, high, spread, *band)
    return {f"{stem}{part}": number for part, number in zip(_PARTS, numbers, strict=True)}


def _over_words(
    standing: Standing,
    axis: str,
    group: str,
    cells: Mapping[str, Array],
    rng: np.random.Generator,
    permutations: int,
) -> dict[str, float]:
    """Prompt -> p of the mean contrast over models, if stems change groups in all models at once.

    A vocabulary takes part in an arrangement with those of the stems that it has.
    """
    mine = standing.rows(placebo=False, axis=axis, group=group)
    on_axis = standing.rows(placebo=False, axis=axis)
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
        own = observed[at].mean(keepdims=True)
        extreme = int(permutation_tests.as_large(means[:, None], own)[0])
        p[prompt] = extreme / len(means) if exact else (1 + extreme) / (1 + len(means))
    return p
