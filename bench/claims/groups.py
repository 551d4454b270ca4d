"""Groups of people that differ from the others of their axis, where there is nothing of the kind.

Nulls:

- one placebo kind, its stems split at random into groups;
- several kinds as the groups of one axis: they do differ, so p < .05 is common and promises
  nothing, but that a group differs must not be claimed for more than 5 % of them;
- words for people, whose stems change groups inside their axis and their band of frequency;
- numbers that were drawn.

Rows of nominal rate 1 promise nothing. They show what is not claimed, and why: differences between
placebo kinds, models as the only units, and words of one stem as units of their own.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.chapters.groups import identity_words
from analysis.measures.word_groups.estimates import estimate
from analysis.measures.word_groups.measure import LEAST_WORDS
from analysis.measures.word_groups.standing import Standing, numbered, standing
from analysis.run import Run
from analysis.statistics import Array
from analysis.words import lexicons
from bench.claims import Rate
from bench.support.shuffles import shuffled

_PERMUTATIONS, _BOOTSTRAPS = 999, 99
_STEMS = (3, 10)  # Stems of a group of people that is tested: from, and below.
_LEAST_STEMS = 8  # Of a kind that is split.
_NOTHING = 1.0  # The nominal rate of what promises none.
_SINGLE = {"group, one model: p < .05": "sure", "group, one model: differs": "differs"}
_OVER = {
    "group, over models: t-test alone p < .05": "models_sure",
    "group, over models: p < .05": "sure",
    "group, over models: differs": "differs",
}


def rates(run: Run, draws: int) -> Iterator[Rate]:
    """The rate of each claim under each null.

    Args:
      run: a run folder with real rewards.
      draws: draws of each null.
    """
    words = all_words(run)
    rng = np.random.default_rng(0)
    yield from _rates("random split", lambda: split_at_random(words, rng), rng, draws, each=True)
    yield from _rates("by meaning", lambda: of_several_kinds(words, rng), rng, draws, each=True)
    apart = _rates("stems taken apart", lambda: apart_by_word(words, rng), rng, draws)
    yield next(apart)
    often = frequencies(words)
    in_bands = partial(shuffled_in_bands, words, often, rng)
    yield from _rates("shuffled in bands of frequency", in_bands, rng, draws)
    yield from _rates("drawn numbers", lambda: made_up(words, rng), rng, draws)


def all_words(run: Run) -> Standing:
    """Words for groups of people, neutral words and those of the placebo kinds of a run."""
    people = lexicons.identity().with_columns(placebo=False)
    placebo = lexicons.placebo(besides=people).with_columns(placebo=True)
    terms = pl.concat([people, placebo])
    return standing([identity_words(run, run.vocabulary_models, terms)])


def split_at_random(words: Standing, rng: np.random.Generator) -> Standing:
    """One kind in place of the people, its stems split at random into two or three groups."""
    kinds = words.words.filter(placebo=True).group_by("axis", "group", maintain_order=True)
    large = kinds.agg(pl.col("stem").n_unique()).filter(pl.col("stem") >= _LEAST_STEMS)
    axis, group, _ = large.row(int(rng.integers(large.height)))
    rows = words.rows(placebo=True, axis=axis, group=group)
    units, unit = np.unique(words.words["unit"].to_numpy()[rows], return_inverse=True)
    named = np.array(["a", "b", "c"])[rng.permutation(len(units)) % rng.integers(2, 4)]
    return _instead_of_people(words, rows, named[unit])


def apart_by_word(words: Standing, rng: np.random.Generator) -> Standing:
    """`split_at_random`, then every word its own stem: what keeping stems together is for."""
    split = split_at_random(words, rng)
    table = split.words.drop("unit").with_columns(stem="word")
    numbers = {name: getattr(split, name) for name in ("tokens", "percentile", "adjusted")}
    return numbered(table, split.cells, numbers)


def of_several_kinds(words: Standing, rng: np.random.Generator) -> Standing:
    """The kinds of one axis in place of the people, with as many stems as groups of people."""
    axes = words.words.filter(placebo=True)["axis"].unique(maintain_order=True)
    axis = words.rows(placebo=True, axis=axes[int(rng.integers(len(axes)))])
    unit = words.words["unit"].to_numpy()
    rows = np.zeros_like(axis)
    for group in words.words["group"].to_numpy()[axis]:
        units = np.unique(unit[axis & words.rows(group=group)])
        chosen = rng.permutation(units)[: rng.integers(*_STEMS)]
        if not rows[np.isin(unit, units)].any():
            rows |= np.isin(unit, chosen)
    unused = axis & ~rows
    return _instead_of_people(words, rows, words.words["group"].to_numpy()[rows], unused)


def frequencies(words: Standing) -> Array:
    """How often each word [W] occurs in a million: the most frequent word of its stem."""
    joined = words.words.join(
        lexicons.frequency(), on="word", how="left", validate="m:1", maintain_order="left"
    )
    most = joined.select(pl.col("per_million").fill_null(0).max().over("unit"))
    return most.to_series().to_numpy()


def shuffled_in_bands(words: Standing, often: Array, rng: np.random.Generator) -> Standing:
    """The groups of one axis of people, their stems shuffled: frequent ones, and rare ones."""
    keep = _one_axis(words, rng)
    kept = words.words.filter(pl.Series(keep))
    rows = (~kept["placebo"] & (kept["group"] != lexicons.NEUTRAL)).to_numpy()
    units, first, unit = np.unique(
        kept["unit"].to_numpy()[rows], return_index=True, return_inverse=True
    )
    per_million = often[keep][rows][first]
    bands = per_million > np.median(per_million)
    groups = shuffled(kept["group"].to_numpy()[rows][first], bands, rng)
    named = kept["group"].to_numpy().copy()
    named[rows] = groups[unit]
    stems = kept["stem"].to_numpy().copy()
    stems[rows] = units[unit].astype(str)  # Stems of two groups stay two.
    table = kept.drop("unit").with_columns(group=pl.Series(named), stem=pl.Series(stems))
    numbers = {name: getattr(words, name)[keep] for name in ("tokens", "percentile", "adjusted")}
    return numbered(table, words.cells, numbers)


def made_up(words: Standing, rng: np.random.Generator) -> Standing:
    """Drawn numbers in place of the percentiles: of stems and of words, alike in all models."""
    unit = words.words["unit"].to_numpy()
    keep = _one_axis(words, rng)
    shape = words.percentile.shape
    drawn = rng.normal(0, 0.1, (unit.max() + 1, 1))[unit] + rng.normal(0, 0.05, (shape[0], 1))
    drawn = 0.5 + drawn + rng.normal(0, 0.05, shape)
    numbers = {"tokens": words.tokens, "percentile": drawn, "adjusted": drawn - 0.5}
    table = words.words.filter(pl.Series(keep))
    return numbered(table, words.cells, {name: values[keep] for name, values in numbers.items()})


def _one_axis(words: Standing, rng: np.random.Generator) -> Array:
    """All words but those for groups of other axes than one, which has groups that are tested."""
    people = words.words.filter(pl.col("group") != lexicons.NEUTRAL, placebo=False)
    sizes = people.group_by("axis", "group").len().filter(pl.col("len") >= LEAST_WORDS)
    axes = sizes["axis"].value_counts().filter(pl.col("count") > 1)["axis"].sort()
    axis = axes[int(rng.integers(len(axes)))]
    return ~words.rows(placebo=False) | words.rows(group=lexicons.NEUTRAL) | words.rows(axis=axis)


def _instead_of_people(
    words: Standing, rows: Array, groups: Array, unused: Array | None = None
) -> Standing:
    """The words `rows` as the groups of one axis of people, which leaves no other people."""
    table = words.words.with_row_index("row")
    new = pl.DataFrame({"row": np.flatnonzero(rows), "new": groups.astype(str)}).cast(
        {"row": pl.UInt32}
    )
    table = table.join(new, on="row", how="left", validate="1:1", maintain_order="left")
    table = table.with_columns(
        placebo=pl.col("placebo") & pl.col("new").is_null(),
        axis=pl.when(pl.col("new").is_null()).then("axis").otherwise(pl.lit("axis of people")),
        group=pl.coalesce("new", "group"),
    )
    gone = words.rows(placebo=False) & ~words.rows(group=lexicons.NEUTRAL)
    keep = ~gone if unused is None else ~(gone | unused)
    numbers = {name: getattr(words, name)[keep] for name in ("tokens", "percentile", "adjusted")}
    return numbered(table.drop("row", "new").filter(pl.Series(keep)), words.cells, numbers)


def _rates(
    null: str,
    draw: Callable[[], Standing],
    rng: np.random.Generator,
    draws: int,
    each: bool = False,
) -> Iterator[Rate]:
    """Rates of all claims: of one group of each draw, in a model and a prompt that are drawn too.

    Groups of one axis, and models, are not independent, so a draw counts once; with `each`, once
    in every model and prompt.
    """
    found = [estimate(draw(), rng, _PERMUTATIONS, _BOOTSTRAPS) for _ in range(draws)]
    single = pl.concat(_one_group(one.groups, ["model", "prompt"], rng) for one in found)
    over = pl.concat(_one_group(one.over_models, ["prompt"], rng) for one in found)
    over = over.with_columns(models_sure=pl.col("p_models") < 0.05)
    real = null in ("by meaning", "stems taken apart")
    for table, claims in ((single, _SINGLE), (over, _OVER)):
        for claim, column in claims.items():
            promises = column == "differs" or (column == "sure" and not real)
            nominal = 0.05 if promises else _NOTHING
            yield Rate.of(claim, null, table.filter("drawn")[column], nominal)
            if each and table is single:
                for (model, prompt), own in table.group_by("model", "prompt", maintain_order=True):
                    yield Rate.of(claim, f"{null}: {model}, {prompt}", own[column], nominal)


def _one_group(table: pl.DataFrame, keys: list[str], rng: np.random.Generator) -> pl.DataFrame:
    """One tested group of a draw in every cell, whether its p is below .05, and one cell drawn."""
    tested = table.filter(pl.col("p").is_not_nan())
    groups = tested.select("axis", "group").unique().sort("axis", "group")
    one = groups[[int(rng.integers(groups.height))]] if groups.height else groups
    own = tested.join(one, on=["axis", "group"], how="semi").sort(keys)
    drawn = np.arange(own.height) == (rng.integers(own.height) if own.height else 0)
    return own.with_columns(sure=pl.col("p") < 0.05, drawn=pl.Series(drawn, dtype=pl.Boolean))
