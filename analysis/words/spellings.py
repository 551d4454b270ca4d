"""Which tokens are spellings of one word."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

WORD = r"^[ _▁]?[\p{L}\p{M}][\p{L}\p{M}'’-]+$"
STARTS = r"^[ _▁]"  # Where a tokenizer marks the starts of words, other tokens are mostly endings.
_Texts = TypeVar("_Texts", pl.Series, pl.Expr)


def words(tokens: pl.Series) -> npt.NDArray[np.int64]:
    """Number of the word of each token; spellings that differ by case and outer spaces share it.

    Args:
      tokens: text of each token [N].

    Returns:
      int64 [N], from 0 without gaps.
    """
    return dense_numbers(folded(tokens))


def folded(tokens: _Texts) -> _Texts:
    """The tokens (a series, or an expression) in lower case, without outer spaces."""
    return tokens.str.strip_chars().str.to_lowercase()


def dense_numbers(labels: pl.Series) -> npt.NDArray[np.int64]:
    """Number of each label [N]; int64 [N], from 0 without gaps."""
    return labels.rank("dense").cast(pl.Int64).to_numpy() - 1
