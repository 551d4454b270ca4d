"""What became of each model of a command: rows, seconds, and the reason where it failed."""

import collections
import contextlib
import dataclasses
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import jax
import polars as pl
from jax.sharding import Mesh
from tqdm import tqdm

from engine import processes
from engine.errors import AssayError


@dataclasses.dataclass(kw_only=True)
class Outcome:
    """One model of a command."""

    model: str  # slug
    prompts: int  # jobs of the model
    done: int = 0  # jobs that are complete
    rows: int = 0  # that this command computed
    seconds: float = 0.0  # of loading and computing; models of one pass share it equally
    first_row: str = ""  # of a list, as the model reads it (`Rows.first_row`)
    failure: str = ""  # why the model is not complete; "" if it is


Made = TypeVar("Made")
OnOutcomes = Callable[[Sequence[Outcome]], object]  # called when every model was computed or failed
# Called with a model's slug, a prompt's id, a frame of token_id, token and reward, and the number
# of tokens that have no reward yet.
OnRewards = Callable[[str, str, pl.DataFrame, int], object]


class SomeFailed(AssayError):
    """Some models of a command failed; the rest are complete."""

    exit_status = 1

    def __init__(self, outcomes: Sequence[Outcome]):
        failed = [outcome.model for outcome in outcomes if outcome.failure]
        rest = "; the others are complete" if len(failed) < len(outcomes) else ""
        super().__init__(
            f"{len(failed)} of {len(outcomes)} models failed: {', '.join(failed)}{rest}"
        )


class OutOfMemory(AssayError):
    """A device or the host has too little memory for a step."""


class FailedEverywhere(AssayError):
    """Models that failed on some process, so that every process leaves them out."""


def free_models() -> None:
    """Frees the models that nobody uses any more, before another one is loaded.

    They stand in reference cycles: of flax's functions that flatten them, and of tracebacks.
    """
    gc.collect()


class Outcomes:
    """What becomes of the models of a command; where some fail, the rest go on.

    It is made of the slug of each job.
    """

    def __init__(self, models: Sequence[str]):
        self._of = {
            model: Outcome(model=model, prompts=prompts)
            for model, prompts in collections.Counter(models).items()
        }

    def __getitem__(self, model: str) -> Outcome:
        """The outcome of a model so far."""
        return self._of[model]

    def all(self) -> list[Outcome]:
        """The outcome of every model, in the order of their first jobs."""
        return list(self._of.values())

    @contextlib.contextmanager
    def group(self, models: Sequence[str]) -> Iterator[None]:
        """Times the work on models of one pass; an AssayError fails those that had not failed."""
        if any(outcome.failure or outcome.seconds for outcome in self._of.values()):
            free_models()
        began = time.perf_counter()
        try:
            yield
        except AssayError as error:
            self.fail([m for m in models if not self._of[m].failure] or models, error)
        for model in models:
            self._of[model].seconds += (time.perf_counter() - began) / len(models)

    def fail(self, models: Sequence[str], error: AssayError, *, known: bool = False) -> None:
        """Records why some models failed, and says so; the other models go on.

        `known` says whether the other processes know of it, or will call `agree_all_failed`.

        Raises:
          AssayError: `error`, where nothing can go on: there are no other models, or other
            processes would wait for this one in a pass that it left.
        """
        left = processes.count() > 1 and not (known or isinstance(error, FailedEverywhere))
        if left or not self._has_more_than(models):
            raise error
        for model in models:
            self._of[model].failure = self._of[model].failure or str(error)
        if processes.writes():
            tqdm.write(f"{error}; going on with the other models", file=sys.stderr)

    def agree_all_failed(self, models: Sequence[str]) -> bool:
        """Whether all given models have failed, by process 0; every process must call this."""
        return processes.from_first(
            f"failures of {', '.join(models)}",
            lambda: all(self._of[model].failure for model in models),
        )

    def everywhere(self, models: Sequence[str], what: str, call: Callable[[], Made]) -> Made:
        """Runs `call` on every process; the models fail on all of them if it fails on any.

        `call` must not wait for other processes; `what` names it in messages.

        Raises:
          FailedEverywhere: it raised an AssayError on some process; raised on all of them.
          AssayError: `call` raised it here, and there is only one process, or no other model.
        """
        made, reason = [], ""
        try:
            made.append(call())
        except AssayError as error:
            if processes.count() == 1 or not self._has_more_than(models):
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

    def _has_more_than(self, models: Sequence[str]) -> bool:
        return any(model not in models for model in self._of)


@contextlib.contextmanager
def memory_errors(models: Sequence[str], mesh: Mesh, setting: str, value: int) -> Iterator[None]:
    """Turns "out of memory", of a device or of the host, into an `OutOfMemory` of one line.

    `setting` is the name of the one that says how much is computed in a step, `value` its value.
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
