import math

import numpy as np
import pytest

from analysis.report.page import cell
from analysis.sentences import at_most, bounds, decimals, listed, q_value, span
from analysis.significant_effects import interval


@pytest.mark.parametrize(
    ("words", "expected"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_words_are_an_english_list(words, expected):
    assert listed(words) == expected


def test_numbers_have_two_decimals_and_a_true_minus_sign():
    assert decimals(-0.125) == "−0.12"
    assert span(np.array([0.3, -0.2, 0.1])) == "−0.20 to 0.30"
    assert span(np.array([0.304, 0.304])) == "0.30"


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


def test_ends_that_can_be_printed_stay_as_they_are():
    assert bounds(0.29, 0.57) == "0.29 to 0.57"
    assert bounds(-0.001, -0.001) == "−0.01 to 0.00"
    assert cell(0.0, "number", "ci_low") == "0"
    assert cell(math.nan, "fixed", "ci_low") == "–"


@pytest.mark.parametrize(
    ("width", "said"), [(0.01213, "0.013"), (0.012, "0.012"), (0.02705, "0.028"), (0.04, "0.040")]
)
def test_a_bound_is_rounded_up(width, said):
    assert at_most(width) == said


@pytest.mark.parametrize(
    ("q", "expected"),
    [(0.0123, "q = .012"), (0.0002, "q < .001"), (1.0, "q = 1.000"), (math.nan, "q undefined")],
)
def test_a_q_is_printed_as_in_papers(q, expected):
    assert q_value(q) == expected
