"""The progress bar of all commands: work done, rate, time left."""

import sys
import threading

from tqdm import tqdm

from engine import processes


class _Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """A bar whose lock is of this process alone: tqdm's own is shared with forked processes."""


_Bar.set_lock(threading.RLock())
# Run last: once the bars are closed no other is drawn, so the line of an error stands alone.
processes.at_exit(_Bar.get_lock().acquire)


def progress(
    total: int, unit: str = "candidates", *, what: str | None = None, delay_s: float = 0.0
) -> tqdm:
    """A progress bar on standard error; silent without work, and on all processes but the first.

    Args:
      total: units of work.
      unit: their name.
      what: description in front of the bar.
      delay_s: seconds after which the bar appears; a bar with a delay is removed when it is done.
    """
    quiet = not processes.writes() or total == 0
    interval = 0.5 if sys.stderr.isatty() else 15.0
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
    if not quiet:
        processes.at_exit(bar.close)  # so that the last line stands on a line of its own
    return bar
