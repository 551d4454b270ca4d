"""Where the candidates of a step are computed: two in a row, each from its first change on.

A candidate shares what stands before its first change with its parent, so it is as long as the
rest. The longest shares a row with the shortest, and so on: all rows are about equally long, and
a step is compiled in one shape, however many positions may change.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packing:
    """R rows of U positions that hold E candidates each; static, int32.

    Padding stands behind a row's last candidate, as more places of it, which nothing sees.
    """

    candidate: np.ndarray  # [R, U], whose token stands there
    place: np.ndarray  # [R, U], its index in the reply and what follows it
    first: np.ndarray  # [R, U], the first place of that candidate that is computed
    reply: np.ndarray  # [R, U], which of the row's candidates it is
    read: np.ndarray  # [R, E], reward positions
    where: np.ndarray  # [C], where in [R · E] each candidate's reward is


def pack(first: Sequence[int], positions: int, multiple: int = 1) -> Packing:
    """Lays out candidates of `positions` places, computed from `first` [C] (ascending) on.

    `multiple`: what the number of rows is padded to, by repeating the last.
    """
    begin = np.asarray(first, np.int32)
    held = np.arange(len(begin))[:, None]
    if begin[0] < begin[-1]:  # of one length, they have nothing to even out
        held = held[: -(-len(begin) // 2)]
        held = np.concatenate([held, len(begin) - 1 - held], axis=1)
    where = np.empty(len(begin), np.int32)
    where[held.ravel()] = np.arange(held.size)
    held = np.pad(held, ((0, -len(held) % multiple), (0, 0)), mode="edge")

    lengths = positions - begin[held]  # [R, E]
    stops = np.cumsum(lengths, axis=1, dtype=np.int32)
    at = np.arange(stops[:, -1].max(), dtype=np.int32)
    reply = (at >= stops[:, :-1, None]).sum(axis=1, dtype=np.int32)  # [R, U]
    candidate = np.take_along_axis(held, reply, axis=1).astype(np.int32)
    place = begin[candidate] + at - np.take_along_axis(stops - lengths, reply, axis=1)
    return Packing(
        candidate=candidate,
        place=place.astype(np.int32),
        first=begin[candidate],
        reply=reply,
        read=stops - 1,
        where=where,
    )
