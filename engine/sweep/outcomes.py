"""What became of each model of a command: rows, seconds, and the reason where it failed."""

import collections
import contextlib
import dataclasses
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence

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
        """Times the work on models of one pass; an AssayError fails those that had not failed.

        With several processes it is raised instead, and names the models.
        """
        if any(outcome.failure or outcome.seconds for outcome in self._of.values()):
            free_models()
        began = time.perf_counter()
        try:
            yield
        except AssayError as error:
            if processes.count() > 1 and not any(model in str(error) for model in models):
                raise AssayError(f"model {', '.join(models)}: {error}") from error
            self.fail([m for m in models if not self._of[m].failure] or models, error)
        for model in models:
            self._of[model].seconds += (time.perf_counter() - began) / len(models)

    def fail(self, models: Sequence[str], error: AssayError) -> None:
        """Records why some models failed, and says so; the other models go on.

        Raises AssayError where nothing can go on: there are no other models, or other processes
        would wait for this one in a pass that it left.
        """
        if processes.count() > 1 or all(model in models for model in self._of):
            raise error
        for model in models:
            self._of[model].failure = self._of[model].failure or str(error)
        tqdm.write(f"{error}; going on with the other models", file=sys.stderr)

    def all_failed(self, models: Sequence[str]) -> bool:
        """Whether all given models have failed."""
        return all(self._of[model].failure for model in models)


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
        place = "the host" if on_host else "a device"
        devices = " × ".join(f"{axis}={size}" for axis, size in mesh.shape.items())
        raise OutOfMemory(
            f"{', '.join(models)}: {place} is out of memory (mesh {devices}, "
            f"{setting}={value}); lower {setting}, or raise mesh.model"
        ) from None
