"""Searches of tiny models."""

from tests.tiny_fixtures import checkpoint  # noqa: F401
