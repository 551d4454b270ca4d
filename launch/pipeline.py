"""Pipelines: lists of steps, each of which keeps finished work and resumes by itself.

`assay demo` and `assay reproduce` are the lists `STEPS` of their modules: a new step is a function
and one line there.
"""

import dataclasses
import functools
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from engine.errors import AssayError
from engine.runs.lock import LockError
from launch.common import text

Work = TypeVar("Work")
Say = Callable[[str], None]  # prints a line of progress
Step = Callable[[Work, Say], None]


class Dispensable(AssayError):
    """A step failed, and those after it do not need its results."""


@dataclasses.dataclass
class ModelState:
    """What became of one model.

    Attributes:
      name: of the model, for readers.
      failure: why it failed, one line; "" where it did not.
      seconds: wall time.
    """

    name: str
    failure: str = ""
    seconds: float = 0.0


def run(steps: Sequence[Step[Work]], work: Work) -> None:
    """Runs steps in order; each line of progress begins with the step's number."""
    for number, step in enumerate(steps, 1):
        step(work, functools.partial(_say_after, f"{number}/{len(steps)} "))


def run_each(
    steps: Sequence[Step[Work]], works: Mapping[str, Callable[[], Work]]
) -> list[ModelState]:
    """Runs the steps for each model by name; one that fails does not stop the next.

    What the steps take is made when they begin. Raises LockError if another command writes a run.
    """
    states = []
    for number, (name, make) in enumerate(works.items(), 1):
        text.say(f"[{number}/{len(works)}] {name}")
        state = ModelState(name)
        states.append(state)
        began, work = time.monotonic(), make()
        try:
            for step in steps:
                _run_dispensable(step, work, state)
        except LockError:
            raise
        except Exception as error:  # whatever it is, the other models need not wait for it
            _note(state, error, "the other models")
        state.seconds = time.monotonic() - began
    return states


def _run_dispensable(step: Step[Work], work: Work, state: ModelState) -> None:
    try:
        step(work, functools.partial(_say_after, f"{state.name}: "))
    except Dispensable as error:
        _note(state, error, "the next step")


def _note(state: ModelState, error: Exception, following: str) -> None:
    state.failure = "; ".join(filter(None, [state.failure, one_line(error)]))
    text.say(f"{state.name}: {state.failure}; going on with {following}")


def _say_after(prefix: str, line: str) -> None:
    text.say(f"{prefix}{line}")


def one_line(error: Exception) -> str:
    """An error in one line; an unexpected one with its type. `python -X dev` prints its place."""
    if isinstance(error, AssayError):
        return " ".join(str(error).split())
    if sys.flags.dev_mode:
        traceback.print_exception(error)
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"[:500]
