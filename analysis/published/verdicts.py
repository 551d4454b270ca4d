"""Is a value the published one? Pure functions of numbers and lists.

There are four verdicts: the same to the printed digit; the same within the noise that was measured
between two dtypes; different, with the other readings that give the value where some do; not run,
and why.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

SAME = "same"
NOISE = "within noise"
DIFFERS = "differs"
NOT_RUN = "not run"
KINDS = (SAME, NOISE, DIFFERS, NOT_RUN)

_SLACK = 1e-9  # of binary fractions: 0.0005 and the like
_TIED = "tokens of equal number stand in another order, or beyond the end of the list"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison."""

    kind: str  # one of `KINDS`
    why: str = ""  # the reason, as a part of a sentence; "" where nothing is to be said
    tried: tuple[str, ...] = ()  # readings that change one convention, of which there is a value
    # Those of them that give the published value, to the printed digit or within noise.
    met: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Entry:
    """A token of a ranked list."""

    key: str  # what it is known by: its text, or its id
    score: float | None = None  # its number in that list; None where it is not known
    text: str = ""  # its text, where the key is its id


def of_number(
    published: float,
    within: float,
    computed: float,
    *,
    noise: float | None = None,
    others: Mapping[str, float | None] | None = None,
    singles: Mapping[str, float | None] | None = None,
) -> Verdict:
    """Compares a number with the published one.

    Args:
      published: the printed number.
      within: half a unit of its last digit.
      computed: the same number of a run.
      noise: how far the number moves between two dtypes; None where that was not measured.
      others: name of another reading of the same run -> its number.
      singles: name of a reading that changes one convention -> its number.
    """

    def is_same(value: float) -> bool:
        return _close(value, published, within)

    def is_near(value: float) -> bool:
        return noise is not None and _close(value, published, within + noise)

    said = f"two dtypes differ by {noise:.2g}" if noise is not None else ""
    return _judged(computed, is_same, is_near, said, others or {}, singles or {})


def of_list(
    published: Sequence[Entry],
    computed: Sequence[Entry],
    *,
    descending: bool,
    noise: Sequence[Entry] | None = None,
    others: Mapping[str, Sequence[Entry] | None] | None = None,
    singles: Mapping[str, Sequence[Entry] | None] | None = None,
) -> Verdict:
    """Compares a ranked list of tokens with the published one.

    The lists are the same where they hold the same tokens in the same order; tokens of equal
    number, printed or of the run, may stand in any order. They differ within noise where they share
    no fewer tokens than the lists of two dtypes, which is half of them or more, and no token is
    further from its rank; or where the published list is that of the other dtype, of which tied
    tokens may stand in any order.

    Args:
      published: the printed list, the extreme first; with numbers where they are printed.
      computed: the list of a run, with numbers, at least as long.
      descending: whether the first has the highest number.
      noise: the list in another dtype; None where that was not measured.
      others: name of another reading of the same run -> its list.
      singles: name of a reading that changes one convention -> its list.
    """
    count, common, shift = len(published), 0, 0
    if noise is not None:
        first = _tied_as(noise, computed, descending=descending)
        second = _tied_as(first, noise, descending=descending)
        common = shared(first[:count], second)
        shift = max(largest_shift(first[:count], second), largest_shift(second[:count], first))
    half_common = 2 * common >= count

    def is_same(listed: Sequence[Entry]) -> bool:
        return same_order(published, listed, descending=descending)

    def is_near(listed: Sequence[Entry]) -> bool:
        ordered = _tied_as(published, listed, descending=descending)
        enough = half_common and common <= shared(published, ordered)
        return enough and largest_shift(published, ordered) <= shift

    ranks = "rank" if shift == 1 else "ranks"
    said = f"two dtypes share {common} of {count} tokens, at most {shift} {ranks} apart"
    verdict = _judged(computed, is_same, is_near, said, others or {}, singles or {})
    if verdict.kind == SAME and at_their_rank(published, computed) < count:
        return dataclasses.replace(verdict, why=_TIED)
    if verdict.kind == DIFFERS and half_common and is_same(noise or ()):
        why = "the same in the other of two dtypes"
        return dataclasses.replace(verdict, kind=NOISE, why=why)
    return verdict


def _judged(
    computed: T,
    is_same: Callable[[T], bool],
    is_near: Callable[[T], bool],
    noise: str,
    others: Mapping[str, T | None],
    singles: Mapping[str, T | None],
) -> Verdict:
    """The verdict on a value; `noise` is the reason of one within noise."""
    tried = {name: value for name, value in singles.items() if value is not None}
    met = [name for name, value in tried.items() if is_same(value)]
    near = [name for name, value in tried.items() if name not in met and is_near(value)]
    kind, why = SAME, ""
    if not is_same(computed):
        kind, why = NOISE, noise
        if not is_near(computed):
            nearer = [n for n, value in others.items() if value is not None and is_same(value)]
            parts = [f"the same in {' and in '.join(nearer)}"] * bool(nearer)
            kind, why = DIFFERS, "; ".join([*parts, *_tries(len(tried), met, near)])
    return Verdict(kind, why, tuple(tried), (*met, *near))


def _tries(count: int, met: Sequence[str], near: Sequence[str]) -> list[str]:
    """What `count` readings that change one convention say of a value that differs."""
    if met or near:
        parts = (("the same with", met), ("within noise with", near))
        return [f"{what} {' or '.join(names)}" for what, names in parts if names]
    if count > 1:
        return [f"not the same with any of {count} single changes"]
    return ["not the same with the one single change that was tried"] * count


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


def same_order(published: Sequence[Entry], computed: Sequence[Entry], *, descending: bool) -> bool:
    """Whether a list is the published one, up to the order of equal numbers in either."""
    places = [place for place in _places(published, computed) if place is not None]
    if len(places) < len(published):
        return False
    # Published tokens of equal printed number may stand in any order.
    changes = [a.score is None or a.score != b.score for a, b in itertools.pairwise(published)]
    groups = list(itertools.accumulate([0, *map(int, changes)]))
    sign = -1.0 if descending else 1.0
    known = [sign * one.score for one in computed if one.score is not None]
    if len(known) < len(computed):
        found_places = [place for _, place in sorted(zip(groups, places, strict=True))]
        return found_places == list(range(len(places)))
    ordered = [known[place] for place in places]
    regrouped = [number for _, number in sorted(zip(groups, ordered, strict=True))]
    return regrouped == sorted(regrouped) and regrouped[-1:] == known[: len(published)][-1:]


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
