"""Fixtures of the tests of commands."""

import importlib

import pytest

from tests.command_fixtures import command, fresh_launch

__all__ = ["command", "fresh_launch"]  # fixtures


@pytest.fixture
def launch_items():
    """The module `launch.items`."""
    with fresh_launch(["launch/score.py"]):
        yield importlib.import_module("launch.items")
