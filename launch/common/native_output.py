"""What C++ libraries print past Python, in one of several processes.

Gloo announces its connections on standard output, where the result belongs. And when process 0 is
gone, jax's client in the others prints a stack trace and aborts, some hundredths of a second later;
`engine.control` has noticed the same, and ends the process with one line.
"""

import ctypes
import os
import select
import signal
import sys
import threading
import time

_DUMP = (b"coordination_service", b"JAX distributed service")  # begins what jax's client prints
_HELD_S = 5.0  # for the line to come instead


def tame(*, follows: bool) -> None:
    """Keeps C++ off standard output; `follows`: holds back jax's trace, on all but process 0."""
    output = os.dup(1)
    sys.stdout.flush()
    sys.stdout = os.fdopen(output, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if follows:
        _hold_traces()


def _hold_traces() -> None:
    errors = os.dup(2)
    sys.stderr.flush()
    sys.stderr = os.fdopen(errors, "w", buffering=1, errors="backslashreplace")
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    threading.Thread(target=_relay, args=[reader, errors], daemon=True).start()
    # A handler is called with the signal's number, which is 6: an abort sleeps for six seconds, in
    # which the line is printed, or what was held back if there is none.
    library = ctypes.CDLL(None)
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.signal(signal.SIGABRT, ctypes.cast(library.sleep, ctypes.c_void_p))


def _relay(reader: int, errors: int) -> None:
    """Copies what comes through a pipe, with a delay from where jax's trace begins."""
    held, since = b"", 0.0
    while True:
        waiting = max(0.0, since + _HELD_S - time.monotonic()) if held else None
        ready, _, _ = select.select([reader], [], [], waiting)
        received = os.read(reader, 65536) if ready else b""
        if not held and any(mark in received for mark in _DUMP):
            since = time.monotonic()
            held = received
        elif held and ready:
            held += received
        else:
            os.write(errors, held + received)
            held = b""
