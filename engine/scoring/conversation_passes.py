"""Scores whole conversations, each with a prompt of its own, by the passes of `reward_passes`."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from engine.scoring.batches import Bucket, padded_length
from engine.scoring.reward_passes import RewardScorer, cut, run_steps
from engine.scoring.rows import ConversationRows
from engine.types import Prefix, PromptIds


@dataclasses.dataclass(frozen=True)
class ConversationScorer:
    """A `RewardScorer` as the host loop takes it for `ConversationRows`."""

    scorer: RewardScorer

    def prefill(self, prompt: PromptIds) -> None:
        """Nothing: no prefix is that of all rows."""

    def coefficients(self, prefix: None) -> list[None]:
        """Nothing of each model: a gate weighs objectives under each prompt anew."""
        return [None] * len(self.scorer.columns)

    def score(
        self,
        prefix: None,
        rows: ConversationRows,
        start: int,
        stop: int,
        advance: Callable[[int], object] = lambda candidates: None,
    ) -> list[np.ndarray]:
        """What `RewardScorer.score` returns."""
        numbers = np.empty((sum(map(len, self.scorer.columns)), stop - start), np.float32)
        for ids, buckets in rows.passes(start, stop, alone=any(self.scorer.gate_patterns)):
            shared = PromptIds(prompt="", prefix=ids, suffix=())
            room = padded_length(len(ids)) - len(ids)  # few lengths: each is compiled anew
            self._fill(numbers, self.scorer.prefill(shared, room), buckets, advance)
        return self.scorer.by_model(numbers)

    def score_plainly(self, rows: ConversationRows, sample: Sequence[int]) -> list[np.ndarray]:
        """What `RewardScorer.score_plainly` returns, of few conversations at once, by length."""
        sequences = rows.sequences(sample)
        order = sorted(range(len(sample)), key=lambda place: len(sequences[place]))
        numbers = np.empty((sum(map(len, self.scorer.columns)), len(sample)), np.float32)
        for first in range(0, len(order), rows.checked_at_once):
            places = order[first : first + rows.checked_at_once]
            own = [sequences[place] for place in places]
            numbers[:, places] = self.scorer.plain_rewards(own, [rows.read_at(s) for s in own])
        return self.scorer.by_model(numbers)

    def _fill(
        self,
        numbers: np.ndarray,
        prefix: Prefix,
        buckets: Sequence[Bucket],
        advance: Callable[[int], object],
    ) -> None:
        """Computes the rows of buckets in a random order of steps.

        Long ones take longer: so the rate so far is that of the rest, and the progress bar's time
        left is true.
        """
        mesh, limit = self.scorer.mesh, self.scorer.step_size
        steps = []  # with the bucket of each, and the place of its first candidate there
        for bucket in buckets:
            cuts = cut(bucket.candidates, mesh, limit)
            steps += [(step, bucket, number * step[1]) for number, step in enumerate(cuts)]
        steps = [steps[i] for i in np.random.default_rng(0).permutation(len(steps))]
        score = functools.partial(self.scorer.score_step, self.scorer.params, prefix)
        computed = run_steps(score, [step for step, *_ in steps], mesh, advance)
        for (_, bucket, first), values in zip(steps, computed, strict=True):
            places = bucket.row_candidate - first
            own = (places >= 0) & (places < values.shape[1])
            numbers[:, bucket.rows[own]] = values[:, places[own]]
