"""The trace of a search: what its driver gives, when it ends, and its file.

The file holds the trace and the driver's state, so that an interrupted search is resumed from it.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
import safetensors.numpy
from etils import epath
from safetensors import SafetensorError

from engine import processes
from engine.errors import AssayError
from engine.runs import provenance, storage
from engine.search.objective import SearchObjective
from engine.settings import SearchSettings

Arrays = Mapping[str, np.ndarray]  # what a driver saves, by name


class NewSteps(NamedTuple):
    """Results of k further steps."""

    rewards: np.ndarray  # float32 [k, A], best signed reward so far after each step
    ids: np.ndarray  # int32 [k, A, T], its sequence
    flops: np.ndarray  # float64 [k], of one attempt in each step


class Driver(Protocol):
    """Takes the steps of all attempts of one search."""

    rejected: np.ndarray  # int64 [A], candidates rejected because their text does not round-trip

    def advance(self, limit: int, budget: float) -> NewSteps:
        """Takes up to `limit` steps, fewer if `budget` FLOPs per attempt are spent first."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything on which the next step depends."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The inverse of `arrays`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """The best sequence of every attempt after each of N steps.

    Rewards are signed, so that higher is better; -inf before an attempt has a sequence.
    """

    rewards: np.ndarray  # float32 [N, A]
    ids: np.ndarray  # int32 [N, A, T]
    flops: np.ndarray  # float64 [N], of one attempt, cumulative

    @classmethod
    def empty(cls, attempts: int, length: int) -> "Trace":
        """The trace before the first step."""
        return cls(
            rewards=np.empty((0, attempts), np.float32),
            ids=np.empty((0, attempts, length), np.int32),
            flops=np.empty(0),
        )

    def best(self, direction: int, settings: SearchSettings) -> tuple[np.ndarray, np.ndarray]:
        """The best attempt of one direction after each step.

        Args:
          direction: index in `settings.directions`.
          settings: of the search.

        Returns:
          Signed rewards, float32 [N], and token ids, int32 [N, T].
        """
        own = slice(direction * settings.attempts, (direction + 1) * settings.attempts)
        rewards, steps = self.rewards[:, own], np.arange(len(self.rewards))
        best = np.argmax(rewards, axis=1)
        return rewards[steps, best], self.ids[:, own][steps, best]

    def flops_per_direction(self, settings: SearchSettings) -> np.ndarray:
        """FLOPs of all attempts of one direction, cumulative: float64 [N]."""
        return self.flops * settings.attempts

    def ended(self, settings: SearchSettings) -> bool:
        """Whether all steps are done, or every direction has reached an end."""
        if len(self.flops) >= settings.steps:
            return True
        directions = range(len(settings.directions))
        return len(self.flops) > 0 and all(
            end_step(self.best(d, settings)[0], settings) is not None for d in directions
        )

    def complete(self, settings: SearchSettings) -> bool:
        """Whether every direction has a sequence."""
        directions = range(len(settings.directions))
        return len(self.flops) > 0 and all(
            np.isfinite(self.best(d, settings)[0][-1]) for d in directions
        )


def end_step(best: np.ndarray, settings: SearchSettings) -> int | None:
    """The number of steps after which threshold, target or patience ends a direction.

    Args:
      best: signed rewards of the best sequence after each step [N]; -inf: none yet.
      settings: of the search.

    Returns:
      The number of steps, or None if the direction goes on. A direction without a sequence goes on.
    """
    reached = np.isfinite(best) & (best >= min(settings.threshold, settings.target or math.inf))
    ends = [int(np.argmax(reached)) + 1] if reached.any() else []
    if settings.patience:
        risen = np.flatnonzero(np.append(np.isfinite(best[0]), best[1:] > best[:-1]))
        still = np.diff(np.append(risen, len(best))) > settings.patience
        ends += (risen[still] + settings.patience + 1).tolist()
    return min(ends, default=None)


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

    Args:
      file: that it wrote.
      objective: of the search that goes on.
      model_axis: size of its mesh's axis `model`, which changes the last bits of rewards.

    Raises:
      AssayError: the file is damaged, or belongs to a search with other settings or inputs.
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
    own = objective.settings.fingerprint(objective.settings.direction)
    return own | {
        "checkpoint": objective.checkpoint_hash,
        "prompts": prompts,
        "tokens": int(objective.allowed.sum()),
        "model_axis": model_axis,
        "numerics": provenance.numerics(jax.default_backend()),
    }
