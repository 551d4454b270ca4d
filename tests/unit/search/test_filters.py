"""Filters: the tokens and texts that a search may find."""

import re

import numpy as np
import pytest

from tests.support import tiny
from tests.support.searches import problem


@pytest.mark.parametrize(
    ("changes", "leaves"),
    [
        ({}, lambda text, special: not special),
        ({"ascii_only": True}, lambda text, special: re.fullmatch("[ -~]+", text) and not special),
        (
            {"allow": ("a", " love", "b"), "topk": 2},
            lambda text, special: text in ("a", " love", "b"),
        ),
    ],
)
def test_filters_leave_the_tokens_that_they_name(checkpoint, changes, leaves):
    tokens, special = checkpoint().tokens, range(len(tiny.SPECIAL))
    expected = [i for i, text in tokens.items() if leaves(text, i in special)]
    allowed = problem(checkpoint(), **{"candidates": 3, **changes}).allowed
    assert np.flatnonzero(allowed).tolist() == expected
    assert 0 < len(expected) <= len(tokens) < len(allowed) == 320


def test_no_more_tokens_are_proposed_than_are_allowed(checkpoint):
    few = problem(checkpoint(), topk=256, allow=("a", "b", "c", "d", "e"))
    assert few.settings.topk == 5
