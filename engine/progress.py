"""The progress bar of all commands: work done, rate, time left."""

import sys
import threading

from tqdm import tqdm

from engine import processes


class _Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """A bar whose lock is of this process alone; tqdm's lock is shared with forked processes."""

    def close(self) -> None:
        """See tqdm; one thread at a time."""
        with self.get_lock():
            super().close()
            _open.discard(self)


_Bar.set_lock(threading.RLock())
_open: set[_Bar] = set()


def _close_all() -> None:
    """Closes all bars, and draws no other from now on: the line of an error stands alone."""
    _Bar.get_lock().acquire()
    for bar in list(_open):
        bar.close()


processes.at_exit(_close_all)


def progress(
    total: int, unit: str = "candidates", *, what: str | None = None, delay_s: float = 0.0
) -> tqdm:
    """A progress bar on standard error; silent without work, and on all processes but the first.

    It appears after `delay_s` seconds; one with a delay is removed when it is done.
    """
    quiet = not processes.writes() or total == 0
    interval = 0.5 if sys.stderr.isatty() else 15.0
    with _Bar.get_lock():
        bar = _Bar(
            total=total,
            desc=what,
            unit=f" {unit}",
            unit_scale=True,
            delay=delay_s,
            leave=not delay_s,
            mininterval=interval,
            disable=quiet,
            smoothing=0.1,
            dynamic_ncols=True,
        )
        _open.add(bar)
    return bar
