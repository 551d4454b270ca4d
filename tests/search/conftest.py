"""Searches of tiny models."""

from tests.tiny_fixtures import checkpoint

__all__ = ["checkpoint"]  # fixtures
