"""Real models, that compute more than they compile (`make test` leaves XLA its own way, too)."""

import jax
import pytest


@pytest.fixture(scope="package", autouse=True)
def _optimised():
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
