"""Rewards of rows of tokens behind a common beginning, whose keys and values are kept."""

from collections.abc import Callable

import numpy as np

from engine.planning import flops
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer
from engine.search.objective import SearchObjective
from engine.types import Candidates, Prefix, PromptIds


class Answers:
    """Rewards of a search's replies; keeps the keys and values of the last beginning."""

    def __init__(self, objective: SearchObjective, scorer: RewardScorer):
        self._objective, self._scorer = objective, scorer
        self._beginning: tuple[int, ...] | None = None
        self._prefixes: list[Prefix] = []

    def rewards(
        self,
        beginning: tuple[int, ...],
        rows: np.ndarray,
        advance: Callable[[int], object] = lambda rows: None,
    ) -> np.ndarray:
        """Rewards of rows behind a beginning.

        Args:
          beginning: token ids that all replies begin with.
          rows: int32 [C, t], the tokens that follow.
          advance: called with a number of rows that were scored, under one of the prompts.

        Returns:
          Mean over the prompts, float32 [C].
        """
        prompts = [
            PromptIds(prompt=p.prompt, prefix=(*p.prefix, *beginning), suffix=p.suffix)
            for p in self._objective.prompts
        ]
        if beginning != self._beginning:
            room = self._objective.settings.length - len(beginning)  # one shape for all beginnings
            self._prefixes = [self._scorer.prefill(p, room) for p in prompts]
            self._beginning = beginning
        every = []
        for prefix, prompt in zip(self._prefixes, prompts, strict=True):
            steps = []
            for step in self._scorer.rewards(prefix, _candidates(prompt, rows)):
                steps.append(step[0])
                advance(step.shape[1])
            every.append(np.concatenate(steps))
        means: np.ndarray = np.stack(every).mean(axis=0, dtype=np.float32)
        return means

    def flops(self, beginning: tuple[int, ...], rows: np.ndarray) -> float:
        """Operations of `rewards`, the keys and values of the beginning left out."""
        own = rows.shape[1] + len(self._objective.suffix)
        return sum(
            len(rows) * flops.response(self._objective.config, own, len(p.prefix) + len(beginning))
            for p in self._objective.prompts
        )


def _candidates(prompt: PromptIds, rows: np.ndarray) -> Candidates:
    """Rows of tokens [C, t], closed by the suffix, as candidates."""
    if rows.shape[1] == 1:
        return token_candidates(prompt, rows[:, 0])
    suffix = np.tile(np.array(prompt.suffix, np.int32), (len(rows), 1))
    ids = np.concatenate([rows, suffix], axis=1).astype(np.int32)
    return Candidates(
        ids=ids,
        shared=np.full(len(ids), len(prompt.prefix), np.int32),
        last=np.full(len(ids), ids.shape[1] - 1, np.int32),
    )
