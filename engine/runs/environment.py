"""How numbers are computed: versions that are recorded with each part, and never compared."""

import importlib.metadata
import platform

# By platform of the devices: raised by one when the same inputs give other numbers than before, on
# the same devices and libraries, if only in their last bits.
NUMERICS = {"cpu": 4, "gpu": 6, "tpu": 5}
_LIBRARIES = ("jax", "jaxlib", "flax", "transformers", "tokenizers", "numpy", "polars")


def numerics(backend: str) -> int:
    """The number of `NUMERICS` for a platform as `jax.default_backend` names it."""
    return NUMERICS.get(backend, max(NUMERICS.values()))


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers depend on."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), **versions}
