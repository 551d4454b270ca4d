import math

import polars as pl
import pytest

import analysis


@pytest.fixture
def points(word_run, lexicon):
    return analysis.sentiment_points(word_run, ["m"], lexicon)


def test_points_are_the_matched_tokens_under_every_prompt(points, lexicon):
    assert points.columns == ["model", "prompt", "token_id", "token", "word", "value", "reward"]
    own = points.filter(prompt="greatest")
    assert own["token"].to_list() == [*lexicon["word"], "Love", "HATE"]
    assert own.filter(token="Love")["value"].item() == 3.0


def test_slopes_are_fitted_by_valence_zero_with_the_negative(points):
    table = analysis.sentiment_slopes(points)
    assert table.select("prompt", "valence", "n").rows() == [
        ("greatest", "positive", 4),
        ("greatest", "negative", 5),
        ("worst", "positive", 4),
        ("worst", "negative", 5),
    ]
    assert table["slope"].to_list() == pytest.approx([1.0, 1.0, -1.0, -1.0])


def test_trimming_is_an_option(word_run, lexicon):
    points = analysis.sentiment_points(word_run, ["m"], lexicon, trim=True)
    assert " love" in points["token"].to_list()


def test_one_word_has_no_slope(make_run):
    run = analysis.load(make_run({"v": ["love"]}, {"m": "v"}, {("m", "greatest"): [1.0]}))
    lexicon = pl.DataFrame({"word": ["love"], "value": [3.0]})
    table = analysis.sentiment_slopes(analysis.sentiment_points(run, ["m"], lexicon))
    assert table["n"].to_list() == [1, 0]
    assert all(math.isnan(slope) for slope in table["slope"])


def test_valences_without_grades_are_compared(word_run):
    lexicon = pl.DataFrame(
        {"word": ["love", "joy", "bad", "hate"], "valence": ["positive"] * 2 + ["negative"] * 2}
    )
    points = analysis.sentiment_points(word_run, ["m"], lexicon)
    row = analysis.valence_effects(points).row(0, named=True)
    assert (row["n_positive"], row["n_negative"], row["auc"]) == (3, 3, 1.0)
    assert row["cohens_d"] > 3
