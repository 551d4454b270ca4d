"""Batches of token sequences that continue one prefix: de-duplicated, padded to few lengths."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from engine.types import Candidates, PromptIds

PREFIX_MULTIPLE = 16  # of positions, to which whole sequences and prefixes are padded
_WHOLE_MULTIPLE, _EXACT = 8, 1024  # of `whole`
# Positions of a candidate up to which a device's step has `step_size` of them, and up to which
# padding a few sequences further costs next to nothing.
SHORT = 8
# Log-probabilities of the whole vocabulary that a step holds at once on a device: 256 MiB.
_LOGITS = 2**26
# A length joins the next one if fewer than _FEW sequences have it, or one in _RARE: compiling
# another step would cost more than padding them.
_FEW, _RARE = 128, 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bucket:
    """Candidates of one padded length, and which rows of the list each of them stands for."""

    candidates: Candidates
    rows: np.ndarray  # int [rows], ascending
    row_candidate: np.ndarray  # int [rows], the candidate that row stands for


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distinct:
    """The distinct sequences of a list of rows that continue one prefix.

    Sequences are numbered in the order of their first row. Sequence s is `prefix[:shared[s]]`
    followed by `ids[starts[s]:starts[s + 1]]`; the reward is read at its last id.
    """

    ids: np.ndarray  # int32, what follows the shared prefix in each sequence, one after another
    starts: np.ndarray  # int [sequences + 1]
    shared: np.ndarray  # int32 [sequences]
    first: np.ndarray  # int [sequences], the first row of each: ascending
    of_row: np.ndarray  # int [rows], the sequence of each row

    @classmethod
    def of(cls, prefix: Sequence[int], sequences: Iterable[Sequence[int]]) -> "Distinct":
        """Compares whole sequences of token ids with the prefix.

        A sequence that leaves the prefix early, because its text merged with the template's,
        shares the prefix up to that position.
        """
        prefix, of_row = list(prefix), []
        numbers: dict[tuple[int, ...], int] = {}  # positions shared, then the ids that follow
        for sequence in sequences:
            shared = _shared_length(prefix, sequence)
            of_row.append(numbers.setdefault((shared, *sequence[shared:]), len(numbers)))
        following = itertools.chain.from_iterable(key[1:] for key in numbers)
        return cls(
            ids=np.fromiter(following, np.int32),
            starts=np.cumsum([0, *(len(key) - 1 for key in numbers)]),
            shared=np.array([key[0] for key in numbers], np.int32),
            first=np.unique(of_row, return_index=True)[1],
            of_row=np.array(of_row),
        )

    def ids_behind_prefix(self, sequence: int) -> np.ndarray:
        """The ids of a sequence behind the shared prefix."""
        return self.ids[self.starts[sequence] : self.starts[sequence + 1]]

    def longest(self) -> int:
        """Token positions of the longest sequence, the prefix included."""
        return int((self.shared + np.diff(self.starts)).max())

    def buckets(self, start: int, stop: int, least: int = 0) -> list[Bucket]:
        """The sequences whose first row lies in [start, stop), one bucket per padded length.

        Each bucket but the longest has `least` candidates: fewer join the next, whose step has room
        for both, since each length is compiled anew.
        """
        low, high = np.searchsorted(self.first, [start, stop])
        numbers, buckets = self.of_row[start:stop], []
        lengths = _joined(self.lengths[low:high], least)
        for length in np.unique(lengths):
            members = low + np.flatnonzero(lengths == length)
            rows = np.flatnonzero(np.isin(numbers, members))
            buckets.append(
                Bucket(
                    candidates=self._candidates(members, int(length)),
                    rows=rows,
                    row_candidate=np.searchsorted(members, numbers[rows]),
                )
            )
        return buckets

    def duplicates(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of [start, stop), counted from `start`, whose sequence has a first row before it.

        Returns:
          Those rows, and the first row of each one's sequence.
        """
        sources = self.first[self.of_row[start:stop]]
        rows = np.flatnonzero(sources < start)
        return rows, sources[rows]

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The padded number of positions behind the prefix: few values, each of many sequences."""
        sizes, index = np.unique(np.diff(self.starts), return_inverse=True)
        padded = np.array([padded_length(int(size)) for size in sizes])[index]
        return _joined(padded, max(_FEW, len(padded) / _RARE), SHORT)

    def _candidates(self, members: np.ndarray, length: int) -> Candidates:
        starts = self.starts[members, None]
        last = self.starts[members + 1, None] - starts - 1
        positions = np.arange(length)
        ids = self.ids[starts + np.minimum(positions, last)]
        return Candidates(
            ids=np.where(positions <= last, ids, 0).astype(np.int32),
            shared=self.shared[members],
            last=last[:, 0].astype(np.int32),
        )


def token_candidates(prompt: PromptIds, token_ids: np.ndarray) -> Candidates:
    """Ids as the whole reply: int [C], one token each, or [C, t] -> candidates `ids + suffix`."""
    suffix = np.broadcast_to(
        np.array(prompt.suffix, np.int32), (len(token_ids), len(prompt.suffix))
    )
    ids = np.concatenate([token_ids.astype(np.int32).reshape(len(suffix), -1), suffix], axis=1)
    return Candidates(
        ids=ids,
        shared=np.full(len(ids), len(prompt.prefix), np.int32),
        last=np.full(len(ids), ids.shape[1] - 1, np.int32),
    )


def whole(bucket: Bucket, prefix: Sequence[int]) -> Bucket:
    """A bucket's candidates as whole conversations, for a model that shares no prefix.

    They are padded to a multiple of 8 positions, unless they are many and of one length, as those
    of a sweep are: another length costs a program.
    """
    own = bucket.candidates
    lengths = own.shared + own.last + 1
    positions = int(lengths.max())
    if len(own) < _EXACT or lengths.min() < positions:
        positions = -(-positions // _WHOLE_MULTIPLE) * _WHOLE_MULTIPLE
    at, shared = np.arange(positions), own.shared[:, None]
    places = np.clip(at - shared, 0, own.last[:, None])
    ids = np.take_along_axis(own.ids, places, axis=1)
    front = np.zeros(positions, np.int32)
    front[: len(prefix)] = prefix[:positions]
    ids = np.where(at < shared, front, np.where(at < lengths[:, None], ids, 0)).astype(np.int32)
    none = np.zeros_like(own.shared)
    candidates = Candidates(ids=ids, shared=none, last=(lengths - 1).astype(np.int32))
    return dataclasses.replace(bucket, candidates=candidates)


def _joined(lengths: np.ndarray, least: float, longest: int | None = None) -> np.ndarray:
    """Padded lengths of sequences, where one that fewer than `least` have is the next longer one.

    Lengths above `longest` stay.
    """
    lengths = lengths.copy()
    known = [length for length in np.unique(lengths) if longest is None or length <= longest]
    for length, longer in itertools.pairwise(known):
        members = lengths == length
        if members.sum() < least:
            lengths[members] = longer
    return lengths


def padded_length(length: int) -> int:
    """The smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, … that holds `length`: few shapes."""
    if length <= 4:
        return max(length, 1)
    power = 1 << (length - 1).bit_length()
    return power * 3 // 4 if length <= power * 3 // 4 else power


def whole_length(positions: int) -> int:
    """Positions of a padded whole sequence or prefix: the next multiple of `PREFIX_MULTIPLE`."""
    return -(-positions // PREFIX_MULTIPLE) * PREFIX_MULTIPLE


def padded(sequences: Sequence[Sequence[int]], multiple: int, room: int = 0) -> np.ndarray:
    """Sequences as int32 [rows, positions], padded with zeros to one of few shapes.

    The number of rows is a multiple of `multiple`. There are at least `room` padding positions
    behind the longest sequence.
    """
    longest = whole_length(max(map(len, sequences)) + room)
    ids = np.zeros((-(-len(sequences) // multiple) * multiple, longest), np.int32)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
    return ids


def rows_of_step(candidates: int, positions: int, limit: int) -> int:
    """Candidates in a step on each device; the number of devices does not count.

    A short list does not pay for a whole step, and long replies take fewer at a time, so that a
    step's memory is bounded; powers of two keep the shapes few.
    """
    needed = 1 << max(4, (candidates - 1).bit_length())
    if positions <= SHORT:
        return min(limit, needed)
    fitting = max(1, limit * SHORT // positions)
    return min(needed, 1 << (fitting.bit_length() - 1))


def largest_step(step_size: int, vocab_size: int) -> int:
    """Candidates of a step on each device: `step_size`, or fewer where the vocabulary is large."""
    fitting = max(1, _LOGITS // vocab_size)
    return min(step_size, 1 << (fitting.bit_length() - 1))


def pad_rows(candidates: Candidates, rows: int) -> Candidates:
    """Repeats the first candidate until there are `rows`, so that every step has one shape."""
    index = np.zeros(rows, int)
    index[: len(candidates)] = np.arange(len(candidates))
    return take_rows(candidates, index)


def take_rows(candidates: Candidates, index: np.ndarray | slice) -> Candidates:
    """Some of the candidates."""
    return Candidates(
        ids=candidates.ids[index], shared=candidates.shared[index], last=candidates.last[index]
    )


def _shared_length(prefix: list[int], sequence: Sequence[int]) -> int:
    if len(sequence) > len(prefix) and list(sequence[: len(prefix)]) == prefix:
        return len(prefix)
    limit = min(len(prefix), len(sequence) - 1)  # the reward position is always recomputed
    return next((i for i in range(limit) if prefix[i] != sequence[i]), limit)
