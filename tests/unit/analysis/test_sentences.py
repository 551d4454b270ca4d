import math

import numpy as np
import pytest

from analysis.sentences import at_most, decimals, listed, q_value, span


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")],
)
def test_words_are_an_english_list(words, expected):
    assert listed(words) == expected


def test_numbers_have_two_decimals_and_a_true_minus_sign():
    assert decimals(-0.125) == "−0.12"
    assert span(np.array([0.3, -0.2, 0.1])) == "−0.20 to 0.30"
    assert span(np.array([0.301, 0.299])) == "0.30"


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
