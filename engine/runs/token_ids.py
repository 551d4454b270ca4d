"""The identity of a random subset of a vocabulary."""

import hashlib
from collections.abc import Sequence

import numpy as np


def ids_hash(ids: Sequence[int] | np.ndarray) -> str:
    """sha256 of token ids in their order, as little-endian u32.

    A seed alone does not say which ids were drawn: NumPy may change its random streams.
    """
    return hashlib.sha256(np.asarray(ids, dtype="<u4").tobytes()).hexdigest()
