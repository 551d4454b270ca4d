"""Searches compile one program a layer: their models have one."""

import functools

import pytest


@pytest.fixture(scope="session")
def checkpoint(checkpoint):
    return functools.partial(checkpoint, num_hidden_layers=1)
