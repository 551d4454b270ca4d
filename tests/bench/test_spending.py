"""What searches had found by the operations they had spent."""

import polars as pl
import pytest

from bench.support.spending import budgets, spending

SEARCH = {"model": "m", "prompt": "p", "direction": "max", "method": "gcg"}


def test_searches_of_a_method_are_told_by_what_they_had_spent():
    spent = {0: [(1.0, 2.0), (100.0, 8.0)], 1: [(10.0, 4.0), (100.0, 5.0)]}
    traces = pl.DataFrame(
        [
            SEARCH | {"seed": seed, "flops": flops, "best": best}
            for seed, rows in spent.items()
            for flops, best in rows
        ]
    )
    told = spending(traces, points=3)
    assert told.select("flops", "median", "low", "high", "n").rows() == [
        (1.0, 2.0, 2.0, 2.0, 1),
        (10.0, 3.0, 2.0, 4.0, 2),
        (100.0, 6.5, 5.0, 8.0, 2),
    ]
    assert spending(traces.clear()).height == 0


@pytest.mark.parametrize("most", [3e11, 7e11, 533457285120.0, 1.1e12, 9.7e12])
def test_what_the_last_step_found_is_told(most):
    spent = pl.DataFrame(
        [
            SEARCH | {"seed": 0, "flops": x, "best": y}
            for x, y in ((1e9, 1.0), (2e9, 2.0), (most, 5.0))
        ]
    )
    assert spending(spent)["median"].to_list()[-1] == 5.0


def test_a_method_has_a_line_of_its_medians():
    traces = pl.DataFrame([SEARCH | {"seed": 0, "flops": x, "best": x} for x in (1e12, 3e12)])
    (ax,) = budgets(spending(traces, points=2), {"m": "M"}).axes
    x, y = ax.lines[-1].get_data()
    assert (list(x), list(y)) == ([1.0, 3.0], [1e12, 3e12])
