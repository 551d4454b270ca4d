"""How much of one end of a ranking is the same in another ranking of the same things."""

import numpy as np

from analysis.statistics import Array, ranks


def end_overlap(x: Array, y: Array, count: int, highest: bool) -> int:
    """How many of the `count` highest (or lowest) of `x` are among those of `y`.

    Args:
      x: numbers [N]; of equal ones the earlier comes first.
      y: other numbers of the same things [N].
      count: things at the end; N where that is less.
      highest: whether the highest are compared.
    """
    ends = [ranks.extremes(each, count, highest) for each in (x, y)]
    return len(np.intersect1d(ends[0], ends[1]))
