"""Where the words of groups stand: one row per word, one column per model and prompt."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis.statistics import Array
from analysis.words.lexicons import NEUTRAL

_CELL = ["model", "prompt"]
_WORD = ["placebo", "axis", "group", "form", "stem", "word"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """Words [W] under models and prompts [C]; float64 [W, C], NaN where a vocabulary lacks a word.

    The spellings of a word (" women", "Women") count as one, by their mean.
    """

    # Placebo (an ordinary word), axis, group, form, stem, word, unit (a number; equal for words of
    # one stem in one group).
    words: pl.DataFrame
    cells: pl.DataFrame  # model, prompt
    tokens: Array  # number of spellings
    percentile: Array  # in the model's whole vocabulary, 0 to 1
    # The percentile less the mean of neutral tokens of the same surface (leading space, capital);
    # NaN too where there is no such token.
    adjusted: Array
    # `adjusted` less the mean of neutral words of the same form; NaN too where there is no such
    # word.
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

    `frames` are what `chapters.groups.identity_words` returns, split by model and prompt in any
    way. Without a column stem, a word is its own; without a column placebo, none is one.
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
    units = pl.struct("placebo", "axis", "group", "stem").rank("dense")
    distance = _beside_neutral(words, filled["adjusted"])
    return Standing(words=words.with_columns(unit=units), cells=cells, distance=distance, **filled)


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
        pl.col("word", "stem").str.to_lowercase(), adjusted=pl.col("percentile") - pl.col("centre")
    )
    return folded.group_by(*_CELL, *_WORD, maintain_order=True).agg(
        tokens=pl.len(), percentile=pl.col("percentile").mean(), adjusted=pl.col("adjusted").mean()
    )


def _beside_neutral(words: pl.DataFrame, adjusted: Array) -> Array:
    distance = np.full(adjusted.shape, np.nan)
    neutral = (words["group"] == NEUTRAL).to_numpy()
    for form in words["form"].unique(maintain_order=True):
        rows = (words["form"] == form).to_numpy()
        distance[rows] = adjusted[rows] - known_mean(adjusted[neutral & rows])
    return distance


def known_mean(x: Array) -> Array:
    """Mean over the rows of `x` [N, C] that are not NaN; [C], NaN where all are."""
    known = ~np.isnan(x)
    count = known.sum(axis=0)
    total = np.where(known, x, 0.0).sum(axis=0)
    return np.asarray(np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0))
