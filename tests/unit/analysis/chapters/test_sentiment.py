import math

import polars as pl
import pytest

import analysis

WORDS = {"love": 3.0, "joy": 2.0, "fine": 1.0, "so": 0.0, "bad": -1.0, "hate": -2.0, "evil": -3.0}


@pytest.fixture
def run(make_run):
    tokens = [*WORDS, "Love", " love", "noise", "HATE"]
    greatest = [6.0, 5.0, 4.0, 2.0, 1.0, 0.0, -1.0, 6.0, 99.0, -50.0, 0.0]
    scores = {("m", "greatest"): greatest, ("m", "worst"): [-x for x in greatest]}
    return analysis.load(make_run({"v": tokens}, {"m": "v"}, scores))


@pytest.fixture
def lexicon():
    return pl.DataFrame({"word": list(WORDS), "value": list(WORDS.values())})


@pytest.fixture
def points(run, lexicon):
    return analysis.sentiment_points(run, ["m"], lexicon)


def test_points_are_the_matched_tokens_under_every_prompt(points):
    assert points.columns == ["model", "prompt", "token_id", "token", "word", "value", "reward"]
    own = points.filter(prompt="greatest")
    assert own["token"].to_list() == [*WORDS, "Love", "HATE"]
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


def test_trimming_is_an_option(run, lexicon):
    points = analysis.sentiment_points(run, ["m"], lexicon, trim=True)
    assert " love" in points["token"].to_list()


def test_one_word_has_no_slope(make_run):
    run = analysis.load(make_run({"v": ["love"]}, {"m": "v"}, {("m", "greatest"): [1.0]}))
    lexicon = pl.DataFrame({"word": ["love"], "value": [3.0]})
    table = analysis.sentiment_slopes(analysis.sentiment_points(run, ["m"], lexicon))
    assert table["n"].to_list() == [1, 0]
    assert all(math.isnan(slope) for slope in table["slope"])


def test_valences_without_grades_are_compared(run):
    lexicon = pl.DataFrame(
        {"word": ["love", "joy", "bad", "hate"], "valence": ["positive"] * 2 + ["negative"] * 2}
    )
    points = analysis.sentiment_points(run, ["m"], lexicon)
    row = analysis.valence_effects(points).row(0, named=True)
    assert (row["n_positive"], row["n_negative"], row["auc"]) == (3, 3, 1.0)
    assert row["cohens_d"] > 3
