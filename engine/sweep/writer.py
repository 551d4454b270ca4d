"""Writing beside the next step."""

import concurrent.futures
import contextlib
from collections.abc import Callable

from engine import processes
from engine.errors import AssayError
from engine.runs.manifest import Manifest


class Writer:
    """Writes beside the next step, one write at a time.

    An error of a write surfaces at the next one, or at the end. The manifest is saved at the end,
    also that of a run that fails or is stopped.
    """

    def __init__(self, manifest: Manifest):
        self._manifest = manifest
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "assay-write")
        self._last: concurrent.futures.Future[object] | None = None

    def submit(self, write: Callable[[], object]) -> None:
        """Starts a write when the one before it has ended."""
        self.settle()
        self._last = self._pool.submit(write)

    def settle(self) -> None:
        """Waits until everything is written."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        done = False
        try:
            self.settle()
            done = kind is None
        finally:
            self._pool.shutdown()
            if not done and processes.writes():
                with contextlib.suppress(AssayError):  # the first error is the one to report
                    self._manifest.save()
