"""Fixtures of the tests of commands."""

import importlib

import pytest

from tests.command_fixtures import command, fresh_launch
from tests.tiny_fixtures import checkpoint

__all__ = ["checkpoint", "command", "fresh_launch"]  # fixtures


@pytest.fixture
def launch_items():
    """The module `launch.items`."""
    with fresh_launch(["launch/score.py"]):
        yield importlib.import_module("launch.items")
