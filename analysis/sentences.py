"""Lists and numbers as sentences and tables of the page have them."""

import math
from collections.abc import Sequence
from typing import Any

from analysis.statistics import Array

_ENDS = ("_low", "_high")


def listed(words: Sequence[str]) -> str:
    """`words` as an English list."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def count(number: int, what: str) -> str:
    """A number of things: "1 pair", "3 pairs"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


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


def at_most(width: float) -> str:
    """A bound with three decimals, rounded up: .01213 is at most 0.013."""
    return f"{outward(width, True, 3):.3f}"


def bounds(low: float, high: float, places: int = 2) -> str:
    """Both ends of an interval, rounded outward: "0.12 to 0.46" holds .123 to .457."""
    both = (outward(end, up, places) for end, up in ((low, False), (high, True)))
    return minus(" to ".join(f"{end:.{places}f}" for end in both))


def span(values: Array, places: int = 2) -> str:
    """Lowest to highest of `values` [N], rounded outward; one number for equal ones."""
    low, high = float(values.min()), float(values.max())
    return minus(f"{low:.{places}f}") if low == high else bounds(low, high, places)


def p_value(p: float | None) -> str:
    """A p as papers print it: "p = .018", "p < .001"; "p undefined" where there is none."""
    if p is None or p != p:
        return "p undefined"
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".")


def q_value(q: float | None) -> str:
    """A q as papers print it: "q = .012", "q < .001"; "q undefined" where there is none."""
    return p_value(q).replace("p", "q", 1)


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
