"""A disk that is full after a number of writes."""

import errno
import os

from engine.errors import AssayError


def refusal(monkeypatch, writes: int, call) -> str:
    """The line with which a call ends where only some writes succeed; "" if they were enough.

    Args:
      monkeypatch: of the test.
      writes: files that reach the disk.
      call: what writes.
    """
    original, left = os.fsync, iter(range(writes))

    def full(descriptor):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        try:
            call()
        except AssayError as error:
            return str(error)
    return ""
