"""Real models compute more than they compile: XLA optimises, as it does for users."""

import jax
import pytest


@pytest.fixture(scope="package", autouse=True)
def _optimised():
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
