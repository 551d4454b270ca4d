"""Lists and numbers as sentences of the page have them."""

import math
from collections.abc import Sequence

from analysis.statistics import Array


def listed(words: Sequence[str]) -> str:
    """`words` as an English list."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def count(number: int, what: str, several: str = "") -> str:
    """A number of things: "1 pair", "3 pairs"."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"


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
    both = (outward(end, up, places) for end, up in ((low, False), (high, True)))
    return minus(" to ".join(f"{end:.{places}f}" for end in both))


def span(values: Array, places: int = 2) -> str:
    """Lowest to highest of `values` [N], rounded outward; one number for equal ones."""
    low, high = float(values.min()), float(values.max())
    return minus(f"{low:.{places}f}") if low == high else bounds(low, high, places)


def q_value(q: float | None) -> str:
    """A q as papers print it: "q = .012", "q < .001"; "q undefined" where there is none."""
    if q is None or q != q:
        return "q undefined"
    return "q < .001" if q < 0.001 else f"q = {q:.3f}".replace("0.", ".")
