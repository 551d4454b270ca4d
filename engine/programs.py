"""Compiled programs of several processes: none runs one before all have compiled it."""

from collections.abc import Callable
from typing import Any

import jax
from jax.stages import Compiled

from engine import processes


# Any: arguments and result of the program.
def run_together(program: jax.stages.Wrapped) -> Callable[..., Any]:
    """A jitted function that several processes first run at the same time.

    The connections between CPUs are made when a program first runs, and wait 30 s for the others:
    too short where one process has to compile what another reads from its cache.

    Args:
      program: a result of `jax.jit`; all processes call it in the same order.

    Returns:
      The function itself where there is one process.
    """
    if processes.count() == 1:
        return program
    compiled: dict[object, Compiled] = {}

    def run(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        key = (structure, *map(_kind, leaves))
        if key not in compiled:
            compiled[key] = program.lower(*arguments).compile()
            processes.agree("compiled programs", getattr(program, "__name__", ""))
        return compiled[key](*arguments)

    return run


# Any: an array of jax or numpy.
def _kind(leaf: Any) -> tuple[object, ...]:
    return leaf.shape, leaf.dtype, getattr(leaf, "sharding", None)
