"""One computation at a time: a queue, and the thread that works through it.

Between two steps of a computation it runs short jobs, and stops those that nobody waits for.
"""

import collections
import contextlib
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

from engine.errors import AssayError
from engine.sweep.outcomes import free_models
from launch.common.text import one_line, say

WAITING = 8  # computations that may wait


class Cancelled(Exception):
    """Nobody waits for this computation any more."""


@dataclasses.dataclass(eq=False)
class Job:
    """A computation that somebody waits for."""

    # What is computed; it calls `Desk.between` after each step. None where `first` is all.
    work: Callable[["Job"], object] | None
    # Takes the name and the data of each event; called by the thread of the desk. Any: JSON.
    listener: Callable[[str, dict[str, Any]], object]
    # A short job, run before `work`, between two steps of the current long job.
    first: Callable[["Job"], object] | None = None
    _cancelled: threading.Event = dataclasses.field(default_factory=threading.Event)

    def tell(self, event: str, **data: Any) -> None:  # Any: JSON
        """Says something to whoever waits; nobody may be there any more."""
        with contextlib.suppress(RuntimeError):  # the event loop of the server has ended
            self.listener(event, data)

    def cancel(self) -> None:
        """Has the computation end at its next step."""
        self._cancelled.set()

    def check(self) -> None:
        """Raises Cancelled if nobody waits for it."""
        if self._cancelled.is_set():
            raise Cancelled


class Desk:
    """The queue, and the thread that works."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: collections.deque[Job] = collections.deque()
        self._quick: collections.deque[Job] = collections.deque()
        self._current: Job | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="assay-desk", daemon=True)
        self._thread.start()

    def enter(self, job: Job) -> None:
        """Puts a computation into the queue; raises AssayError where it is full."""
        with self._changed:
            queues = [self._quick] * bool(job.first) + [self._waiting] * bool(job.work)
            if self._closed or any(len(queue) >= WAITING for queue in queues):
                raise AssayError(f"{WAITING} computations are waiting; try again later")
            for queue in queues:
                queue.append(job)
            self._tell_places()
            self._changed.notify()

    def leave(self, job: Job) -> None:
        """Takes a computation out of the queue, or ends it at its next step."""
        job.cancel()
        with self._changed:
            for queue in (self._waiting, self._quick):
                with contextlib.suppress(ValueError):  # it is not in this one
                    queue.remove(job)
            self._tell_places()

    def between(self, job: Job) -> None:
        """Between two steps of a computation: runs short jobs; raises Cancelled if it ends."""
        job.check()
        while True:
            with self._changed:
                if not self._quick:
                    break
                quick = self._quick.popleft()
            self._do_first(quick)
        job.check()

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends the current computation at its next step, and the thread."""
        with self._changed:
            self._closed = True
            for job in {*self._waiting, *self._quick, *filter(None, [self._current])}:
                job.cancel()
                job.tell("error", line="the server ends")
                job.tell("end")
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._quick or self._waiting)
                if self._closed:
                    return
                quick = self._quick.popleft() if self._quick else None
                if quick is None:
                    self._current = self._waiting.popleft()
                    self._tell_places()
            if quick is not None:
                self._do_first(quick)
                continue
            assert self._current is not None and self._current.work is not None
            _perform(self._current, self._current.work)
            self._current.tell("end")
            with self._changed:
                self._current = None

    def _do_first(self, job: Job) -> None:
        """Does what is short of a computation; if that fails, the rest is not done."""
        assert job.first is not None
        if not _perform(job, job.first) or job.work is None:
            self.leave(job)
            job.tell("end")

    def _tell_places(self) -> None:
        """Says to each computation that waits how many are before it."""
        for before, job in enumerate(self._waiting, 1 if self._current else 0):
            job.tell("waiting", before=before)


def _perform(job: Job, work: Callable[[Job], object]) -> bool:
    """Does a computation, or its first part; what goes wrong becomes one line.

    Returns whether it is done.
    """
    try:
        job.check()
        work(job)
        return True
    except Cancelled:
        pass
    except AssayError as error:
        job.tell("error", line=str(error))
    except Exception as error:  # the server lives on
        line = one_line(error)
        say(f"serve: {line}")
        job.tell("error", line=line)
    free_models()  # what the error's traceback holds
    return False
