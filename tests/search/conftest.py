"""Searches compile much and compute little: compile quickly."""

import jax
import pytest

from tests.tiny_fixtures import checkpoint  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def _quick():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
