"""The one progress bar: what is done, the rate, the time left."""

import sys

import jax
from tqdm import tqdm


def progress(
    total: int, unit: str = "candidates", *, what: str | None = None, delay_s: float = 0.0
) -> tqdm:
    """The progress line of a command; silent where there is nothing to do.

    One with a delay is for what may take long, and leaves nothing behind.
    """
    quiet = jax.process_index() != 0 or total == 0
    interval = 0.5 if sys.stderr.isatty() else 15.0
    return tqdm(total=total, desc=what, unit=f" {unit}", unit_scale=True, delay=delay_s,
                leave=not delay_s, mininterval=interval, disable=quiet, smoothing=0.1,
                dynamic_ncols=True)  # fmt: skip
