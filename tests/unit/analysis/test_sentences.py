import math

import numpy as np
import polars as pl
import pytest

from analysis.sentences import (
    bounds,
    cell,
    counted,
    decimals,
    listed,
    q_value,
    significant,
    span,
    unclear,
)


@pytest.mark.parametrize(
    ("words", "expected"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_words_are_an_english_list(words, expected):
    assert listed(words) == expected


def test_numbers_have_two_decimals_and_a_true_minus_sign_and_bounds_are_rounded_outward():
    assert decimals(-0.125) == "−0.12"
    assert span(np.array([0.3, -0.2, 0.1])) == "−0.20 to 0.30"
    assert span(np.array([0.304, 0.304])) == "0.30"
    assert span(np.array([-0.711, -0.004, 0.995])) == "−0.71 to 0.99"
    assert bounds(0.29, 0.57) == "0.29 to 0.57"
    assert bounds(-0.001, -0.001) == "−0.01 to 0.00"
    assert cell(0.0, "number", "ci_low") == "0"
    assert cell(math.nan, "fixed", "ci_low") == "–"


def _printed(text):
    return float(text.replace("−", "-").rstrip(" %"))


@pytest.mark.parametrize("seed", range(3))
def test_printed_ends_hold_the_interval(seed):
    low, high = np.sort(np.random.default_rng(seed).normal(0, 0.3, 2))
    printed = {
        "bounds": bounds(low, high),
        "percent": bounds(low, high, 0),
        "span": span(np.array([high, low])),
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
        ([1.0, 1.0, 1.0], [0.01, 0.04, 0.02], "reward rises in all 3 models"),
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


def test_what_has_no_q_is_not_sure():
    assert significant(part([1.0] * 3, [math.nan, None, 0.01]))["model"].to_list() == ["m2"]
