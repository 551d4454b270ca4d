"""Where the words of groups stand: one row per word, one column per model and prompt."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from analysis.statistics import Array
from analysis.words.lexicons import NEUTRAL

_CELL = ["model", "prompt"]
_WORD = ["placebo", "axis", "group", "form", "stem", "word"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """Words [W] under models and prompts [C]; NaN where a vocabulary lacks the word.

    The spellings of a word (" women", "Women") count as one, by their mean.

    Attributes:
      words: placebo (an ordinary word), axis, group, form, stem, word, unit (a number; equal for
        words of one stem in one group).
      cells: model, prompt.
      tokens: float64 [W, C], number of spellings.
      percentile: float64 [W, C], in the model's whole vocabulary, 0 to 1.
      adjusted: float64 [W, C], the percentile less the mean of neutral tokens of the same surface
        (leading space, capital); NaN too where there is no such token.
      distance: float64 [W, C], `adjusted` less the mean of neutral words of the same form; NaN too
        where there is no such word.
    """

    words: pl.DataFrame
    cells: pl.DataFrame
    tokens: Array
    percentile: Array
    adjusted: Array
    distance: Array

    def rows(self, **named: object) -> Array:
        """Which words have the given values in the named columns: bool [W]."""
        keep = np.ones(self.words.height, dtype=bool)
        for name, value in named.items():
            keep &= (self.words[name] == value).to_numpy()
        return keep

    @functools.cached_property
    def same_words(self) -> list[tuple[Array, Array, Array]]:
        """Cells that hold the same words, together.

        The words that they hold, bool [W]; those of them that have an adjusted percentile; and the
        indices of the cells.
        """
        there, known = (
            np.ascontiguousarray(~np.isnan(x.T)) for x in (self.percentile, self.adjusted)
        )
        cells: dict[bytes, list[int]] = {}
        for cell, words in enumerate(np.concatenate([there, known], axis=1)):
            cells.setdefault(words.tobytes(), []).append(cell)
        return [(there[at[0]], known[at[0]], np.array(at)) for at in cells.values()]


def standing(frames: Sequence[pl.DataFrame]) -> Standing:
    """Gathers the tokens of words by word.

    Args:
      frames: what `chapters.groups.identity_words` returns, split by model and prompt in any way.
        Without a column stem, a word is its own; without a column placebo, none is one.
    """
    each = [_by_word(frame) for frame in frames if frame.height]
    words = pl.concat(frame.select(_WORD) for frame in each).unique().sort(_WORD)
    cells = pl.concat(frame.select(_CELL).unique(maintain_order=True) for frame in each)
    shape = (words.height, cells.height)
    filled = {name: np.full(shape, np.nan) for name in ("tokens", "percentile", "adjusted")}
    places = words.with_row_index("row")
    columns = cells.with_row_index("column")
    for frame in each:
        at = frame.join(places, on=_WORD, how="left", validate="m:1", maintain_order="left")
        at = at.join(columns, on=_CELL, how="left", validate="m:1", maintain_order="left")
        where = (at["row"].to_numpy(), at["column"].to_numpy())
        for name, values in filled.items():
            values[where] = at[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
    return numbered(words, cells, filled)


def numbered(words: pl.DataFrame, cells: pl.DataFrame, numbers: Mapping[str, Array]) -> Standing:
    """A `Standing` of known numbers.

    Args:
      words: placebo, axis, group, form, stem, word.
      cells: model, prompt.
      numbers: tokens, percentile and adjusted, float64 [W, C].
    """
    units = pl.struct("placebo", "axis", "group", "stem").rank("dense")
    return Standing(
        words=words.with_columns(unit=units),
        cells=cells,
        tokens=numbers["tokens"],
        percentile=numbers["percentile"],
        adjusted=numbers["adjusted"],
        distance=_beside_neutral(words, numbers["adjusted"]),
    )


def _by_word(tokens: pl.DataFrame) -> pl.DataFrame:
    """One row per word and cell: how many spellings, their mean, and their adjusted mean."""
    missing = {"stem": pl.col("word"), "placebo": pl.lit(False)}
    tokens = tokens.with_columns(
        **{name: value for name, value in missing.items() if name not in tokens.columns}
    )
    neutral = tokens.filter(group=NEUTRAL).group_by(*_CELL, "surface")
    centre = neutral.agg(centre=pl.col("percentile").mean())
    joined = tokens.join(
        centre, on=[*_CELL, "surface"], how="left", validate="m:1", maintain_order="left"
    )
    folded = joined.with_columns(
        pl.col("word", "stem").str.to_lowercase(),
        adjusted=pl.col("percentile") - pl.col("centre"),
    )
    return folded.group_by(*_CELL, *_WORD, maintain_order=True).agg(
        tokens=pl.len(), percentile=pl.col("percentile").mean(), adjusted=pl.col("adjusted").mean()
    )


def _beside_neutral(words: pl.DataFrame, adjusted: Array) -> Array:
    distance = np.full(adjusted.shape, np.nan)
    neutral = (words["group"] == NEUTRAL).to_numpy()
    for form in words["form"].unique(maintain_order=True):
        own = (words["form"] == form).to_numpy()
        known = ~np.isnan(adjusted[neutral & own])
        count = known.sum(axis=0)
        total = np.where(known, adjusted[neutral & own], 0.0).sum(axis=0)
        centre = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
        distance[own] = adjusted[own] - centre
    return distance
