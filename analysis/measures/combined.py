"""The sum and the difference of what is given under a good and a bad prompt."""

from typing import Literal, TypeAlias

import polars as pl

Combined: TypeAlias = Literal["sum", "difference"]
COMBINED: tuple[Combined, ...] = ("sum", "difference")
_BAD = " (bad)"  # no slug has a space


def combined(good: pl.DataFrame, bad: pl.DataFrame, how: Combined) -> pl.DataFrame:
    """The sum or the difference of two tables of numbers, on the keys that both have.

    Args:
      good: a key without duplicates (such as token_id), then columns of numbers.
      bad: the same under the other prompt.
      how: "sum", or "difference" (good less bad).

    Returns:
      The key, and the columns that both have, float64; sorted by the key.
    """
    key, *names = good.columns
    names = [name for name in names if name in bad.columns]
    both = good.join(bad, on=key, how="inner", validate="1:1", suffix=_BAD).sort(key)
    sign = 1 if how == "sum" else -1
    return both.select(
        key,
        *(pl.col(n).cast(pl.Float64) + sign * pl.col(n + _BAD).cast(pl.Float64) for n in names),
    )
