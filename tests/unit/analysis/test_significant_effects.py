import math

import polars as pl
import pytest

from analysis.significant_effects import clearest, counted, interval, significant, unclear


def part(values, q):
    return pl.DataFrame({"model": [f"m{i}" for i in range(len(values))], "slope": values, "q": q})


def said(values, q):
    return counted(part(values, q), "slope", "reward rises", "reward falls", "falls")


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([1.0, 1.0, -1.0], [0.01, 0.2, 0.04], "reward rises in 1 of 3 models and falls in 1"),
        ([1.0, 1.0, -1.0], [0.01, 0.04, 0.06], "reward rises in 2 of 3 models"),
        ([-1.0], [0.01], "reward falls in the one model"),
        ([1.0, -1.0], [0.05, 0.5], None),
        ([1.0, math.nan], [0.01, math.nan], "reward rises in the one model"),
    ],
)
def test_models_are_counted_by_the_direction_of_what_is_sure(values, q, expected):
    assert said(values, q) == expected


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ([0.3, 0.05, math.nan], "None of 2 slopes is told apart from chance (lowest q = .050)."),
        ([0.3, 0.04, math.nan], ""),
        ([math.nan], ""),
    ],
)
def test_that_nothing_is_sure_is_said_of_what_was_tested(q, expected):
    assert unclear(part([1.0] * len(q), q), "slopes") == expected


def test_a_q_that_is_not_defined_is_not_sure():
    assert significant(part([1.0, 1.0, 1.0], [math.nan, None, 0.01]))["model"].to_list() == ["m2"]


def test_the_clearest_has_the_lowest_p_and_ties_go_by_name():
    table = pl.DataFrame({"model": ["b", "a", "c"], "p": [0.01, 0.01, 0.5]})
    assert clearest(table, ["model"])["model"] == "a"


@pytest.mark.parametrize(
    ("slope", "low", "high", "expected"),
    [
        (0.31, 0.21, 0.41, "0.31 (95% 0.21 to 0.41)"),
        (-0.0031, -0.0041, -0.0021, "−0.0031 (95% −0.0041 to −0.0021)"),
        (0.0, -0.2, 0.2, "0.00 (95% −0.20 to 0.20)"),
    ],
)
def test_an_interval_has_the_digits_of_its_slope(slope, low, high, expected):
    assert interval(slope, low, high) == expected
