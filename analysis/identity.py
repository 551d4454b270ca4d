"""Where words for groups of people stand in a model's vocabulary, against words like them."""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from analysis import lexicons, matching, resampling
from analysis.load import Run
from engine.runs.schema import Columns

_TABLE: Columns = {
    "model": pl.String,
    "prompt": pl.String,
    "group": pl.String,
    "axis": pl.String,
    "n": pl.Int64,
    "mean_percentile": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "difference": pl.Float64,
    "p": pl.Float64,
}
_KEYS = ["model", "prompt"]


def identity_words(run: Run, models: Sequence[str], terms: pl.DataFrame) -> pl.DataFrame:
    """Tokens that name a group of people, or are neutral, with their percentiles.

    Args:
      run: the run.
      models: slugs in the order of the rows.
      terms: what `lexicons.identity` returns.

    Returns:
      model, prompt, token_id, token, word, group, axis, form, surface, reward, percentile (of
      the token in the model's whole vocabulary, 0 to 1; 1 is the best reply).
    """
    return matching.points(
        run, models, lambda vocab: lexicons.match_cased(vocab, terms), percentile=True
    )


def identity_groups(
    words: pl.DataFrame,
    rng: np.random.Generator,
    permutations: int = 9_999,
    bootstraps: int = 2_000,
) -> pl.DataFrame:
    """Mean percentile of each group, its interval, and whether it differs from neutral words.

    The unit is the word: its spellings (" women", "Women") count as one, by their mean. The
    interval is a bootstrap over the group's words. The test permutes which words are the group's,
    among words of one form (singular, plural, adjective, abstract), after the mean of neutral
    tokens of the same surface (leading space, capital) is taken from each token; so plurals are
    held against plurals, and " Germans" against " Residents".

    Args:
      words: what `identity_words` returns.
      rng: of permutations and bootstrap.
      permutations: draws of the test.
      bootstraps: draws of the interval.

    Returns:
      model, prompt, group, axis, n (tokens), mean_percentile, ci_low, ci_high (95 %), difference
      (of the mean percentile from that of the neutral words it is tested against), p (two-sided;
      both NaN where no neutral word is like the group's). In the order of `words`, then by axis
      and group.
    """
    if words.height == 0:
        return pl.DataFrame(schema=_TABLE)
    frames = []
    for cells, labels, percentile, adjusted in _by_words(words):
        frames += _tests(cells, labels, percentile, adjusted, rng, permutations, bootstraps)
    order = words.select(_KEYS).unique(maintain_order=True).with_row_index("place")
    table = pl.DataFrame(frames, schema=_TABLE).join(order, on=_KEYS, how="left", validate="m:1")
    return table.sort("place", "axis", "group").drop("place")


def with_q(table: pl.DataFrame) -> pl.DataFrame:
    """`table` with q beside its p: Benjamini and Hochberg's, over all rows."""
    q = resampling.benjamini_hochberg(table["p"].to_numpy())
    return table.with_columns(q=pl.Series(q, dtype=pl.Float64))


Batch = tuple[pl.DataFrame, pl.DataFrame, np.ndarray, np.ndarray]


def _by_words(words: pl.DataFrame) -> Iterator[Batch]:
    """Cells (model, prompt) that hold the same words, together, as one test serves them all.

    Yields the cells [C], the words with group, axis, form and tokens [W], and float64 [W, C] of
    the mean percentile and of the mean percentile beside neutral tokens of the same surface.
    """
    neutral = words.filter(group=lexicons.NEUTRAL).group_by(*_KEYS, "surface")
    centre = neutral.agg(centre=pl.col("percentile").mean())
    joined = words.join(centre, on=[*_KEYS, "surface"], how="left", validate="m:1")
    joined = joined.with_columns(beside=pl.col("percentile") - pl.col("centre"))
    unit: list[str | pl.Expr] = ["axis", "group", "form", pl.col("word").str.to_lowercase()]
    each = joined.group_by(*_KEYS, *unit, maintain_order=True).agg(
        tokens=pl.len(), percentile=pl.col("percentile").mean(), beside=pl.col("beside").mean()
    )
    names = ["axis", "group", "form", "word", "tokens"]
    each = each.sort(*_KEYS, *names)
    cells = each.group_by(_KEYS, maintain_order=True).agg(*names, "percentile", "beside")
    for _, batch in cells.group_by(*names, maintain_order=True):
        labels = batch.head(1).explode(*names, "percentile", "beside").select(names)
        yield (
            batch.select(_KEYS),
            labels,
            np.array(batch["percentile"].to_list(), dtype=np.float64).T,
            np.array(batch["beside"].to_list(), dtype=np.float64).T,
        )


def _tests(
    cells: pl.DataFrame,
    labels: pl.DataFrame,
    percentile: np.ndarray,
    adjusted: np.ndarray,
    rng: np.random.Generator,
    permutations: int,
    bootstraps: int,
) -> list[dict]:
    rows = []
    neutral = (labels["group"] == lexicons.NEUTRAL).to_numpy()
    form = labels["form"].to_numpy()
    for (axis, group), own in labels.group_by("axis", "group", maintain_order=True):
        mine = ((labels["group"] == group) & (labels["axis"] == axis)).to_numpy()
        known = (mine | neutral) & ~np.isnan(adjusted).any(axis=1)
        tested = group != lexicons.NEUTRAL
        difference, p = (
            resampling.stratified_test(adjusted[known], mine[known], form[known], rng, permutations)
            if tested
            else np.full((2, cells.height), np.nan)
        )
        for c, (model, prompt) in enumerate(cells.iter_rows()):
            values = percentile[mine, c]
            low, high = resampling.bootstrap_mean(values, rng, bootstraps)
            ends = (max(low, 0.0), min(high, 1.0)) if len(values) > 1 else (low, high)
            numbers = (int(own["tokens"].sum()), float(values.mean()), *ends)
            numbers += (float(difference[c]), float(p[c]))
            keys = (model, prompt, group, axis)
            rows.append(dict(zip(_TABLE, (*keys, *numbers), strict=True)))
    return rows
