"""How far words for groups of people stand apart after each layer."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from analysis.measures.lens import q_by_layer, swept
from analysis.run import Run
from analysis.statistics import Array, ranks
from analysis.statistics.kendall import tau_b
from analysis.words.lexicons import NEUTRAL
from analysis.words.matching import match_cased
from engine.runs.schema import Columns

LEAST_STEMS = 3  # of a group
_PERMUTED = 20_000_000  # numbers held in memory
COLUMNS: Columns = {
    **dict.fromkeys(("model", "prompt", "axis"), pl.String),
    **dict.fromkeys(("layer", "layers", "groups", "stems"), pl.Int64),
    **dict.fromkeys(("spread", "kendall", "p"), pl.Float64),
}


def group_spread(
    run: Run,
    models: Sequence[str],
    terms: pl.DataFrame,
    rng: np.random.Generator,
    permutations: int,
) -> pl.DataFrame:
    """Share of the variance of identity words that lies between the groups of an axis.

    A token counts by its percentile after the layer less the mean of the tokens of its axis with
    the same form and surface (leading space, capital). Words of one stem in a group are one.

    Args:
      run: the run.
      models: slugs in the order of the rows; those without the lens are left out.
      terms: what `lexicons.identity` returns.
      rng: draws permutations of stems over the groups of an axis.
      permutations: their number.

    Returns:
      The table `lens_groups.csv`: model, prompt, axis, layer, layers, groups, stems, spread
      (adjusted share: 0 on average where groups differ by chance alone; it may be below 0), kendall
      (tau-b of the stems' standing with that after the last layer), p (of as large a share by
      chance), q (over the models, prompts and axes after layers as far from the
      last one). Axes of fewer than two groups of three stems are left out.
    """
    found = [pl.DataFrame(schema=COLUMNS)]
    for model in models:
        prompts = [p for m, p in swept(run) if m == model]
        matched = match_cased(run.vocabulary(model).collect(), terms)
        matched = matched.filter(pl.col("group") != NEUTRAL)
        if prompts and matched.height:
            places = _percentiles(run, model, prompts, matched["token_id"])
            for (axis,), words in matched.with_row_index().group_by("axis", maintain_order=True):
                own = {p: x[:, words["index"].to_numpy()] for p, x in places.items()}
                found += _axis(words, own, rng, permutations, (model, str(axis)))
    table = pl.concat(found)
    if not table.height:
        return table.with_columns(q=pl.lit(None, dtype=pl.Float64))
    place = {name: number for number, name in enumerate(run.vocabulary_prompts)}
    order = pl.col("prompt").replace_strict(place, return_dtype=pl.Int64)
    position = {name: number for number, name in enumerate(models)}
    of = pl.col("model").replace_strict(position, return_dtype=pl.Int64)
    return q_by_layer(table.sort(of, order, "axis", "layer"))


def between_share(values: Array, labels: Array) -> Array:
    """Share of the variance of each row that lies between groups; 0 on average by chance.

    Args:
      values: float64 [K, U].
      labels: number of the group of each column, from 0 without gaps; int [U].

    Returns:
      float64 [K]: epsilon squared (Kelley 1935); NaN where a row does not vary.
    """
    groups, units = int(labels.max()) + 1, len(labels)
    centred = values - values.mean(axis=1, keepdims=True)
    total = (centred**2).sum(axis=1)
    between = _between(centred, np.eye(groups)[labels][None])[:, 0]
    share = np.divide(between, total, out=np.full(len(values), math.nan), where=total > 0)
    return np.asarray(1 - (1 - share) * (units - 1) / (units - groups))


def permuted_p(values: Array, labels: Array, rng: np.random.Generator, permutations: int) -> Array:
    """How often groups drawn at random have as large a `between_share`; float64 [K].

    Arguments as there; the same permutations serve all rows.
    """
    member = np.eye(int(labels.max()) + 1)[labels]
    centred = values - values.mean(axis=1, keepdims=True)
    own = _between(centred, member[None])
    as_large = np.ones(len(values))
    block = max(1, _PERMUTED // max(member.size, len(values) * member.shape[1]))
    for start in range(0, permutations, block):
        count = min(block, permutations - start)
        drawn = rng.permuted(np.tile(np.arange(len(labels)), (count, 1)), axis=1)
        as_large += (_between(centred, member[drawn]) >= own * (1 - 1e-9)).sum(axis=1)
    return np.where((centred == 0).all(axis=1), math.nan, as_large / (permutations + 1))


def _between(centred: Array, members: Array) -> Array:
    """Sum of squares between groups: of rows [K, U], for memberships [B, U, G]; float64 [K, B]."""
    blocks, units, groups = members.shape
    flat = members.transpose(1, 0, 2).reshape(units, -1)
    sums = (centred @ flat).reshape(len(centred), blocks, groups)
    return np.asarray((sums**2 / members[0].sum(axis=0)).sum(axis=2))


def _percentiles(
    run: Run, model: str, prompts: Sequence[str], token_ids: pl.Series
) -> dict[str, Array]:
    """Prompt -> percentiles of some tokens after each layer [layers, tokens]; NaN if not scored."""
    found = {}
    for prompt in prompts:
        frame = run.layers(model, prompt)
        ids = frame["token_id"].to_numpy()
        at = np.minimum(np.searchsorted(ids, token_ids.to_numpy()), len(ids) - 1)
        known = ids[at] == token_ids.to_numpy()
        columns = frame.drop("token_id").iter_columns()
        own = np.stack([ranks.percentiles(column.to_numpy())[at] for column in columns])
        found[prompt] = np.where(known, own, math.nan)
    return found


def _axis(
    words: pl.DataFrame,
    values: Mapping[str, Array],
    rng: np.random.Generator,
    permutations: int,
    key: tuple[str, str],
) -> Iterator[pl.DataFrame]:
    """Rows of one model and axis, under each prompt; none where the axis has too few words."""
    scored = ~np.isnan(np.concatenate(list(values.values()))).any(axis=0)
    words = words.filter(scored)
    cells = words.select(pl.struct("form", "surface").rank("dense") - 1).to_series().to_numpy()
    units = words.with_columns(unit=pl.struct("group", "stem").rank("dense") - 1)
    groups = units.select("unit", "group").unique().sort("unit")
    enough = groups.filter(pl.len().over("group") >= LEAST_STEMS)
    if enough["group"].n_unique() < 2:
        return
    kept = enough["unit"].to_numpy()
    labels = enough.select(pl.col("group").rank("dense") - 1).to_series().to_numpy()
    rows = np.concatenate([x[:, scored] for x in values.values()])
    centred = _less_mean(rows, cells)
    standing = _means(centred, units["unit"].to_numpy())[:, kept]
    spread, p = between_share(standing, labels), permuted_p(standing, labels, rng, permutations)
    model, axis = key
    start = 0
    for prompt, own in values.items():
        layers = len(own)
        at = slice(start, start + layers)
        start += layers
        yield pl.DataFrame(
            {
                "model": [model] * layers,
                "prompt": prompt,
                "axis": axis,
                "layer": range(1, layers + 1),
                "layers": layers,
                "groups": int(labels.max()) + 1,
                "stems": len(labels),
                "spread": spread[at],
                "kendall": [tau_b(after, standing[at][-1]) for after in standing[at]],
                "p": p[at],
            },
            schema=COLUMNS,
        )


def _means(values: Array, numbers: Array) -> Array:
    """Mean of the columns of `values` [K, N] with each number, from 0 without gaps."""
    member = np.eye(int(numbers.max()) + 1)[numbers]
    return np.asarray(values @ member / member.sum(axis=0))


def _less_mean(values: Array, numbers: Array) -> Array:
    """`values` [K, N] less the mean of the columns with the same number."""
    return np.asarray(values - _means(values, numbers)[:, numbers])
