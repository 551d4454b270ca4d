"""SIGTERM, and the signal that SLURM sends before it: an orderly end within a second.

Python runs signal handlers between two steps of the main thread, which may be minutes apart while
XLA compiles. So a thread waits for the byte that the interpreter writes when a signal arrives.
"""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
STOPPED = 143  # exit code: 128 + SIGTERM


@contextlib.contextmanager
def on_signal(stop: Callable[[str], object]) -> Iterator[None]:
    """Calls `stop` with a signal's name, in a thread; does nothing outside the main thread.

    Args:
      stop: ends the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    watcher = threading.Thread(target=_watch, args=[reader, stop], daemon=True)
    watcher.start()
    before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        writer.close()
        watcher.join()
        reader.close()


def _watch(reader: socket.socket, stop: Callable[[str], object]) -> None:
    while received := reader.recv(1):
        if received[0] in SIGNALS:
            stop(signal.Signals(received[0]).name)
