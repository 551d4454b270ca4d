"""Fixtures of the tests of commands."""

import importlib

import pytest

from tests.command_fixtures import command, fresh_launch  # noqa: F401
from tests.tiny_fixtures import checkpoint  # noqa: F401


@pytest.fixture
def launch_items():
    """The module `launch.items`."""
    with fresh_launch(["launch/score.py"]):
        yield importlib.import_module("launch.items")
