"""Sequence packing: two candidates per row, each computed from its first change on.

A candidate shares the positions before its first change with its parent, so only the rest of it is
computed. The longest rest shares a row with the shortest, and so on. So all rows are about equally
long, and a step is compiled in one shape, however many positions may change.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packing:
    """B rows of U positions that hold Y candidates each; static, int32.

    A row is padded behind its last candidate, with further places of that candidate. No position
    that is read attends to them.
    """

    candidate: np.ndarray  # [B, U], the candidate whose token is at this position
    place: np.ndarray  # [B, U], index of that token in the reply followed by the suffix
    first: np.ndarray  # [B, U], the first place of that candidate that is computed
    reply: np.ndarray  # [B, U], index of the candidate within its row, 0 to Y - 1
    read: np.ndarray  # [B, Y], reward positions
    where: np.ndarray  # [C], index in [B · Y] of each candidate's reward


def pack(first: Sequence[int], positions: int, block: int = 1) -> Packing:
    """Assigns candidates to rows.

    Args:
      first: the first place of each candidate that is computed [C], ascending.
      positions: places of a whole candidate: reply and suffix.
      block: more rows than this are padded to a multiple of it, by repeating the last row.
    """
    begin = np.asarray(first, np.int32)
    held = np.arange(len(begin))[:, None]
    if begin[0] < begin[-1]:  # candidates of one length stay one per row
        held = held[: -(-len(begin) // 2)]
        held = np.concatenate([held, len(begin) - 1 - held], axis=1)
    where = np.empty(len(begin), np.int32)
    where[held.ravel()] = np.arange(held.size)
    held = np.pad(held, ((0, -len(held) % min(block, len(held))), (0, 0)), mode="edge")

    lengths = positions - begin[held]  # [B, Y]
    stops = np.cumsum(lengths, axis=1, dtype=np.int32)
    at = np.arange(stops[:, -1].max(), dtype=np.int32)
    reply = (at >= stops[:, :-1, None]).sum(axis=1, dtype=np.int32)  # [B, U]
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
