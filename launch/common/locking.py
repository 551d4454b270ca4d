"""The lock of a run folder, and the flag that waits for it."""

import contextlib
from collections.abc import Iterator

from engine import processes
from engine.runs import lock, storage
from launch.common.command import Flags, Given

WAIT: Flags = {
    "wait": (False, "Wait for another command that writes the run, instead of refusing.")
}


def run_lock(given: Given, run: str, command: str) -> contextlib.AbstractContextManager[None]:
    """Holds the lock of a run while a command writes it; on process 0 only."""
    return (
        lock_and_clean(run, command, given.wait) if processes.writes() else contextlib.nullcontext()
    )


@contextlib.contextmanager
def lock_and_clean(run: str, command: str, wait: bool = False) -> Iterator[None]:
    """Holds the lock of a run, which a signal releases too; removes what killed commands left."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock.hold(run, command, wait=wait))
        storage.remove_leftovers(storage.path_of(run))
        forget = processes.at_exit(stack.close)
        try:
            yield
        finally:
            forget()
