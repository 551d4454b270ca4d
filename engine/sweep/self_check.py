"""Checks of computed numbers: that they are finite, and that they agree with the plain pass."""

from collections.abc import Sequence

import numpy as np

from engine.errors import AssayError

# Largest allowed difference between a written number and the plain pass's, relative to
# max(1, |number|): the difference between two orders of summation in that dtype, with a margin.
SELF_CHECK_TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}


def check_finite(
    model: str,
    key: str,
    start: int,
    names: Sequence[str],
    values: np.ndarray,
    ids: Sequence[int] | Sequence[str] | None = None,
) -> None:
    """Raises AssayError for numbers [columns, rows] that are not finite; it names column and rows.

    `key` is the name of the rows' `ids`, which are their numbers from `start` on by default.
    """
    for name, numbers in zip(names, values, strict=True):
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            first = [start + i if ids is None else ids[i] for i in bad[:5]]
            said = ", ".join(map(str, first)) + (", …" if len(bad) > 5 else "")
            raise AssayError(
                f"model {model!r}: the {name} is not finite for {key} {said} "
                f"({len(bad)} of {len(numbers)} rows from {start}); none of these rows was written"
            )


def self_check(
    where: str,
    names: Sequence[str],
    sample: np.ndarray,
    written: np.ndarray,
    plain: np.ndarray,
    dtype: str,
) -> dict[str, float]:
    """Compares written numbers [columns, sampled] with those of the plain pass.

    `where` and `sample`, the ids of the rows, are for the message; `dtype` decides the tolerance.

    Returns:
      candidates, max_abs_difference and tolerance, for the manifest.

    Raises:
      AssayError: a difference beyond tolerance, with its row, its column and both numbers.
    """
    tolerance, difference = SELF_CHECK_TOLERANCE[dtype], np.abs(written - plain)
    scale = np.maximum(1, np.abs(plain))
    column, row = map(int, np.unravel_index(np.argmax(difference / scale), scale.shape))
    allowed = tolerance * float(scale[column, row])
    if not difference[column, row] <= allowed:
        raise AssayError(
            f"{where}: row {sample[row]} has {names[column]} {written[column, row]:.6g}, "
            f"the plain pass gives {plain[column, row]:.6g}; allowed difference {allowed:.2g}"
        )
    largest = float(difference.max())
    return {"candidates": len(sample), "max_abs_difference": largest, "tolerance": tolerance}
