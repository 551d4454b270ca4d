"""Pipelines: lists of steps, each of which keeps finished work and resumes by itself.

`run` runs a list of steps (`launch.demo.STEPS`: a new step is one line there). `for_each` runs the
stages of each model (`launch.reproduce`: a new one is a member of `Stage` and a line of `STEPS`).
"""

import dataclasses
import functools
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

from engine.errors import AssayError
from engine.runs.lock import LockError
from launch.common.text import say

Work = TypeVar("Work")
Item = TypeVar("Item")
# A step says what it does in a line, by its second argument.
Step = Callable[[Work, Callable[[str], None]], None]


@dataclasses.dataclass
class State:
    """What became of one model in a pipeline over several.

    Attributes:
      name: of the model, for readers.
      failure: why it failed, one line; "" where it did not.
      seconds: wall time.
    """

    name: str
    failure: str = ""
    seconds: float = 0.0


def run(steps: Sequence[Step[Work]], work: Work) -> None:
    """Runs steps in order; each line of progress has the step's number."""
    for number, step in enumerate(steps, 1):
        prefix = f"{number}/{len(steps)}"
        step(work, functools.partial(_say_numbered, prefix))


def _say_numbered(prefix: str, line: str) -> None:
    say(f"{prefix} {line}")


def for_each(
    items: Sequence[Item], names: Sequence[str], do: Callable[[Item, State], None]
) -> list[State]:
    """Runs the steps of each model; one that fails does not stop the others.

    Args:
      items: the models.
      names: of the models, for readers.
      do: runs the steps of one; it may note a failure in the state and go on.

    Raises:
      LockError: another command writes a run.
    """
    states = [State(name) for name in names]
    for item, state in zip(items, states, strict=True):
        began = time.monotonic()
        try:
            do(item, state)
        except LockError:
            raise
        except Exception as error:  # whatever it is, the other models need not wait for it
            state.failure = "; ".join(filter(None, [state.failure, one_line(error)]))
            say(f"{state.name}: {state.failure}; going on with the other models")
        state.seconds = time.monotonic() - began
    return states


def one_line(error: Exception) -> str:
    """An error in one line; an unexpected one with its type. `python -X dev` prints its place."""
    if isinstance(error, AssayError):
        return " ".join(str(error).split())
    if sys.flags.dev_mode:
        traceback.print_exception(error)
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"[:500]
