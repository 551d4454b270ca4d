"""Effects that differ from zero after correction for many tests, counted in words."""

import polars as pl

from analysis.sentences import q_value

ALPHA = 0.05


def significant(table: pl.DataFrame, q: str = "q") -> pl.DataFrame:
    """The rows of `table` whose q is below 0.05; a q that is not defined is not.

    Args:
      table: one row per test.
      q: name of the column of q; Polars puts NaN above every number.
    """
    return table.filter(pl.col(q) < ALPHA)


def counted(
    part: pl.DataFrame, value: str, above: str, below: str, and_below: str, zero: float = 0.0
) -> str | None:
    """In how many models an effect is sure, by its direction.

    Args:
      part: one row per model, with the column q.
      value: column of the effect.
      above: what a value above `zero` means, such as "reward rises with valence".
      below: what one below it means, such as "reward falls with valence".
      and_below: the same after "and", such as "falls".
      zero: the value without an effect.

    Returns:
      Such as "reward rises with valence in 3 of 5 models and falls in 1"; None where no effect is
      sure.
    """
    known = part.filter(pl.col(value).is_not_nan() & pl.col(value).is_not_null()).height
    certain = significant(part)
    up = certain.filter(pl.col(value) > zero).height
    down = certain.filter(pl.col(value) < zero).height
    if up and down:
        return f"{above} in {up} of {known} models and {and_below} in {down}"
    if not up and not down:
        return None
    where = f"{up or down} of {known} models" if known > 1 else "the one model"
    return f"{above if up else below} in {where}"


def unclear(table: pl.DataFrame, what: str, q: str = "q") -> str:
    """That no row of `table` differs from chance; "" where one does, or none has a q.

    Args:
      table: one row per test.
      what: is tested, in the plural, such as "slopes".
      q: name of the column of q.
    """
    known = table[q].fill_nan(None).drop_nulls().to_numpy()
    if not len(known) or significant(table, q).height:
        return ""
    lowest = q_value(float(known.min()))
    return f"None of {len(known)} {what} is told apart from chance (lowest {lowest})."
