"""What numbers are held against before they count: finite, and those of the plain pass."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.errors import AssayError

# Largest allowed difference between what was written and the plain pass, relative to
# max(1, |number|): what two orders of summation differ by in that dtype, with a margin.
SELF_CHECK_TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}


def check_finite(
    model: str, key: str, start: int, names: Sequence[str], values: np.ndarray
) -> None:
    """Refuses numbers that are not finite.

    Args:
      model: slug.
      key: what the rows are counted in: `token_id`, `item_id`.
      start: the first row.
      names: of the columns.
      values: [columns, rows].

    Raises:
      AssayError: such a number, with its column and the rows.
    """
    for name, numbers in zip(names, values, strict=True):
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            ids = ", ".join(str(start + i) for i in bad[:5]) + (", …" if len(bad) > 5 else "")
            raise AssayError(
                f"model {model!r}: the {name} is not finite for {key} {ids} "
                f"({len(bad)} of {len(numbers)} rows from {start}); none of these rows was written"
            )


def self_check(
    where: str,
    names: Sequence[str],
    sample: np.ndarray,
    written: np.ndarray,
    plain: np.ndarray,
    dtype: str,
) -> dict[str, Any]:
    """Holds numbers of the rows `sample`, [columns, sampled], against the plain pass's.

    Returns what the manifest says of it.

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
