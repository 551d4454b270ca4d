"""Is a value the published one? Pure functions of numbers and lists.

There are four verdicts: the same to the printed digit; the same within the noise that was measured
between two dtypes; different, with the convention that explains it where one does; not run, and
why.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

SAME = "same"
NOISE = "within noise"
DIFFERS = "differs"
NOT_RUN = "not run"
KINDS = (SAME, NOISE, DIFFERS, NOT_RUN)

_SLACK = 1e-9  # of binary fractions: 0.0005 and the like


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One of `KINDS`, and why, as a part of a sentence; "" where nothing is to be said."""

    kind: str
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A token of a ranked list.

    Attributes:
      key: what it is known by: its text, or its id.
      score: its number in that list; None where it is not known.
      text: its text, where the key is its id.
    """

    key: str
    score: float | None = None
    text: str = ""


def of_number(
    published: float,
    within: float,
    own: float | None,
    *,
    noise: float | None = None,
    others: Mapping[str, float | None] | None = None,
    explained: str = "",
    missing: str = "",
) -> Verdict:
    """Compares a number with the published one.

    Args:
      published: the printed number.
      within: half a unit of its last digit.
      own: the same number of a run; None where there is none.
      noise: how far the number moves between two dtypes; None where that was not measured.
      others: name of another reading of the same run -> its number.
      explained: what an analysis of conventions says about the difference; "" for nothing.
      missing: why there is no number.
    """
    if own is None:
        return Verdict(NOT_RUN, missing)
    if _close(own, published, within):
        return Verdict(SAME)
    if noise is not None and _close(own, published, within + noise):
        return Verdict(NOISE, f"two dtypes differ by {noise:.2g}")
    nearer = [
        name
        for name, value in (others or {}).items()
        if value is not None and _close(value, published, within)
    ]
    return Verdict(DIFFERS, _because(nearer, explained))


def of_list(
    published: Sequence[Entry],
    own: Sequence[Entry] | None,
    *,
    descending: bool,
    noise: int | None = None,
    others: Mapping[str, Sequence[Entry] | None] | None = None,
    explained: str = "",
    missing: str = "",
) -> Verdict:
    """Compares a ranked list of tokens with the published one.

    The lists are the same where they hold the same tokens in the same order; tokens of equal number
    may stand in any order.

    Args:
      published: the printed list, the extreme first.
      own: the list of a run, with numbers, at least as long; None where there is none.
      descending: whether the first has the highest number.
      noise: tokens that have another rank in another dtype; None where that was not measured.
      others: name of another reading of the same run -> its list.
      explained: as for `of_number`.
      missing: why there is no list.
    """
    if own is None:
        return Verdict(NOT_RUN, missing)
    if same_order(published, own, descending=descending):
        return Verdict(SAME)
    moved = len(published) - at_their_rank(published, own)
    if noise is not None and moved <= noise:
        return Verdict(NOISE, f"{noise} of {len(published)} have another rank in another dtype")
    nearer = [
        name
        for name, entries in (others or {}).items()
        if entries is not None and same_order(published, entries, descending=descending)
    ]
    return Verdict(DIFFERS, _because(nearer, explained))


def same_order(published: Sequence[Entry], own: Sequence[Entry], *, descending: bool) -> bool:
    """Whether a list is the published one, up to the order of equal numbers."""
    places = _places(published, own)
    if any(place is None for place in places) or len(own) < len(published):
        return False
    numbers = [own[place].score for place in places if place is not None]
    if any(number is None for number in numbers):
        return places == list(range(len(published)))
    sign = -1.0 if descending else 1.0
    found = [sign * number for number in numbers if number is not None]
    last = own[len(published) - 1].score
    in_order = all(a <= b for a, b in itertools.pairwise(found))
    return in_order and last is not None and found[-1] == sign * last


def shared(published: Sequence[Entry], own: Sequence[Entry]) -> int:
    """How many published tokens stand among the first of another list, as many as are printed."""
    first = _places(published, own[: len(published)])
    return sum(place is not None for place in first)


def at_their_rank(published: Sequence[Entry], own: Sequence[Entry]) -> int:
    """How many of the published tokens have the same rank in another list."""
    return sum(a.key == b.key for a, b in zip(published, own, strict=False))


def _places(published: Sequence[Entry], own: Sequence[Entry]) -> list[int | None]:
    """Place of each published token in a list; a repeated one has a place for each time."""
    free: dict[str, list[int]] = {}
    for place, entry in enumerate(own):
        free.setdefault(entry.key, []).append(place)
    return [free[e.key].pop(0) if free.get(e.key) else None for e in published]


def _close(value: float, published: float, within: float) -> bool:
    if math.isnan(value) or math.isnan(published):
        return math.isnan(value) and math.isnan(published)
    return abs(value - published) <= within + _SLACK * max(1.0, abs(published))


def _because(nearer: Sequence[str], explained: str) -> str:
    said = [f"the same in {' and in '.join(nearer)}"] if nearer else []
    return "; ".join([*said, *([explained] if explained else [])])
