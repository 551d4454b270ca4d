import math

import numpy as np
import polars as pl
import pytest

from analysis.sentences import at_most, bounds, cell, decimals, listed, q_value, span
from analysis.significant_effects import clearest, counted, interval, significant, unclear


@pytest.mark.parametrize(
    ("words", "expected"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_words_are_an_english_list(words, expected):
    assert listed(words) == expected


def test_numbers_have_two_decimals_and_a_true_minus_sign_and_bounds_are_rounded_outward():
    assert decimals(-0.125) == "−0.12"
    assert span(np.array([0.3, -0.2, 0.1])) == "−0.20 to 0.30"
    assert span(np.array([0.304, 0.304])) == "0.30"
    assert bounds(0.29, 0.57) == "0.29 to 0.57"
    assert bounds(-0.001, -0.001) == "−0.01 to 0.00"
    assert cell(0.0, "number", "ci_low") == "0"
    assert cell(math.nan, "fixed", "ci_low") == "–"
    widths = {0.01213: "0.013", 0.012: "0.012", 0.02705: "0.028", 0.04: "0.040"}
    assert {width: at_most(width) for width in widths} == widths


def _printed(text):
    return float(text.replace("−", "-").rstrip(" %"))


@pytest.mark.parametrize("seed", range(3))
def test_printed_ends_hold_the_interval(seed):
    low, middle, high = np.sort(np.random.default_rng(seed).normal(0, 0.3, 3))
    printed = {
        "bounds": bounds(low, high),
        "percent": bounds(low, high, 0),
        "span": span(np.array([high, low])),
        "slope": interval(middle, low, high).partition("95% ")[2].rstrip(")"),
    }
    for kind in ("fixed", "number"):
        printed[kind] = f"{cell(low, kind, 'ci_low')} to {cell(high, kind, 'ci_high')}"
    for kind, text in printed.items():
        least, most = map(_printed, text.split(" to "))
        assert least <= low and high <= most, kind
    assert _printed(cell(low, "share", "x_low")) <= 100 * low
    assert _printed(cell(high, "share", "x_high")) >= 100 * high


@pytest.mark.parametrize(
    ("q", "expected"),
    [(0.0123, "q = .012"), (0.0002, "q < .001"), (1.0, "q = 1.000"), (math.nan, "q undefined")],
)
def test_a_q_is_printed_as_in_papers(q, expected):
    assert q_value(q) == expected


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


def test_the_clearest_has_the_lowest_p_and_what_has_no_q_is_not_sure():
    table = pl.DataFrame({"model": ["b", "a", "c"], "p": [0.01, 0.01, 0.5]})
    assert clearest(table, ["model"])["model"] == "a"
    assert significant(part([1.0] * 3, [math.nan, None, 0.01]))["model"].to_list() == ["m2"]


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
