"""What became of each model of a command: rows, seconds, and the reason where it failed."""

import contextlib
import dataclasses
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import jax
from jax.sharding import Mesh
from tqdm import tqdm

from engine import processes
from engine.errors import AssayError, OutOfMemory
from engine.runs import schema
from engine.runs.lock import LockError
from engine.runs.manifest import Manifest
from engine.runs.parts import Span


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """One model of a command.

    Attributes:
      model: slug.
      prompts: results that were asked for.
      done: results that are complete.
      rows: rows that this command computed.
      seconds: wall time of loading and computing; models that share a pass share it equally.
      failure: why the model is not complete; "" if it is.
    """

    model: str
    prompts: int
    done: int
    rows: int
    seconds: float
    failure: str = ""


Made = TypeVar("Made")
Ended = Callable[[Sequence[Outcome]], object]  # called when every model was computed or failed


class SomeFailed(AssayError):
    """Some models of a command failed; the others are complete."""

    exit_status = 1

    def __init__(self, outcomes: Sequence[Outcome]):
        failed = [outcome.model for outcome in outcomes if outcome.failure]
        rest = "; the others are complete" if len(failed) < len(outcomes) else ""
        super().__init__(
            f"{len(failed)} of {len(outcomes)} models failed: {', '.join(failed)}{rest}"
        )


class FailedEverywhere(AssayError):
    """Models that failed for all processes, none of which computes them."""


class Asked(Protocol):
    """A result of the host loop."""

    @property
    def model(self) -> str:
        """The model's slug."""

    @property
    def path(self) -> str:
        """Its folder, relative to the run."""

    @property
    def spans(self) -> Sequence[Span]:
        """Row ranges of the parts that were missing."""


def free_models() -> None:
    """Frees the models that nobody uses any more, before another one is loaded.

    They stand in reference cycles: of flax's functions that flatten them, and of tracebacks.
    """
    gc.collect()


class Ledger:
    """Time and failures of the groups of models that are loaded together."""

    def __init__(self, models: Sequence[str]):
        self._seconds = dict.fromkeys(models, 0.0)
        self._failures: dict[str, str] = {}

    @contextlib.contextmanager
    def group(self, models: Sequence[str]) -> Iterator[None]:
        """Times what is done with models that share a pass, and records its failure.

        Args:
          models: slugs; those that have not failed alone fail together.

        Raises:
          AssayError: as `fail`.
        """
        if self._failures or any(self._seconds.values()):
            free_models()
        began = time.perf_counter()
        try:
            yield
        except AssayError as error:
            self.fail([m for m in models if m not in self._failures] or models, error)
        for model in models:
            self._seconds[model] += (time.perf_counter() - began) / len(models)

    def fail(self, models: Sequence[str], error: AssayError, *, known: bool = False) -> None:
        """Records why some models failed, and says so; the others go on.

        Args:
          models: slugs.
          error: what they failed of.
          known: whether the other processes know of it, or will ask (`all_failed`).

        Raises:
          AssayError: `error`, where nothing can go on: there are no other models, another command
            writes the run, or other processes would wait for this one in a pass that it left.
        """
        left = processes.count() > 1 and not (known or isinstance(error, FailedEverywhere))
        if left or not self.has_others(models) or isinstance(error, LockError):
            raise error
        self._failures = dict.fromkeys(models, str(error)) | self._failures
        if processes.writes():
            tqdm.write(f"{error}; going on with the other models", file=sys.stderr)

    def everywhere(self, models: Sequence[str], what: str, call: Callable[[], Made]) -> Made:
        """Runs `call` on every process and returns its value; fails on all if any fails.

        On TPUs all processes end unless all fail for the same reason.

        Args:
          models: that fail together if it fails anywhere.
          what: name of the call.
          call: needs no other process until it has succeeded.

        Raises:
          FailedEverywhere: it raised an AssayError on some process; raised on all of them.
          AssayError: it did so on this one, and there are no other processes, or no other models.
        """
        made, reason = [], ""
        try:
            made.append(call())
        except AssayError as error:
            if processes.count() == 1 or not self.has_others(models):
                raise
            reason = str(error)
        # A process that fails has launched fewer programs than the others. TPUs may halt if hosts
        # launch programs in different orders.
        in_order = jax.default_backend() == "tpu"
        what = f"{what} of {', '.join(models)}"
        if reason := processes.first_failure(what, reason, alike=in_order):
            made.clear()  # before other models are loaded
            raise FailedEverywhere(reason)
        return made.pop()

    def has_others(self, models: Sequence[str]) -> bool:
        """Whether there are models beside some of them."""
        return any(model not in models for model in self._seconds)

    def failed(self, model: str) -> bool:
        """Whether a model has failed, as far as this process knows."""
        return model in self._failures

    def all_failed(self, models: Sequence[str]) -> bool:
        """Whether all of some models have failed, as process 0 knows it; all processes ask."""
        return processes.from_first(
            f"failures of {', '.join(models)}", lambda: all(map(self.failed, models))
        )

    def outcomes(self, manifest: Manifest, results: Sequence[Asked]) -> list[Outcome]:
        """What became of each model, in the order of their first results."""
        outcomes = []
        for model in dict.fromkeys(result.model for result in results):
            own = [result for result in results if result.model == model]
            records = [manifest.result(result.path) for result in own]
            rows = sum(
                stop - start
                for result, record in zip(own, records, strict=True)
                for start, stop in result.spans
                if schema.part_name(start, stop) in record["parts"]
            )
            outcome = Outcome(
                model=model,
                prompts=len(own),
                done=sum(record["complete"] for record in records),
                rows=rows,
                seconds=self._seconds[model],
                failure=self._failures.get(model, ""),
            )
            outcomes.append(outcome)
        return outcomes


@contextlib.contextmanager
def memory_errors(models: Sequence[str], mesh: Mesh, setting: str, value: int) -> Iterator[None]:
    """Turns "out of memory", of a device or of the host, into one line.

    Args:
      models: slugs that are loaded together.
      mesh: the devices.
      setting: name of the setting that says how much is computed in a step.
      value: its value.

    Raises:
      OutOfMemory: memory ran out inside.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        on_host = isinstance(error, MemoryError)
        if not on_host and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        where = "the host" if on_host else "a device"
        devices = " × ".join(f"{axis}={size}" for axis, size in mesh.shape.items())
        raise OutOfMemory(
            f"{', '.join(models)}: {where} is out of memory (mesh {devices}, "
            f"{setting}={value}); lower {setting}, or raise mesh.model"
        ) from None
