"""The lock of a run folder, and the flag that waits for it."""

import contextlib
from contextlib import AbstractContextManager

from absl import flags
from absl.flags import FlagValues

from engine.runs import lock
from launch.common.command import Given


def define_wait(given: FlagValues) -> None:
    """Defines --wait."""
    flags.DEFINE_bool(
        "wait",
        False,
        "Wait for another command that writes the run, instead of refusing.",
        flag_values=given,
    )


def held(given: Given, run: str, command: str) -> AbstractContextManager[None]:
    """Holds the lock of a run while a command writes it; on process 0 only."""
    import jax  # here: it takes a second

    if jax.process_index() != 0:
        return contextlib.nullcontext()
    return lock.hold(run, command, wait=given.wait)
