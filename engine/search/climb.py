"""The host's side of a climbing search: dispatch, verdicts on round trips, state."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from engine import mesh as meshes
from engine.scoring.reward_passes import Scorer, fetch
from engine.search import flops
from engine.search.buffer import BROKEN, Ranked, State, climbed, start
from engine.search.objective import Problem, not_finite
from engine.search.settings import CLIMBS
from engine.search.step import Question, build_step, first_changes, takes_gradient

# What a number of steps found: best signed rewards so far [k, A] and their sequences [k, A, T],
# after each step, and FLOPs of each step and attempt [k].
Steps = tuple[np.ndarray, np.ndarray, np.ndarray]
_FIELDS = [field.name for field in dataclasses.fields(State)]


class Climb:
    """A search by `engine.search.step`."""

    def __init__(self, problem: Problem, scorer: Scorer):
        settings = problem.settings
        self.problem = problem
        self.rejected = np.zeros(len(problem.signs), np.int64)  # an attempt, for their text
        self._scorer = scorer
        self._step = build_step(scorer.graph, scorer.mesh, settings)
        self._question = question(problem, scorer)
        keys = [_key(*stream) for stream in problem.streams()]
        self._state = self._put(start(np.stack(keys), problem.initial(), settings.buffer))
        self.step_flops = step_flops(problem)

    def advance(self, limit: int, budget: float) -> Steps:
        """Takes up to `limit` steps, fewer where `budget` FLOPs an attempt end first."""
        settings = self.problem.settings
        fitting = int(min(limit, settings.every, budget / self.step_flops))
        if settings.round_trip:
            rows = [self._judged() for _ in range(fitting)]
            rewards = np.stack([r for r, _ in rows]) if rows else np.empty((0, 0), np.float32)
            ids = np.stack([i for _, i in rows]) if rows else np.empty((0, 0, 0), np.int32)
        else:
            self._state, rewards, ids = self._step.many(
                self._scorer.params, self._question, self._state, np.int32(fitting)
            )
            rewards, ids = (array[:fitting] for array in fetch((rewards, ids)))
        return rewards, ids, np.full(fitting, self.step_flops)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that the next step depends on."""
        state = fetch(self._state)
        arrays = {name: np.asarray(getattr(state, name)) for name in _FIELDS}
        return arrays | {"rejected": self.rejected}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The inverse of `arrays`."""
        self.rejected = np.array(arrays["rejected"])
        self._state = self._put(State(**{n: arrays[n] for n in _FIELDS}))

    def _judged(self) -> tuple[np.ndarray, np.ndarray]:
        """One step whose candidates are held against their texts before they are admitted."""
        ranked = self._step.expand(self._scorer.params, self._question, self._state)
        seen, state = fetch((ranked, self._state))
        for ids, rewards in zip(seen.ids, seen.rewards, strict=True):
            if rewards[0] == BROKEN:
                raise not_finite(ids[0])
        passes = meshes.put(self._scorer.mesh, self._verdicts(seen, state), "")
        self._state = self._step.admit(self._state, ranked, passes)
        return fetch((self._state.best_rewards, self._state.best))

    def _verdicts(self, ranked: Ranked, state: State) -> np.ndarray:
        """Which candidates pass: from the best down, until no other could be kept. bool [A, C]."""
        settings = self.problem.settings
        latest = CLIMBS[settings.method].keep == "latest"
        passes = np.zeros(ranked.rewards.shape, bool)
        for a, rewards in enumerate(ranked.rewards):
            heights = np.asarray(climbed(rewards, settings.target))
            kept_now = np.asarray(climbed(state.buffer_rewards[a], settings.target))
            worst = -np.inf if latest else kept_now.min()
            kept = 0
            for c, ids in enumerate(ranked.ids[a]):
                enough = kept >= (1 if latest else settings.buffer)
                if enough or not heights[c] > worst:
                    break
                if (ids == state.buffer[a]).all(-1).any():
                    passes[a, c] = True  # it is there already, or is the parent's own reward
                elif self.problem.passes(ids):
                    passes[a, c], kept = True, kept + 1
                else:
                    self.rejected[a] += 1
        return passes

    def _put(self, state: State) -> State:
        return meshes.put(self._scorer.mesh, state, "")


def question(problem: Problem, scorer: Scorer) -> Question:
    """The prompts' K/V on the mesh, side by side."""
    lengths = [len(p.prefix) for p in problem.prompts]
    room = [max(lengths) - n + problem.settings.length for n in lengths]
    prefixes = [scorer.prefill(p, r) for p, r in zip(problem.prompts, room, strict=True)]
    integers = (lengths, problem.suffix, planned_steps(problem))
    rest = (*(np.array(n, np.int32) for n in integers), problem.allowed, problem.signs)
    lengths, suffix, steps, allowed, signs = meshes.put(scorer.mesh, rest, "")
    return Question(
        prefix=jax.tree.map(lambda *leaves: jnp.stack(leaves), *prefixes),
        lengths=lengths,
        suffix=suffix,
        allowed=allowed,
        signs=signs,
        steps=steps,
    )


def step_flops(problem: Problem) -> float:
    """What a step of one attempt costs; of a sweep, a step of whole replies."""
    settings = problem.settings
    return flops.climb_step(
        problem.config, first_changes(settings), settings.length,
        [len(p.prefix) for p in problem.prompts], len(problem.suffix),
        with_gradient=takes_gradient(settings),
    )  # fmt: skip


def planned_steps(problem: Problem) -> int:
    """How many steps a search takes if nothing ends it early: `steps`, or what `flops` allow.

    A sweep takes about as many.
    """
    settings = problem.settings
    if not settings.flops:
        return settings.steps
    affordable = int(settings.flops / settings.attempts // step_flops(problem))
    return min(settings.steps, max(1, affordable))


def _key(seed: int, *folds: int) -> np.ndarray:
    key = jax.random.key(seed, impl="threefry2x32")
    for fold in folds:
        key = jax.random.fold_in(key, fold)
    return np.asarray(jax.random.key_data(key))
