import math

import polars as pl
import pytest

from analysis.report import summary


@pytest.mark.parametrize(
    ("skewness", "said"),
    [
        ([1.0, 1.0, -1.0], "2 of 3 distributions lean right"),
        ([1.0, -1.0, -2.0, -2.0], "3 of 4 distributions lean left"),
        ([2.0], "The one distribution leans right"),
        ([0.1, 0.2, 1.0], "Of 3 distributions, 1 lean right (skewness above 0.5) and 0 left"),
        ([math.nan], "Every score is the same"),
    ],
)
def test_the_lean_of_the_distributions_is_counted(skewness, said):
    assert summary.skews(pl.DataFrame({"skewness": skewness})).startswith(said)


@pytest.mark.parametrize(
    ("tau", "word"),
    [
        (0.9, "agree almost completely"),
        (0.41, "agree moderately"),
        (0.01, "agree no more than by chance"),
        (-0.09, "disagree slightly"),
    ],
)
def test_the_strength_of_agreement_has_a_word(tau, word):
    assert summary.strength(tau) == word


def test_a_list_shows_one_spelling_of_a_word():
    table = pl.DataFrame({"token": [" love", "LOVE", "Love", " life", "joy"]})
    assert summary.first_words(table, 2) == [" love", " life"]
