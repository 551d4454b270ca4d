"""Fixtures of the tests of commands."""

from tests.commands.fixtures import command
from tests.tiny_fixtures import checkpoint

__all__ = ["checkpoint", "command"]  # fixtures
