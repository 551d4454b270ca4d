"""The progress bar of all commands: work done, rate, time left."""

import sys

import jax
from tqdm import tqdm


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
    quiet = jax.process_index() != 0 or total == 0
    interval = 0.5 if sys.stderr.isatty() else 15.0
    return tqdm(
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
