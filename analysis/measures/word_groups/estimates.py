"""Estimates of every group of words, in each model and over models.

A group is held against the others of its axis (this religion against the other religions), and its
contrast has a place among those of placebo kinds. No rule says that a group differs: any words of
one meaning differ from other words, and the placebo kinds are not all kinds that there are.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from analysis.columns import MODEL, PROMPT, Column, P, Spec, ends, q, several
from analysis.measures.word_groups import placebo
from analysis.measures.word_groups.standing import Standing, known_mean
from analysis.statistics import Array, permutation_tests
from analysis.statistics.inference import Estimates, bootstrap_means, t_test
from analysis.words.lexicons import NEUTRAL

LEAST_WORDS = 5  # On each side of a contrast; with fewer it has an interval, and no test.
_FOR_AN_INTERVAL = 999  # Arrangements that a standard error takes; a small p takes more.
_SIZES = ("words", "stems", "other_words", "other_stems")
_CONTRAST = ("contrast", "contrast_low", "contrast_high", "p")
_MEAN = ("mean_percentile", "ci_low", "ci_high")
_PARTS = ("", "_low", "_high", "_spread", "_placebo_low", "_placebo_high")
PLACE = (
    Column("kinds_lower", "count", "ordinary kinds lower", "kinds whose contrast is lower"),
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


class GroupTables(NamedTuple):
    """Two tables: one row per model, prompt and group, and one per prompt and group."""

    groups: pl.DataFrame
    over_models: pl.DataFrame


def estimate(
    standing: Standing, rng: np.random.Generator, permutations: int, bootstraps: int
) -> GroupTables:
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
        measured = measure(standing, axis, group, rng, permutations, bootstraps)
        sizes = np.stack([measured["stems"], measured["other_stems"]])
        if drawn is None or drawn[0] != sizes.tobytes():
            drawn = (sizes.tobytes(), kinds.distances(sizes[0]), kinds.contrasts(*sizes))
        _, distances, contrasts = drawn
        lower, count = placebo.lower(contrasts, measured["contrast"])
        columns = measured | {
            "placebo_share": placebo.rarity(contrasts, measured["contrast"]),
            "placebo_percentile": placebo.percentile(distances, measured["difference"]),
            **{"kinds_lower": lower, "kinds": count},
        }
        table = standing.cells.with_row_index("place").with_columns(
            **{name: pl.Series(values) for name, values in columns.items()},
            axis=pl.lit(axis),
            group=pl.lit(group),
        )
        cells.append(table.filter(pl.col("words") > 0))
        kinds_here = (distances, contrasts)
        prompts += over_models(standing, axis, group, measured, kinds_here, rng, permutations)
    order = standing.cells["prompt"].unique(maintain_order=True).to_list()
    rows = sorted(prompts, key=lambda row: order.index(row["prompt"]))
    groups = [frame for frame in cells if frame.height]
    cells_of = pl.concat(groups).sort("place", maintain_order=True) if groups else []
    return GroupTables(GROUPS.frame(cells_of), OVER_MODELS.frame(rows))


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
    columns = {"n": np.nansum(standing.tokens[mine], axis=0).astype(np.int64)}
    columns |= {name: np.zeros(cells, dtype=np.int64) for name in _SIZES}
    columns |= {name: np.full(cells, np.nan) for name in (*_MEAN, *_CONTRAST)}
    for present, adjusted, at in standing.same_words:
        there, here = mine & present, on_axis & adjusted
        if not there.any():
            continue
        values = standing.percentile[np.ix_(there, at)]
        means = bootstrap_means(values, unit[there], rng, bootstraps)
        for name, numbers in zip(_MEAN, means[:3], strict=True):
            columns[name][at] = np.clip(numbers, 0, 1)
        sides = (there, here & ~mine)
        sizes = [size for side in sides for size in (side.sum(), len(np.unique(unit[side])))]
        for name, size in zip(_SIZES, sizes, strict=True):
            columns[name][at] = size
        if len(np.unique(mine[here])) == 2:
            contrast = _contrast(
                standing.adjusted[np.ix_(here, at)],
                *(mine[here], form[here], unit[here], rng, permutations),
            )
            for name, numbers in zip(_CONTRAST, contrast, strict=True):
                columns[name][at] = numbers
    columns["difference"] = known_mean(standing.distance[mine])
    return columns


def _contrast(
    values: Array,
    labels: Array,
    form: Array,
    unit: Array,
    rng: np.random.Generator,
    permutations: int,
) -> Estimates:
    """The difference with its interval; without p for too few words."""
    few = min(permutation_tests.compared(labels, form)) < LEAST_WORDS
    draws = min(permutations, _FOR_AN_INTERVAL) if few else permutations
    estimates = permutation_tests.contrast(values, labels, form, unit, rng, draws)
    return estimates._replace(p=np.full(values.shape[1], np.nan)) if few else estimates


def over_models(
    standing: Standing,
    axis: str,
    group: str,
    measured: Mapping[str, Array],
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

    `measured` is what `measure` returns of the group, and `drawn` are the distances and contrasts
    of the placebo kinds [J, R, C], drawn at its sizes; stems are arranged `permutations` times at
    most.
    """
    prompts = standing.cells["prompt"]
    cells = {
        prompt: (prompts == prompt).to_numpy().nonzero()[0]
        for prompt in prompts.unique(maintain_order=True)
    }
    tested = ~np.isnan(measured["p"])
    p_words = dict.fromkeys(cells, math.nan)
    if tested.any():
        p_words = _over_words(standing, axis, group, cells, rng, permutations)
    for prompt, every in cells.items():
        at = every[measured["words"][every] > 0]
        if len(at) == 0:
            continue
        contrast, distance = measured["contrast"][at], measured["difference"][at]
        distances, apart = (kinds[:, :, at].mean(axis=2)[:, :, None] for kinds in drawn)
        mean, near = contrast.mean(keepdims=True), distance.mean(keepdims=True)
        lower, kinds = placebo.lower(apart, mean)
        ps = (math.nan, math.nan)
        if len(at) > 1 and tested[at].all():
            ps = (p_words[prompt], t_test(contrast).p)
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
    spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    known = drawn[~np.isnan(drawn)]
    band = np.quantile(known, (0.05, 0.95)).tolist() if len(known) else (math.nan, math.nan)
    numbers = (*t_test(values)[:3], spread, *band)
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
            labelled = permutation_tests.weights(mine[here][None], form[here])
            observed[at] = (permutation_tests.standardised(labelled) @ values)[0]
    p = {}
    for prompt, at in cells.items():
        at = at[~np.isnan(observed[at])]
        means = permuted[:, at].mean(axis=1)  # NaN where a model cannot compare; left out.
        means = means[~np.isnan(means)]
        mean = observed[at].mean(keepdims=True)
        extreme = int(permutation_tests.as_large(means[:, None], mean)[0])
        p[prompt] = extreme / len(means) if exact else (1 + extreme) / (1 + len(means))
    return p
