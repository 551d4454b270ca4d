"""The host side of one search: the loop, and the driver that dispatches compiled steps.

`StepDriver` checks round trips between the two halves of a step.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from engine import mesh as meshes
from engine import processes
from engine.errors import AssayError
from engine.planning import flops
from engine.runs import storage
from engine.scoring.reward_passes import RewardScorer, fetch
from engine.search import trace as traces
from engine.search.baselines import EnumerationDriver
from engine.search.gcg import State, Step, build_step, first_changes, start, whole_replies
from engine.search.objective import SearchObjective, not_finite
from engine.search.passes import BROKEN, StepInputs, fitness
from engine.search.trace import Driver, NewSteps, Trace
from engine.settings import STEP_METHODS, SearchSettings

_STATE_FIELDS = [field.name for field in dataclasses.fields(State)]


def run_search(
    objective: SearchObjective,
    scorer: RewardScorer,
    file: epath.Path | None,
    progress: Callable[[int, Trace], object],
    driver: Driver | None = None,
) -> tuple[Trace, dict[str, int]]:
    """Runs a search to its end, or resumes the one in `file`.

    Args:
      objective: what is maximised.
      scorer: the model.
      file: where trace and state are saved during the search; None saves nothing.
      progress: called after each dispatch with the number of steps done and the trace so far.
      driver: takes the steps; by default the one of the method.

    Returns:
      The trace, and the number of candidates per direction that were rejected because their text
      does not round-trip.

    Raises:
      AssayError: a reward that is not finite (with its token ids); a direction ended without a
        sequence; `file` belongs to another search.
    """
    settings = objective.settings
    if driver is None:
        kind = StepDriver if settings.method in STEP_METHODS else EnumerationDriver
        driver = kind(objective, scorer)
    model_axis = scorer.mesh.shape["model"]
    trace = Trace.empty(len(objective.signs), settings.length)
    if file is not None and (state := traces.load(file, objective, model_axis)):
        trace, arrays = state
        driver.restore(arrays)
    saved = len(trace.flops)
    while not trace.ended(settings):
        spent = trace.flops[-1] if len(trace.flops) else 0.0
        budget = settings.flops / settings.attempts - spent if settings.flops else math.inf
        new = driver.advance(settings.steps - len(trace.flops), budget)
        if not len(new.flops):
            break
        trace = Trace(
            rewards=np.concatenate([trace.rewards, new.rewards]),
            ids=np.concatenate([trace.ids, new.ids]),
            flops=np.append(trace.flops, spent + np.cumsum(new.flops)),
        )
        _check_finite(trace)
        progress(len(trace.flops), trace)
        if file is not None and len(trace.flops) - saved >= settings.every:
            traces.save(file, objective, model_axis, trace, driver.arrays())
            saved = len(trace.flops)
    if not trace.complete(settings):
        if file is not None and processes.writes():
            storage.remove(file)  # resuming it would end here again
        raise AssayError(
            f"method={settings.method!r} ended before it found a sequence of {settings.length} "
            "tokens; allow it more steps or flops, or round_trip=False"
        )
    return trace, objective.per_direction(driver.rejected)


class StepDriver:
    """Drives a method of `STEP_METHODS` by the compiled step.

    Args:
      objective: of the search.
      scorer: the model, or of several the first.
      step: from `gcg.build_step`, or of several models.
      inputs: of the step.
      cost: operations of a step of one attempt.
    """

    def __init__(
        self,
        objective: SearchObjective,
        scorer: RewardScorer,
        step: Step | None = None,
        inputs: StepInputs | None = None,
        cost: float | None = None,
    ):
        self.objective = objective
        self.rejected = np.zeros(len(objective.signs), np.int64)
        self._scorer = scorer
        self._step = step or build_step(scorer.graph, scorer.mesh, objective.settings)
        self._inputs = inputs or build_step_inputs(objective, scorer)
        self.step_flops = cost or step_flops(objective)
        keys = np.stack([stream_key(*stream) for stream in objective.streams()])
        self._state = self._put(start(keys, objective.initial(), objective.settings.buffer))

    def advance(self, limit: int, budget: float) -> NewSteps:
        """See `Driver.advance`."""
        settings = self.objective.settings
        count = int(min(limit, settings.every, budget / self.step_flops))
        if count < 1:
            return NewSteps(
                np.empty((0, 0), np.float32), np.empty((0, 0, 0), np.int32), np.empty(0)
            )
        if settings.round_trip:
            rows = [self._checked_step() for _ in range(count)]
            rewards, ids = (np.stack(each) for each in zip(*rows, strict=True))
        else:
            self._state, rewards, ids = self._step.many(
                self._scorer.params, self._inputs, self._state, np.int32(count)
            )
            rewards, ids = (array[:count] for array in fetch((rewards, ids)))
        return NewSteps(rewards, ids, np.full(count, self.step_flops))

    def arrays(self) -> dict[str, np.ndarray]:
        """See `Driver.arrays`."""
        state = fetch(self._state)
        arrays = {name: np.asarray(getattr(state, name)) for name in _STATE_FIELDS}
        return arrays | {"rejected": self.rejected}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """See `Driver.restore`."""
        self.rejected = np.array(arrays["rejected"])
        self._state = self._put(State(**{name: arrays[name] for name in _STATE_FIELDS}))

    def _checked_step(self) -> tuple[np.ndarray, np.ndarray]:
        """One step whose candidates must round-trip; returns best rewards [A] and ids [A, T]."""
        ranked = self._step.expand(self._scorer.params, self._inputs, self._state)
        kept = self._state.buffer, self._state.buffer_rewards
        every, rewards, *kept = fetch((ranked.ids, ranked.rewards, *kept))
        for ids, own in zip(every, rewards, strict=True):
            if own[0] == BROKEN:
                raise not_finite(ids[0])
        passes = meshes.put(self._scorer.mesh, self._passing(every, rewards, *kept), "")
        self._state = self._step.admit(self._state, ranked, passes)
        rewards, ids = fetch((self._state.best_rewards, self._state.best))
        return rewards, ids

    def _passing(
        self, every: np.ndarray, signed: np.ndarray, buffer: np.ndarray, known: np.ndarray
    ) -> np.ndarray:
        """Candidates that are admitted; only those that could be kept are checked.

        Args:
          every: int32 [A, C, T], candidates, best first.
          signed: float32 [A, C], their rewards.
          buffer: int32 [A, B, T], what the attempts keep.
          known: float32 [A, B], its rewards.

        Returns:
          bool [A, C].
        """
        settings = self.objective.settings
        latest = settings.takes_gradient  # keeps one candidate, even if it is worse
        passes = np.zeros(signed.shape, bool)
        for a, rewards in enumerate(signed):
            fitnesses = np.asarray(fitness(rewards, settings.target))
            in_buffer = np.asarray(fitness(known[a], settings.target))
            worst = -np.inf if latest else in_buffer.min()
            admitted = 0
            for c, ids in enumerate(every[a]):
                enough = admitted >= (1 if latest else settings.buffer)
                if enough or not fitnesses[c] > worst:
                    break
                if (ids == buffer[a]).all(-1).any():
                    passes[a, c] = True  # already in the buffer: nothing to check
                elif self.objective.passes(ids):
                    passes[a, c], admitted = True, admitted + 1
                else:
                    self.rejected[a] += 1
        return passes

    def _put(self, state: State) -> State:
        placed: State = meshes.put(self._scorer.mesh, state, "")
        return placed


def build_step_inputs(objective: SearchObjective, scorer: RewardScorer) -> StepInputs:
    """The prompts' keys and values, side by side on the mesh, and the search's arrays."""
    lengths = [len(p.prefix) for p in objective.prompts]
    room = [max(lengths) - n + objective.settings.length for n in lengths]
    prefixes = [scorer.prefill(p, r) for p, r in zip(objective.prompts, room, strict=True)]
    integers = (lengths, objective.suffix, planned_steps(objective.settings, step_flops(objective)))
    rest = (*(np.array(n, np.int32) for n in integers), objective.allowed, objective.signs)
    lengths, suffix, steps, allowed, signs = meshes.put(scorer.mesh, rest, "")
    return StepInputs(
        prefix=jax.tree.map(lambda *leaves: jnp.stack(leaves), *prefixes),
        lengths=lengths,
        suffix=suffix,
        allowed=allowed,
        signs=signs,
        steps=steps,
    )


def step_flops(objective: SearchObjective) -> float:
    """FLOPs of one step of one attempt; of an enumeration, a step that scores whole replies."""
    settings = objective.settings
    return flops.compiled_step(
        objective.config,
        (*first_changes(settings), *whole_replies(settings)),
        settings.length,
        [len(p.prefix) for p in objective.prompts],
        len(objective.suffix),
        with_gradient=settings.takes_gradient,
    )


def planned_steps(settings: SearchSettings, step: float) -> int:
    """Steps of a search that nothing ends early: `steps`, or fewer if `flops` allow fewer.

    For an enumeration this is an estimate, since the costs of its steps differ.

    Args:
      settings: of the search.
      step: operations of a step of one attempt (`step_flops`).
    """
    if not settings.flops:
        return settings.steps
    return min(settings.steps, max(1, int(settings.flops / settings.attempts // step)))


def _check_finite(trace: Trace) -> None:
    bad = (trace.rewards[-1] == BROKEN) | np.isnan(trace.rewards[-1])
    if bad.any():
        raise not_finite(trace.ids[-1, np.argmax(bad)])


def stream_key(seed: int, *folds: int) -> np.ndarray:
    """Data of a threefry2x32 key: uint32 [2]."""
    key = jax.random.key(seed, impl="threefry2x32")
    for fold in folds:
        key = jax.random.fold_in(key, fold)
    return np.asarray(jax.random.key_data(key))
