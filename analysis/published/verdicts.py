"""Is a value the published one? Pure functions of numbers and lists.

There are four verdicts: the same to the printed digit; the same within the noise that was measured
between two dtypes; different, with the other readings that give the value where some do; not run,
and why.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", int, float)

SAME = "same"
NOISE = "within noise"
DIFFERS = "differs"
NOT_RUN = "not run"
KINDS = (SAME, NOISE, DIFFERS, NOT_RUN)

_SLACK = 1e-9  # of binary fractions: 0.0005 and the like


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Attributes:
      kind: one of `KINDS`.
      why: the reason, as a part of a sentence; "" where nothing is to be said.
      tried: readings that change one convention, of which there is a value.
      met: those of them that give the published value, to the printed digit or within noise.
    """

    kind: str
    why: str = ""
    tried: tuple[str, ...] = ()
    met: tuple[str, ...] = ()


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
    computed: float | None,
    *,
    noise: float | None = None,
    others: Mapping[str, float | None] | None = None,
    singles: Mapping[str, float | None] | None = None,
    missing: str = "",
) -> Verdict:
    """Compares a number with the published one.

    Args:
      published: the printed number.
      within: half a unit of its last digit.
      computed: the same number of a run; None where there is none.
      noise: how far the number moves between two dtypes; None where that was not measured.
      others: name of another reading of the same run -> its number.
      singles: name of a reading that changes one convention -> its number.
      missing: why there is no number.
    """
    if computed is None:
        return Verdict(NOT_RUN, missing)
    found = {name: value for name, value in (singles or {}).items() if value is not None}
    met = [name for name, value in found.items() if _close(value, published, within)]
    reach = within + (noise or 0.0)
    near = [n for n, value in found.items() if n not in met and _close(value, published, reach)]
    tries = _Tries(tuple(found), met, near)
    if _close(computed, published, within):
        return tries.of(SAME)
    if noise is not None and _close(computed, published, within + noise):
        return tries.of(NOISE, f"two dtypes differ by {noise:.2g}")
    nearer = [
        name
        for name, value in (others or {}).items()
        if value is not None and _close(value, published, within)
    ]
    return tries.of(DIFFERS, _because(nearer))


def of_list(
    published: Sequence[Entry],
    computed: Sequence[Entry] | None,
    *,
    descending: bool,
    noise: Sequence[Entry] | None = None,
    others: Mapping[str, Sequence[Entry] | None] | None = None,
    singles: Mapping[str, Sequence[Entry] | None] | None = None,
    missing: str = "",
) -> Verdict:
    """Compares a ranked list of tokens with the published one.

    The lists are the same where they hold the same tokens in the same order; tokens of equal
    number, printed or of the run, may stand in any order. They differ within noise where they share
    no fewer tokens than the lists of two dtypes, which is half of them or more, and no token is
    further from its rank; or where the published list is that of the other dtype, of which tied
    tokens may stand in any order.

    Args:
      published: the printed list, the extreme first; with numbers where they are printed.
      computed: the list of a run, with numbers, at least as long; None where there is none.
      descending: whether the first has the highest number.
      noise: the list in another dtype; None where that was not measured.
      others: name of another reading of the same run -> its list.
      singles: name of a reading that changes one convention -> its list.
      missing: why there is no list.
    """
    if computed is None:
        return Verdict(NOT_RUN, missing)
    common, shift = 0, 0
    if noise is not None:
        first = _tied_as(noise, computed, descending=descending)
        second = _tied_as(first, noise, descending=descending)
        common, shift = _apart(first, second, len(published))

    def is_near(other: Sequence[Entry]) -> bool:
        ordered, half = _tied_as(published, other, descending=descending), len(published) / 2
        enough = half <= common <= shared(published, ordered)
        return enough and largest_shift(published, ordered) <= shift

    found = {name: other for name, other in (singles or {}).items() if other is not None}
    met = [n for n, one in found.items() if same_order(published, one, descending=descending)]
    near = [name for name, other in found.items() if name not in met and is_near(other)]
    tries = _Tries(tuple(found), met, near)
    if same_order(published, computed, descending=descending):
        return tries.of(SAME, "" if at_their_rank(published, computed) == len(published) else _TIED)
    if is_near(computed):
        return tries.of(
            NOISE,
            f"two dtypes share {common} of {len(published)} tokens, at most {shift} "
            f"{'rank' if shift == 1 else 'ranks'} apart",
        )
    if 2 * common >= len(published) and same_order(published, noise or (), descending=descending):
        return tries.of(NOISE, "the same in the other of two dtypes")
    nearer = [
        name
        for name, entries in (others or {}).items()
        if entries is not None and same_order(published, entries, descending=descending)
    ]
    return tries.of(DIFFERS, _because(nearer))


def _tied_as(
    pattern: Sequence[Entry], listed: Sequence[Entry], *, descending: bool
) -> Sequence[Entry]:
    """A list in which tokens of equal number stand in the order of another list."""
    sign = -1.0 if descending else 1.0
    ranks = [len(pattern) if rank is None else rank for rank in _places(listed, pattern)]
    pairs = zip(listed, ranks, strict=True)
    keyed = [(sign * one.score, rank, one) for one, rank in pairs if one.score is not None]
    if len(keyed) < len(listed):
        return listed
    return [one for *_, one in sorted(keyed, key=lambda key: key[:2])]


def _apart(computed: Sequence[Entry], noise: Sequence[Entry], count: int) -> tuple[int, int]:
    """Tokens that the lists of two dtypes share, and the largest shift from either to the other."""
    first, other = computed[:count], noise[:count]
    return shared(first, noise), max(largest_shift(first, noise), largest_shift(other, computed))


@dataclasses.dataclass(frozen=True)
class _Tries:
    """What readings that change one convention give: all, those that meet a value, and nearly."""

    names: tuple[str, ...]
    met: Sequence[str]
    near: Sequence[str]

    def of(self, kind: str, why: str = "") -> Verdict:
        """A verdict; where the value differs, with what these readings say of it."""
        if kind == DIFFERS and self.names:
            why = "; ".join(filter(None, [why, self._said()]))
        return Verdict(kind, why, self.names, (*self.met, *self.near))

    def _said(self) -> str:
        if not self.met and not self.near:
            count = len(self.names)
            return f"not the same with any of {count} single changes" if count > 1 else _ONE
        met, near = " or ".join(self.met), " or ".join(self.near)
        parts = [met and f"the same with {met}", near and f"within noise with {near}"]
        return "; ".join(filter(None, parts))


_TIED = "tokens of equal number stand in another order, or beyond the end of the list"
_ONE = "not the same with the one single change that was tried"


def same_order(published: Sequence[Entry], computed: Sequence[Entry], *, descending: bool) -> bool:
    """Whether a list is the published one, up to the order of equal numbers in either."""
    places = _places(published, computed)
    if any(place is None for place in places) or len(computed) < len(published):
        return False
    numbers = [computed[place].score for place in places if place is not None]
    if any(number is None for number in numbers):
        found_places = _sorted_in_ties(published, [p for p in places if p is not None])
        return found_places == list(range(len(published)))
    sign = -1.0 if descending else 1.0
    found = _sorted_in_ties(published, [sign * n for n in numbers if n is not None])
    last = computed[len(published) - 1].score
    in_order = all(a <= b for a, b in itertools.pairwise(found))
    return in_order and last is not None and found[-1] == sign * last


def _sorted_in_ties(published: Sequence[Entry], values: Sequence[T]) -> list[T]:
    """Values of published tokens, sorted among neighbours of equal printed number."""
    begins: list[bool] = [
        a.score is None or a.score != b.score for a, b in itertools.pairwise(published)
    ]
    groups = itertools.accumulate([0, *map(int, begins)])
    return [value for _, value in sorted(zip(groups, values, strict=True))]


def largest_shift(published: Sequence[Entry], computed: Sequence[Entry]) -> int:
    """The largest distance in rank of a published token in another list.

    A token that the list does not hold is beyond its end: at least so far from its rank.
    """
    places = [len(computed) if place is None else place for place in _places(published, computed)]
    return max((abs(rank - place) for rank, place in enumerate(places)), default=0)


def shared(published: Sequence[Entry], computed: Sequence[Entry]) -> int:
    """How many published tokens stand among the first of another list, as many as are printed."""
    first = _places(published, computed[: len(published)])
    return sum(place is not None for place in first)


def at_their_rank(published: Sequence[Entry], computed: Sequence[Entry]) -> int:
    """How many of the published tokens have the same rank in another list."""
    return sum(a.key == b.key for a, b in zip(published, computed, strict=False))


def _places(published: Sequence[Entry], computed: Sequence[Entry]) -> list[int | None]:
    """Place of each published token in a list; a repeated one has a place for each time."""
    free: dict[str, list[int]] = {}
    for place, entry in enumerate(computed):
        free.setdefault(entry.key, []).append(place)
    return [free[e.key].pop(0) if free.get(e.key) else None for e in published]


def _close(value: float, published: float, within: float) -> bool:
    if math.isnan(value) or math.isnan(published):
        return math.isnan(value) and math.isnan(published)
    return abs(value - published) <= within + _SLACK * max(1.0, abs(published))


def _because(nearer: Sequence[str]) -> str:
    return f"the same in {' and in '.join(nearer)}" if nearer else ""
