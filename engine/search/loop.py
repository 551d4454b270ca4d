"""The host side of one search: the loop, its trace, and the driver that dispatches compiled steps.

The file of an unfinished search holds the trace and the driver's state, from which it is resumed.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import polars as pl
import safetensors.numpy
from etils import epath
from safetensors import SafetensorError

from engine import mesh as meshes
from engine import processes
from engine.errors import AssayError
from engine.runs import schema, storage
from engine.runs.environment import numerics
from engine.scoring.reward_passes import RewardScorer, fetch
from engine.search import step
from engine.search.objective import SearchObjective, not_finite
from engine.search.passes import BROKEN, fitness
from engine.search.step import State
from engine.settings import DIRECTIONS, SearchSettings
from engine.settings import identity_of as settings_identity

Arrays = Mapping[str, np.ndarray]  # what a driver saves, by name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """The best sequence of every attempt after each of N steps.

    Rewards are signed, so that higher is better; -inf before an attempt has a sequence.
    """

    rewards: np.ndarray  # float32 [N, A]
    ids: np.ndarray  # int32 [N, A, T]
    flops: np.ndarray  # float64 [N], of one attempt, cumulative

    def best(self, direction: int, settings: SearchSettings) -> tuple[np.ndarray, np.ndarray]:
        """Signed rewards [N] and token ids [N, T] of the best attempt of one direction.

        `direction` is its index in `settings.directions`.
        """
        attempts = slice(direction * settings.restarts, (direction + 1) * settings.restarts)
        rewards, steps = self.rewards[:, attempts], np.arange(len(self.rewards))
        best = np.argmax(rewards, axis=1)
        return rewards[steps, best], self.ids[:, attempts][steps, best]

    def by_direction(self, settings: SearchSettings) -> np.ndarray:
        """Signed rewards of the best attempt of each direction: float32 [N, directions]."""
        shape = len(self.rewards), len(settings.directions), settings.restarts
        rewards: np.ndarray = self.rewards.reshape(shape).max(axis=2)
        return rewards

    def ended(self, settings: SearchSettings) -> bool:
        """Whether all steps are done, or every direction has reached an end."""
        best = self.by_direction(settings)
        ends = [len(best) and end_step(rewards, settings) for rewards in best.T]
        return len(best) >= settings.steps or all(ends)

    def complete(self, settings: SearchSettings) -> bool:
        """Whether every direction has a sequence."""
        last = self.by_direction(settings)[-1:]
        return len(last) > 0 and bool(np.isfinite(last).all())


def end_step(best: np.ndarray, settings: SearchSettings) -> int | None:
    """The number of steps after which threshold, target or patience ends a direction.

    `best` are signed rewards of its best sequence after each step [N]; -inf: none yet. None: it
    goes on, as a direction without a sequence does.
    """
    reached = np.isfinite(best) & (best >= min(settings.threshold, settings.target or math.inf))
    ends = [int(np.argmax(reached)) + 1] if reached.any() else []
    if settings.patience:
        risen = np.flatnonzero(np.append(np.isfinite(best[0]), best[1:] > best[:-1]))
        still = np.diff(np.append(risen, len(best))) > settings.patience
        ends += (risen[still] + settings.patience + 1).tolist()
    return min(ends, default=None)


def trace_frame(objective: SearchObjective, trace: Trace, direction: str) -> pl.DataFrame:
    """The best sequence after each step of one direction, from its first sequence to its end.

    Rewards are not signed.
    """
    settings = objective.settings
    rewards, ids = trace.best(settings.directions.index(direction), settings)
    stop = end_step(rewards, settings)
    rows = np.flatnonzero(np.isfinite(rewards[:stop]))
    flops = trace.flops[rows] * settings.restarts  # of all of the direction
    return frame_of(objective, direction, rows + 1, rewards[rows], ids[rows], flops)


def frame_of(
    objective: SearchObjective,
    direction: str,
    steps: np.ndarray,
    rewards: np.ndarray,
    ids: np.ndarray,
    flops: np.ndarray,
) -> pl.DataFrame:
    """Sequences [N, T] after steps [N] of one direction, with their signed rewards [N]."""
    distinct, place = np.unique(ids, axis=0, return_inverse=True)
    trips = objective.round_trip
    said = [(trips.text(row), trips.passes(row)) for row in distinct]
    columns = {
        "step": steps,
        "reward": np.float32(DIRECTIONS[direction]) * rewards,
        "token_ids": ids.tolist(),
        "text": [said[i][0] for i in place.ravel()],
        "round_trips": [said[i][1] for i in place.ravel()],
        "flops": flops,
    }
    return pl.DataFrame(columns, schema=schema.SEQUENCE_COLUMNS)


def run_search(
    objective: SearchObjective,
    scorer: RewardScorer,
    file: epath.Path | None = None,
    progress: Callable[[int, Trace], object] = lambda steps, trace: None,
) -> tuple[Trace, dict[str, int]]:
    """Runs a search to its end, or resumes the one in `file`.

    Args:
      objective: what is maximised.
      scorer: the model.
      file: where trace and state are saved during the search; None saves nothing.
      progress: called after each dispatch with the number of steps done and the trace so far.

    Returns:
      The trace, and the number of candidates per direction that were rejected because their text
      does not round-trip.

    Raises:
      AssayError: a reward that is not finite (with its token ids); a direction ended without a
        sequence; `file` belongs to another search.
    """
    settings = objective.settings
    driver = StepDriver(objective, scorer)
    model_axis, attempts = scorer.mesh.shape["model"], len(objective.signs)
    trace = Trace(
        rewards=np.empty((0, attempts), np.float32),
        ids=np.empty((0, attempts, settings.length), np.int32),
        flops=np.empty(0),
    )
    if file is not None and (state := load(file, objective, model_axis)):
        trace, arrays = state
        driver.restore(arrays)
    saved = len(trace.flops)
    while not trace.ended(settings):
        spent = trace.flops[-1] if len(trace.flops) else 0.0
        budget = settings.flops / settings.restarts - spent if settings.flops else math.inf
        rewards, ids, flops = driver.advance(settings.steps - len(trace.flops), budget)
        if not len(flops):
            break
        trace = Trace(
            rewards=np.concatenate([trace.rewards, rewards]),
            ids=np.concatenate([trace.ids, ids]),
            flops=np.append(trace.flops, spent + np.cumsum(flops)),
        )
        bad = (rewards[-1] == BROKEN) | np.isnan(rewards[-1])
        if bad.any():
            raise not_finite(ids[-1, np.argmax(bad)])
        progress(len(trace.flops), trace)
        if file is not None and len(trace.flops) - saved >= settings.every:
            save(file, objective, model_axis, trace, driver.arrays())
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
    """Drives a search by the compiled step; round trips between its halves."""

    def __init__(self, objective: SearchObjective, scorer: RewardScorer):
        self.objective = objective
        self.rejected = np.zeros(len(objective.signs), np.int64)  # of each attempt, for their text
        self._scorer = scorer
        self._step = step.build_step(scorer.graph, scorer.mesh, objective.settings)
        self.step_flops = step.step_flops(objective)
        self._inputs = step.build_step_inputs(objective, scorer)
        keys = np.stack([_stream_key(*stream) for stream in objective.streams()])
        self._state = self._put(step.start(keys, objective.initial(), objective.settings.buffer))

    def advance(self, limit: int, budget: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes up to `limit` steps, fewer if `budget` FLOPs per attempt are spent first.

        Returns:
          Of k further steps the best signed reward so far of each attempt, float32 [k, A], its
          sequence, int32 [k, A, T], and the operations of one attempt, float64 [k].
        """
        settings = self.objective.settings
        count = int(min(limit, settings.every, budget / self.step_flops))
        if count < 1:
            return np.empty((0, 0), np.float32), np.empty((0, 0, 0), np.int32), np.empty(0)
        if settings.round_trip:
            rows = [self._step_by_halves() for _ in range(count)]
            rewards, ids = (np.stack(each) for each in zip(*rows, strict=True))
        else:
            self._state, rewards, ids = self._step.many(
                self._scorer.params, self._inputs, self._state, np.int32(count)
            )
            rewards, ids = (array[:count] for array in fetch((rewards, ids)))
        return rewards, ids, np.full(count, self.step_flops)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything on which the next step depends."""
        return vars(fetch(self._state)) | {"rejected": self.rejected}

    def restore(self, arrays: Arrays) -> None:
        """The inverse of `arrays`."""
        self.rejected = np.array(arrays["rejected"])
        state = {name: array for name, array in arrays.items() if name != "rejected"}
        self._state = self._put(State(**state))

    def _step_by_halves(self) -> tuple[np.ndarray, np.ndarray]:
        """One step, with round trips between its halves; returns best rewards [A], ids [A, T]."""
        ranked = self._step.expand(self._scorer.params, self._inputs, self._state)
        kept = self._state.buffer, self._state.buffer_rewards
        every, rewards, *kept = fetch((ranked.ids, ranked.rewards, *kept))
        for ids, signed in zip(every, rewards, strict=True):
            if signed[0] == BROKEN:
                raise not_finite(ids[0])
        passes = meshes.put(self._scorer.mesh, self._passing(every, rewards, *kept), "")
        self._state = self._step.admit(self._state, ranked, passes)
        rewards, ids = fetch((self._state.best_rewards, self._state.best))
        return rewards, ids

    def _passing(
        self, every: np.ndarray, signed: np.ndarray, buffer: np.ndarray, known: np.ndarray
    ) -> np.ndarray:
        """Candidates that are admitted, bool [A, C]; only those that could be kept are checked.

        They are [A, C, T], best first, with their signed rewards; `buffer` [A, B, T] is what the
        attempts keep, with the rewards `known`.
        """
        settings = self.objective.settings
        if not settings.round_trip:
            return np.ones(signed.shape, bool)
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


def _stream_key(seed: int, *folds: int) -> np.ndarray:
    """Data of a threefry2x32 key: uint32 [2]."""
    key = jax.random.key(seed, impl="threefry2x32")
    for fold in folds:
        key = jax.random.fold_in(key, fold)
    return np.asarray(jax.random.key_data(key))


def save(
    file: epath.Path, objective: SearchObjective, model_axis: int, trace: Trace, driver: Arrays
) -> None:
    """Writes trace and driver state to a file; only on the first process."""
    if not processes.writes():
        return
    # safetensors wants C order; `ascontiguousarray` would turn scalars into vectors.
    arrays = {f"engine/{name}": np.array(a, order="C") for name, a in driver.items()}
    arrays |= {f"trace/{name}": np.array(a, order="C") for name, a in vars(trace).items()}
    metadata = {"search": json.dumps(_identity(objective, model_axis))}
    storage.write_atomic(file, safetensors.numpy.save(arrays, metadata))


def load(
    file: epath.Path, objective: SearchObjective, model_axis: int
) -> tuple[Trace, Arrays] | None:
    """Reads what `save` wrote, on process 0, for all processes; None where there is no file.

    The size of the mesh's axis `model` changes the last bits of rewards. Raises AssayError for the
    file of a search with other settings or inputs.
    """
    data = processes.bytes_from_first(f"state {file.name}", lambda: storage.read_if_there(file))
    if data is None:
        return None
    try:
        length = int.from_bytes(data[:8], "little")
        saved = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["search"])
        arrays = safetensors.numpy.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise AssayError(f"{file}: damaged; remove it and run again") from error
    wanted = json.loads(json.dumps(_identity(objective, model_axis)))
    if saved != wanted:
        names = ", ".join(k for k in wanted if saved.get(k) != wanted[k])
        raise AssayError(f"{file}: an unfinished search with another {names}; remove it to begin")
    trace = Trace(**{name: arrays[f"trace/{name}"] for name in ("rewards", "ids", "flops")})
    prefix = "engine/"
    driver = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    return trace, driver


# Any: JSON values.
def _identity(objective: SearchObjective, model_axis: int) -> dict[str, Any]:
    """Everything that must agree for a search to be resumed."""
    prompts = [[list(p.prefix), list(p.suffix)] for p in objective.prompts]
    return settings_identity(objective.settings) | {
        "checkpoint": objective.checkpoint_hash,
        "prompts": prompts,
        "tokens": int(objective.allowed.sum()),
        "model_axis": model_axis,
        "numerics": numerics(jax.default_backend()),
    }
