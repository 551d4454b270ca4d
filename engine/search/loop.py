"""The loop of one search: steps until it ends, its trace, its state on disk."""

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from etils import epath
from safetensors import SafetensorError

from engine.errors import AssayError
from engine.runs import parts
from engine.scoring.reward_passes import Scorer
from engine.search.baselines import Sweep
from engine.search.buffer import BROKEN
from engine.search.climb import Climb
from engine.search.objective import Problem, not_finite
from engine.search.settings import CLIMBS, SearchSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """The best after each of N steps, of every attempt; rewards are signed, -inf: none yet."""

    rewards: np.ndarray  # float32 [N, A]
    ids: np.ndarray  # int32 [N, A, T]
    flops: np.ndarray  # float64 [N], of one attempt, cumulative

    def best(self, direction: int, settings: SearchSettings) -> tuple[np.ndarray, np.ndarray]:
        """Rewards [N] and ids [N, T] of the best attempt of one direction, by its index."""
        own = slice(direction * settings.attempts, (direction + 1) * settings.attempts)
        rewards, steps = self.rewards[:, own], np.arange(len(self.rewards))
        best = np.argmax(rewards, axis=1)
        return rewards[steps, best], self.ids[:, own][steps, best]

    def flops_of(self, settings: SearchSettings) -> np.ndarray:
        """FLOPs of a direction, all of its attempts, cumulative: float64 [N]."""
        return self.flops * settings.attempts


def end_of(best: np.ndarray, settings: SearchSettings) -> int | None:
    """After how many steps a direction ends by threshold, target or patience; None: it goes on.

    Nothing ends it before it has found a sequence.
    """
    reached = np.isfinite(best) & (best >= min(settings.threshold, settings.target or math.inf))
    ends = [int(np.argmax(reached)) + 1] if reached.any() else []
    if settings.patience:
        risen = np.flatnonzero(np.append(np.isfinite(best[0]), best[1:] > best[:-1]))
        still = np.diff(np.append(risen, len(best))) > settings.patience
        ends += (risen[still] + settings.patience + 1).tolist()
    return min(ends, default=None)


def run(
    problem: Problem,
    scorer: Scorer,
    state: epath.Path | None,
    progress: Callable[[int, Trace], object],
) -> tuple[Trace, dict[str, int]]:
    """Runs a search to its end, or goes on with the one in `state`.

    Args:
      problem: what is searched.
      scorer: the model.
      state: file that holds where it stands; None keeps nothing.
      progress: told after each dispatch how many steps are done, and the trace so far.

    Returns:
      The trace, and how many candidates of each direction were rejected for their text.

    Raises:
      AssayError: a reward that is not finite (the ids named); a direction ended before any
        sequence was found; `state` is of another search.
    """
    settings = problem.settings
    engine: Climb | Sweep = (Climb if settings.method in CLIMBS else Sweep)(problem, scorer)
    attempts = len(problem.signs)
    trace = Trace(
        rewards=np.empty((0, attempts), np.float32),
        ids=np.empty((0, attempts, settings.length), np.int32),
        flops=np.empty(0),
    )
    if state is not None and state.exists():
        trace = _resume(state, problem, engine)
    saved = len(trace.flops)
    while not _ended(trace, settings):
        spent = trace.flops[-1] if len(trace.flops) else 0.0
        budget = settings.flops / settings.attempts - spent if settings.flops else math.inf
        rewards, ids, costs = engine.advance(settings.steps - len(trace.flops), budget)
        if not len(costs):
            break
        trace = Trace(
            rewards=np.concatenate([trace.rewards, rewards]),
            ids=np.concatenate([trace.ids, ids]),
            flops=np.append(trace.flops, spent + np.cumsum(costs)),
        )
        _check(trace)
        progress(len(trace.flops), trace)
        if state is not None and len(trace.flops) - saved >= settings.every:
            _save(state, problem, engine, trace)
            saved = len(trace.flops)
    if not _found(trace, settings):
        if state is not None and jax.process_index() == 0:
            state.unlink(missing_ok=True)  # it leads nowhere else
        raise AssayError(
            f"method={settings.method!r} ended before it found a sequence of {settings.length} "
            "tokens; allow it more steps or flops, or round_trip=False"
        )
    return trace, problem.rejects(engine.rejected)


def _ended(trace: Trace, settings: SearchSettings) -> bool:
    if len(trace.flops) >= settings.steps:
        return True
    directions = range(len(settings.directions))
    return len(trace.flops) > 0 and all(
        end_of(trace.best(d, settings)[0], settings) is not None for d in directions
    )


def _found(trace: Trace, settings: SearchSettings) -> bool:
    """Whether every direction has a sequence."""
    directions = range(len(settings.directions))
    return len(trace.flops) > 0 and all(
        np.isfinite(trace.best(d, settings)[0][-1]) for d in directions
    )


def _check(trace: Trace) -> None:
    bad = (trace.rewards[-1] == BROKEN) | np.isnan(trace.rewards[-1])
    if bad.any():
        raise not_finite(trace.ids[-1, np.argmax(bad)])


def _save(state: epath.Path, problem: Problem, engine: Climb | Sweep, trace: Trace) -> None:
    if jax.process_index() != 0:
        return
    # safetensors wants C order; `ascontiguousarray` would make vectors of scalars.
    arrays = {f"engine/{name}": np.array(a, order="C") for name, a in engine.arrays().items()}
    arrays |= {f"trace/{name}": np.array(a, order="C") for name, a in vars(trace).items()}
    metadata = {"search": json.dumps(_identity(problem))}
    parts.write_atomic(state, safetensors.numpy.save(arrays, metadata))


def _resume(state: epath.Path, problem: Problem, engine: Climb | Sweep) -> Trace:
    data = state.read_bytes()
    try:
        length = int.from_bytes(data[:8], "little")
        found = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["search"])
        arrays = safetensors.numpy.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise AssayError(f"{state}: damaged; remove it and run again") from error
    wanted = json.loads(json.dumps(_identity(problem)))
    if found != wanted:
        names = ", ".join(k for k in wanted if found.get(k) != wanted[k])
        raise AssayError(f"{state}: an unfinished search with another {names}; remove it to begin")
    engine.restore(
        {k.removeprefix("engine/"): v for k, v in arrays.items() if k.startswith("engine/")}
    )
    return Trace(**{name: arrays[f"trace/{name}"] for name in ("rewards", "ids", "flops")})


def _identity(problem: Problem) -> dict[str, Any]:
    prompts = [[list(p.prefix), list(p.suffix)] for p in problem.prompts]
    own = problem.settings.fingerprint(problem.settings.direction)
    return own | {
        "checkpoint": problem.checkpoint_hash,
        "prompts": prompts,
        "tokens": int(problem.allowed.sum()),
    }
