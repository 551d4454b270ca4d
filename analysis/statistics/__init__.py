"""Estimators in plain numpy: no frames, no files, no plotting."""

from typing import Any, TypeAlias

import numpy.typing as npt

# Any: an estimator takes every numeric dtype, and says in its docstring which it returns.
Array: TypeAlias = npt.NDArray[Any]
