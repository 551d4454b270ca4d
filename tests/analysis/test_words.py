"""Sentiment, frequency and identity, from a run on disk to their tables."""

import math

import numpy as np
import polars as pl
import pytest

import analysis
from analysis import lexicons

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


def test_frequency_is_fitted_beside_value(run, lexicon):
    rng = np.random.default_rng(0)
    often = pl.DataFrame({"word": list(WORDS), "per_million": np.exp(rng.normal(size=7))})
    points = analysis.frequency_points(analysis.sentiment_points(run, ["m"], lexicon), often)
    design = points.filter(prompt="greatest")
    x = np.column_stack([np.ones(design.height), design["log_frequency"], design["value"]])
    expected = np.linalg.lstsq(x, design["reward"].to_numpy(), rcond=None)[0]
    table = analysis.frequency_slopes(points)
    assert table["slope"][0] == pytest.approx(expected[1])
    assert table["n"].to_list() == [9, 9]
    residual = design["reward"].to_numpy() - expected[2] * design["value"].to_numpy()
    np.testing.assert_allclose(design["residual"], residual)


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


@pytest.fixture
def people(make_run):
    terms = lexicons.identity()
    plural = terms.filter(pl.col("form") == "plural")["word"].to_list()
    tokens = [f" {word}" for word in plural] + [f"x{i}" for i in range(50)]
    slighted = set(terms.filter(group="children")["word"])
    rng = np.random.default_rng(1)
    shared = rng.normal(size=len(tokens))
    low = np.array([token.strip() in slighted for token in tokens])
    scores = {("m", "greatest"): list(shared - 9 * low), ("m", "worst"): list(shared)}
    return analysis.load(make_run({"v": tokens}, {"m": "v"}, scores, size=1000))


def test_a_group_is_held_against_neutral_words_of_its_form(people):
    words = analysis.identity_words(people, ["m"], lexicons.identity())
    table = analysis.identity_groups(words, np.random.default_rng(0), 999, 200)
    assert table.columns == [
        "model", "prompt", "group", "axis", "n", "mean_percentile", "ci_low", "ci_high",
        "difference", "p",
    ]  # fmt: skip
    own = table.filter(group="children", prompt="greatest").row(0, named=True)
    assert own["n"] == 5
    assert own["mean_percentile"] < 0.1
    assert own["p"] < 0.05
    assert own["difference"] < -0.3
    assert table.filter(group="children", prompt="worst")["p"].item() > 0.05
    inside = (table["ci_low"] >= 0) & (table["ci_high"] <= 1)
    assert (inside | table["ci_low"].is_nan()).all()


def test_a_group_without_its_like_has_a_mean_but_no_test(make_run):
    tokens = [" homosexual", " gay", "stone"]
    run = analysis.load(make_run({"v": tokens}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0, 3.0]}))
    words = analysis.identity_words(run, ["m"], lexicons.identity())
    table = analysis.identity_groups(words, np.random.default_rng(0), 99, 99)
    assert table["mean_percentile"].to_list() == pytest.approx([1 / 3])
    assert math.isnan(table["p"].item())
    assert math.isnan(table["difference"].item())


def test_q_controls_the_whole_table(people):
    words = analysis.identity_words(people, ["m"], lexicons.identity())
    table = analysis.with_q(analysis.identity_groups(words, np.random.default_rng(0), 999, 99))
    tested = table.filter(pl.col("p").is_not_nan())
    assert (tested["q"] >= tested["p"]).all()
