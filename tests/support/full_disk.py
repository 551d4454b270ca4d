"""A disk that is full after a number of writes."""

import errno
import os

from engine.errors import AssayError
from tests.support.killed import killed_after


def refusal(monkeypatch, writes: int, call) -> str:
    """The line with which a call ends where only some writes succeed; "" if they were enough.

    Args:
      monkeypatch: of the test.
      writes: files that reach the disk.
      call: what writes.
    """
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patched:
        killed_after(patched, os, "fsync", writes, full)
        try:
            call()
        except AssayError as error:
            return str(error)
    return ""
