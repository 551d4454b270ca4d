"""A cache of what was read from a run: a report reads every reward about ten times.

A column is sorted once, and every rank in a report comes from that.
"""

import numpy as np
import polars as pl

from analysis import reading
from analysis.statistics import Array
from analysis.statistics.ranks import Ranking, ranking
from engine.runs.folder import RunFolder, read_table
from engine.runs.result import Result


class Cache:
    """Rewards, their ranks, and vocabularies by where they lie; read once.

    What is beyond `most_bytes` is made again each time; by default 67 million rewards with their
    ranks are not.
    """

    def __init__(self, most_bytes: int = 2**30) -> None:
        self._bytes_left = most_bytes
        self._rewards: dict[str, tuple[Array, Array]] = {}
        self._ranked: dict[str, Ranking] = {}
        self._ids: dict[str, Array] = {}
        self._vocabularies: dict[tuple[str, str], pl.DataFrame] = {}

    def rewards(self, result: Result, vocabulary: str) -> tuple[Array, Array]:
        """Token ids (uint32, ascending) and rewards (float32) of `result`, read only.

        The rewards of a language model's result are its log-probabilities.

        Args:
          result: over a vocabulary.
          vocabulary: its key; results of one vocabulary with the same token ids share their array.
        """
        place = str(result.folder)
        if place in self._rewards:
            return self._rewards[place]
        frame = reading.scan(result).collect().rechunk()
        ids, rewards = frame.to_series(0).to_numpy(), frame.to_series(1).to_numpy()
        known = self._ids.setdefault(vocabulary, ids)
        read = (known if np.array_equal(known, ids) else ids), rewards
        for column in read:
            column.flags.writeable = False
        if self._held(rewards.nbytes):
            self._rewards[place] = read
        return read

    def ranked(self, result: Result, vocabulary: str) -> Ranking:
        """The ranking of `rewards` of the same arguments."""
        place = str(result.folder)
        if place in self._ranked:
            return self._ranked[place]
        made = ranking(self.rewards(result, vocabulary)[1])
        if self._held(made.ranks.nbytes + made.order.nbytes + made.counts.nbytes):
            self._ranked[place] = made
        return made

    def _held(self, size: int) -> bool:
        """Whether there is room for `size` more bytes, which are then taken."""
        room = size <= self._bytes_left
        self._bytes_left -= size * room
        return room

    def vocabulary(self, folder: RunFolder, path: str) -> pl.DataFrame:
        """The vocabulary at a path of a run: `schema.VOCAB_COLUMNS`, sorted by token_id."""
        key = str(folder.run), path
        if key not in self._vocabularies:
            self._vocabularies[key] = read_table(folder, path).sort("token_id")
        return self._vocabularies[key]
