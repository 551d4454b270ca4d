"""Lists, numbers and significant effects as sentences and tables of the page have them."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from analysis.statistics import Array

ALPHA = 0.05  # Sentences are about effects with a q below it.
_ENDS = ("_low", "_high")


def listed(words: Sequence[str], last: str = "and") -> str:
    """`words` as an English list."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def alike(rows: Sequence[Sequence[str]]) -> int:
    """How many parts all of several rows have at their start; one part of each is not counted."""
    columns = zip(*(row[:-1] for row in rows), strict=False)
    same = itertools.takewhile(lambda column: len(set(column)) == 1, columns)
    return len(list(same)) if len(rows) > 1 else 0


def shortened(texts: Sequence[str]) -> list[str]:
    """`texts` without the words with which all of them begin; the last word of each stays."""
    words = [text.split(" ") for text in texts]
    same = alike(words)
    return [" ".join(["…", *parts[same:]]) for parts in words] if same else list(texts)


def count(number: int, what: str, several: str = "") -> str:
    """A number of things: "1 pair", "3 pairs"."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"


def part_of(number: int, whole: int, what: str) -> str:
    """How many of a whole: "3 of 5 models", "all 5 models", "both models", "the one model"."""
    if number < whole:
        return f"{number:,} of {whole:,} {what}s"
    return {1: f"the one {what}", 2: f"both {what}s"}.get(whole, f"all {whole:,} {what}s")


_SIZES = {
    0.01: "a hundredth of a standard deviation",
    0.02: "a fiftieth of a standard deviation",
    0.05: "a twentieth of a standard deviation",
    0.1: "a tenth of a standard deviation",
    0.2: "a fifth of a standard deviation",
    0.333: "a third of a standard deviation",
    0.5: "half a standard deviation",
    1.0: "one standard deviation",
    2.0: "two standard deviations",
}


def deviations(value: float) -> str:
    """A number of standard deviations in plain words: "about a tenth of a standard deviation"."""
    size = abs(value)
    if size < min(_SIZES) / 1.5:
        return f"less than {_SIZES[min(_SIZES)]}"
    if size > max(_SIZES) * 1.25:
        return f"about {size:.0f} standard deviations"
    return f"about {_SIZES[min(_SIZES, key=lambda known: abs(math.log(known / size)))]}"


def minus(text: str) -> str:
    """`text` with a true minus sign in place of each hyphen."""
    return text.replace("-", "−")


def decimals(value: float) -> str:
    """A number with two decimals and a true minus sign."""
    return minus(f"{value:.2f}")


def beside(value: float, limit: float, places: int = 3) -> str:
    """A number with `places` decimals, or as many as show that its size is not the limit's."""
    size = abs(value)
    while places < 16 and size != abs(limit) and round(size, places) == abs(limit):
        places += 1
    return minus(f"{value:.{places}f}")


def outward(value: float, up: bool, places: int) -> float:
    """A bound that `places` decimals can print, at or above `value` for `up`, else at or below."""
    if not math.isfinite(value):
        return value
    scale = 10.0**places
    away = math.ceil if up else math.floor
    return away(round(value * scale, 6)) / scale + 0.0  # no negative zero


def bounds(low: float, high: float, places: int = 2) -> str:
    """Both ends of an interval, rounded outward: "0.12 to 0.46" holds .123 to .457."""
    rounded = (outward(end, up, places) for end, up in ((low, False), (high, True)))
    return minus(" to ".join(f"{end:.{places}f}" for end in rounded))


def span(values: Array, places: int = 2) -> str:
    """Lowest to highest of `values` [N], as a table rounds them; one number for equal ones."""
    low, high = (
        f"{round(float(end), places) + 0.0:.{places}f}" for end in (values.min(), values.max())
    )
    return minus(low if low == high else f"{low} to {high}")


def q_value(q: float | None) -> str:
    """A q as papers print it: "q = .012", "q < .001"; "q undefined" where there is none."""
    if q is None or q != q:
        return "q undefined"
    return "q < .001" if q < 0.001 else f"q = {q:.3f}".replace("0.", ".")


def number(value: float | None, form: str = "{:.4g}") -> str:
    """A number for a reader: a true minus sign, and a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return minus(form.format(value))


def cell(value: Any, kind: str, key: str = "") -> str:  # Any: an entry of a table
    """An entry of a table for a reader; `kind` as `blocks.Column` has it.

    Ends of intervals, whose `key` ends with "_low" or "_high", are rounded outward.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if kind == "bool":
        return "yes" if value else "no"
    if kind == "p":
        return "< .001" if value < 0.001 else f"{value:.3f}".removeprefix("0")
    if key.endswith(_ENDS) and kind in ("share", "fixed", "number"):
        return _end(float(value), kind, key.endswith(_ENDS[1]))
    if kind == "share":
        return number(100 * value, "{:.1f} %")
    if kind == "count":
        return number(value, "{:,.0f}" if float(value).is_integer() else "{:,.1f}")
    if kind == "fixed":
        return number(value, "{:.3f}")
    return number(value) if kind == "number" else str(value)


def _end(value: float, kind: str, up: bool) -> str:
    """The end of an interval, with as many digits as `cell` prints."""
    if kind == "share":
        return number(outward(100 * value, up, 1), "{:.1f} %")
    if kind == "fixed":
        return number(outward(value, up, 3), "{:.3f}")
    size = abs(value)
    return number(outward(value, up, 3 - math.floor(math.log10(size))) if size else value)


def significant(table: pl.DataFrame, q: str = "q") -> pl.DataFrame:
    """The rows of `table` whose q is below 0.05; a q that is not defined is not.

    Args:
      table: one row per test.
      q: name of the column of q; Polars puts NaN above every number.
    """
    return table.filter(pl.col(q) < ALPHA)


def counted(part: pl.DataFrame, value: str, above: str, below: str, and_below: str) -> str | None:
    """In how many models an effect is sure, by its direction.

    Args:
      part: one row per model, with the column q.
      value: column of the effect.
      above: what a value above 0 means, such as "reward rises with valence".
      below: what one below it means, such as "reward falls with valence".
      and_below: the same after "and", such as "falls".

    Returns:
      Such as "reward rises with valence in 3 of 5 models and falls in 1" (no "in" of a single
      model); None where no effect is sure.
    """
    known = part.filter(pl.col(value).is_not_nan() & pl.col(value).is_not_null()).height
    certain = significant(part)
    up = certain.filter(pl.col(value) > 0).height
    down = certain.filter(pl.col(value) < 0).height
    if up and down:
        return f"{above} in {part_of(up, known, 'model')} and {and_below} in {down}"
    if not up and not down:
        return None
    where = f" in {part_of(up or down, known, 'model')}" if part.height > 1 else ""
    return f"{above if up else below}{where}"


def unclear(table: pl.DataFrame, what: str) -> str:
    """That no row of `table` is significant; "" where one is, or none has a q.

    Args:
      table: one row per test, with the column q.
      what: what is tested, in the plural, such as "slopes".
    """
    known = table["q"].fill_nan(None).drop_nulls().to_numpy()
    if not len(known) or significant(table).height:
        return ""
    lowest = q_value(float(known.min()))
    if len(known) == 1:
        return f"No {what} are significant ({lowest})."
    return f"None of {len(known)} {what} is significant (lowest {lowest})."
