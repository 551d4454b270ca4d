"""What computed a run: library versions and devices, for the manifest."""

import importlib.metadata
import platform

_LIBRARIES = ("jax", "jaxlib", "flax", "transformers", "tokenizers", "numpy", "polars")


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers depend on."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), **versions}
