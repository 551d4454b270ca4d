"""Lists and numbers as sentences of the page have them."""

import math
from collections.abc import Sequence

from analysis.statistics import Array


def listed(words: Sequence[str]) -> str:
    """`words` as an English list."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def decimals(value: float) -> str:
    """A number with two decimals and a true minus sign."""
    return minus(f"{value:.2f}")


def beside(value: float, limit: float, places: int = 3) -> str:
    """A number with `places` decimals, or as many as show that its size is not the limit's."""
    size = abs(value)
    while places < 16 and size != abs(limit) and round(size, places) == abs(limit):
        places += 1
    return minus(f"{value:.{places}f}")


def at_most(width: float) -> str:
    """A bound with three decimals, rounded up: .01213 is at most 0.013."""
    return f"{math.ceil(round(1000 * width, 6)) / 1000:.3f}"


def span(values: Array) -> str:
    """Lowest to highest of `values` [N], such as "0.20 to 0.31"; one number for equal ones."""
    return " to ".join(dict.fromkeys((decimals(values.min()), decimals(values.max()))))


def q_value(q: float | None) -> str:
    """A q as papers print it: "q = .012", "q < .001"; "q undefined" where there is none."""
    return p_value(q).replace("p", "q", 1)


def p_value(p: float | None) -> str:
    """A p-value as papers print it: "p = .018", "p < .001"; "p undefined" where there is none."""
    if p is None or p != p:
        return "p undefined"
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".")


def minus(text: str) -> str:
    """`text` with a true minus sign in place of each hyphen."""
    return text.replace("-", "−")
