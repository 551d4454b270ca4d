"""Which rows of a head the user names as the reward."""

import numpy as np
import pytest

from engine.convert import hf_heads
from engine.errors import AssayError

ROWS = ("row_0", "row_1", "row_2")


@pytest.mark.parametrize(
    ("reward", "labels", "mixture"),
    [
        ("2", ("", "", ""), [0, 0, 1]),
        ("row_1", ("", "", ""), [0, 1, 0]),
        ("Yes sir", ("yes sir", "no", ""), [1, 0, 0]),
        ("no - 0", ("yes", "no", ""), [-1, 1, 0]),
        ("1", ("", "1", ""), [0, 1, 0]),
        ("'a - b'", ("a - b", "a", "b"), [1, 0, 0]),
        ("a - b", ("a - b", "a", "b"), [0, 1, -1]),
        ("b - 'A - b'", ("a - b", "a", "b"), [-1, 0, 1]),
    ],
)
def test_a_row_is_named_by_its_number_its_name_or_its_label(reward, labels, mixture):
    np.testing.assert_array_equal(hf_heads._mixture(reward, ROWS, labels), mixture)


@pytest.mark.parametrize("reward", ["1", "0", "1 - 2", "3", "yes", "row_2 - row_2", ""])
def test_what_names_two_rows_or_none_is_refused_with_the_rows(reward):
    with pytest.raises(AssayError, match=r"0 \(1\), 1 \(0\), 2 \(row_2\)"):
        hf_heads._mixture(reward, ROWS, ("1", "0", ""))


@pytest.mark.parametrize("reward", ["Reward", "reward - row_0", "row_0"])
def test_a_name_that_two_rows_have_is_refused(reward):
    with pytest.raises(AssayError, match=r"0 \(reward\), 1 \(row_0"):
        hf_heads._mixture(reward, ROWS, ("reward", "row_0", "reward"))
