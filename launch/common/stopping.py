"""SIGTERM, what SLURM and a lost terminal send, and Ctrl-C: an orderly end within a second.

Python runs signal handlers between two steps of the main thread, which may be minutes apart while
XLA compiles. So a thread waits for the byte that the interpreter writes when a signal arrives.
"""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from engine import processes

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
STOPPED, INTERRUPTED = 143, 130  # exit codes: 128 + SIGTERM or SIGINT
INTERRUPTION = "interrupted; run it again to go on"


def end(name: str, received: str) -> NoReturn:
    """Ends all processes of the command `name`, because this one received a signal."""
    if received == signal.SIGINT.name:
        processes.fail(name, INTERRUPTION, INTERRUPTED)
    processes.fail(name, f"stopped by {received}; run it again to go on", STOPPED)


@contextlib.contextmanager
def on_signal(
    stop: Callable[[str], object], signals: Sequence[signal.Signals] = SIGNALS
) -> Iterator[None]:
    """Calls `stop` with a signal's name, in a thread; does nothing outside the main thread.

    Args:
      stop: ends the process.
      signals: for which it is called; of two nested contexts the inner one counts. Several
        processes also stop for Ctrl-C, which would not reach a main thread that waits for another
        process. SIGHUP stays ignored where it is, as under `nohup`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signals = [number for number in signals if number != signal.SIGHUP]
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    watcher = threading.Thread(target=_watch, args=[reader, stop, signals], daemon=True)
    watcher.start()
    before = {number: signal.signal(number, lambda *_: None) for number in signals}
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


def _watch(
    reader: socket.socket, stop: Callable[[str], object], signals: Sequence[signal.Signals]
) -> None:
    while received := reader.recv(1):
        waits = received[0] == signal.SIGINT and processes.count() > 1
        if received[0] in signals or waits:
            stop(signal.Signals(received[0]).name)
