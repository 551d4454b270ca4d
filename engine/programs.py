"""Compiled programs: kept on disk, and run by several processes when all have compiled them.

The cache on disk is jax's own, with a bound on its size: bounded, it takes a file lock for each
entry that it reads or writes, so several processes may share the folder. The key of an entry covers
the program, the versions of jaxlib and of the platform, the compiler's flags and the instruction
sets of the CPU, so a folder may be shared by machines of several types.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.stages import Compiled

from engine import processes

# Used unless the environment variable of the same name in capitals is set.
_SETTINGS = {
    "jax_compilation_cache_max_size": 2 * 1024**3,  # bytes; the entries used last are kept
    "jax_persistent_cache_min_compile_time_secs": 0.1,
}


def enable_cache() -> None:
    """Turns the cache on, unless the user has chosen a cache or none.

    The folder is `$ASSAY_CACHE/compiled`, by default `~/.cache/assay/compiled`. Nothing happens if
    `JAX_COMPILATION_CACHE_DIR` names another, if `ASSAY_CACHE` is empty, or if the folder cannot be
    written: then every process compiles for itself.
    """
    home = cache_folder()
    folder = home and home / "compiled"
    chosen = jax.config.values["jax_compilation_cache_dir"]
    if folder is None or chosen is not None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # its code is run: not for others
    except OSError:
        return
    for name, value in _SETTINGS.items():
        if name.upper() not in os.environ:
            jax.config.update(name, value)
    # A damaged entry, or a full disk, costs one compilation and is no news to the user.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", str(folder))


def cache_folder() -> Path | None:
    """Where Assay keeps what it can make again: $ASSAY_CACHE, or ~/.cache/assay; None: nowhere."""
    chosen = os.environ.get("ASSAY_CACHE")
    if chosen == "":
        return None
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "assay"
    except RuntimeError:  # a user without a home
        return None
    return (Path(chosen).expanduser() if chosen else home).absolute()


# Any: arguments and result of the program.
def compiled_on_all(program: jax.stages.Wrapped) -> Callable[..., Any]:
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
