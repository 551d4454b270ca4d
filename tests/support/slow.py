"""Which cases of a table `make test` runs, and which only `make test-all`."""

from collections.abc import Iterable

import pytest


def all_but(quick: Iterable, cases: Iterable) -> list:
    """Parameters of a test: those of `quick`, and the other cases, marked as slow.

    A case of several parameters is a tuple.
    """
    quick = list(quick)
    rest = [case if isinstance(case, tuple) else (case,) for case in cases if case not in quick]
    return [*quick, *(pytest.param(*case, marks=pytest.mark.slow) for case in rest)]
