"""Compiled programs of several processes: each is run when all have compiled it."""

from collections.abc import Callable
from typing import Any

import jax
from jax.stages import Compiled

from engine import processes


# Any: arguments and result of the program.
def run_together(program: jax.stages.Wrapped) -> Callable[..., Any]:
    """Returns a jitted function that every process runs only when all have compiled it.

    The connections between CPUs are made when a program first runs, and wait 30 s for all
    processes. That is too short where one has to compile what another reads from its cache.
    All processes call their programs in the same order. One process gets the function itself.
    """
    if processes.count() == 1:
        return program
    compiled: dict[object, Compiled] = {}

    def run(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        kinds = [(leaf.shape, leaf.dtype, getattr(leaf, "sharding", None)) for leaf in leaves]
        key = (structure, *kinds)
        if key not in compiled:
            compiled[key] = program.lower(*arguments).compile()
            processes.agree("compiled programs", getattr(program, "__name__", ""))
        return compiled[key](*arguments)

    return run
