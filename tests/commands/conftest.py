"""Fixtures of the tests of commands."""

from tests.commands.fixtures import command

__all__ = ["command"]  # a fixture
