"""Slopes of valence and frequency on a run whose tokens are graded words."""

import numpy as np
import polars as pl
import pytest

import analysis
from tests.support import runs

WORDS = {"love": 3.0, "joy": 2.0, "fine": 1.0, "so": 0.0, "bad": -1.0, "hate": -2.0, "evil": -3.0}


@pytest.fixture
def word_run(make_run):
    """One model under two prompts; some tokens are spelt otherwise, and one is in no lexicon."""
    tokens = [*WORDS, "Love", " love", "noise", "HATE"]
    greatest = [6.0, 5.0, 4.0, 2.0, 1.0, 0.0, -1.0, 6.0, 99.0, -50.0, 0.0]
    scores = {("m", "greatest"): greatest, ("m", "worst"): [-x for x in greatest]}
    return analysis.load(make_run({"v": tokens}, {"m": "v"}, scores))


@pytest.fixture
def lexicon():
    """word, value."""
    return pl.DataFrame({"word": list(WORDS), "value": list(WORDS.values())})


@pytest.fixture
def graded(word_run, lexicon):
    return analysis.sentiment_points(word_run, ["m"], lexicon, "never")


def test_slopes_are_fitted_by_valence_zero_with_the_negative(graded):
    table = analysis.sentiment_slopes(graded)
    assert table["prompt"].to_list() == 2 * ["greatest"] + 2 * ["worst"]
    assert table.select("valence", "n").rows() == 2 * [("positive", 4), ("negative", 5)]
    assert table["slope"].to_list() == pytest.approx([1.0, 1.0, -1.0, -1.0])


@pytest.mark.parametrize(
    ("mode", "match_trim", "matches"),
    [
        (None, "auto", False),
        ("text", "always", True),
        ("ids", "never", False),
    ],
)
def test_a_leading_space_counts_by_mode_or_as_asked(make_run, lexicon, mode, match_trim, matches):
    folder = make_run({"v": ["love", " love"]}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0]})
    own = {"mode": mode or ""}
    runs.edit_run(folder, lambda c: [r["identity"].update(own) for r in c["results"].values()])
    points = analysis.sentiment_points(analysis.load(folder), ["m"], lexicon, match_trim)
    assert points["token"].to_list() == (["love", " love"] if matches else ["love"])


def test_results_of_two_modes_follow_each_its_own_rule(make_run, lexicon):
    scores = {(m, p): [1.0, 2.0, 3.0] for m in "ab" for p in ("greatest", "worst")}
    folder = make_run({"v": ["love", " love", "bad"]}, {"a": "v", "b": "v"}, scores)

    def change(content):
        for path, result in content["results"].items():
            result["identity"]["mode"] = "text" if path.endswith("=worst") else "ids"

    runs.edit_run(folder, change)
    run = analysis.load(folder)
    points = analysis.sentiment_points(run, ["b", "a"], lexicon)
    assert points.select("model", "prompt", "token").rows() == [
        *((m, "greatest", token) for m in "ba" for token in ("love", " love", "bad")),
        *((m, "worst", token) for m in "ba" for token in ("love", "bad")),
    ]


def test_forms_of_a_word_do_not_shrink_the_errors(rng):
    count = 60
    value, reward = rng.choice([1.0, 2.0, 3.0, 4.0], count), rng.normal(size=count)
    keys = {"model": "m", "prompt": "p"}
    names = [f"word{i}w" for i in range(count)]
    once = pl.DataFrame({"word": names, "value": value, "reward": reward})
    once = once.select(*(pl.lit(v).alias(k) for k, v in keys.items()), pl.all())
    forms = pl.concat([once, once.with_columns(pl.col("word") + "ing")])
    ps = [analysis.sentiment_slopes(points)["p"][0] for points in (once, forms)]
    assert ps[1] == pytest.approx(ps[0], rel=0.05)
    often = pl.Series("log_frequency", rng.normal(size=count))
    once = once.with_columns(often)
    forms = pl.concat([once, once.with_columns(pl.col("word") + "ed")])
    slopes = [analysis.frequency_slopes(points)["stderr"][0] for points in (once, forms)]
    assert slopes[0] == pytest.approx(slopes[1], rel=0.05)


def test_frequency_is_fitted_beside_value(graded, lexicon, rng):
    often = pl.DataFrame({"word": lexicon["word"], "per_million": np.exp(rng.normal(size=7))})
    points = analysis.frequency_points(graded, often)
    design = points.filter(prompt="greatest")
    x = np.column_stack([np.ones(design.height), design["log_frequency"], design["value"]])
    expected = np.linalg.lstsq(x, design["reward"].to_numpy(), rcond=None)[0]
    table = analysis.frequency_slopes(points)
    assert table["slope"][0] == pytest.approx(expected[1])
    assert table["n"].to_list() == [9, 9]


def test_a_word_of_several_parts_of_speech_counts_once_for_each(graded, lexicon, rng):
    counts = pl.DataFrame({"word": lexicon["word"], "per_million": np.exp(rng.normal(size=7))})
    more = pl.DataFrame({"word": lexicon["word"][:1], "per_million": [5.0]})
    points = analysis.frequency_points(graded, pl.concat([counts, more]))
    once = analysis.frequency_points(graded, counts)
    own = once.filter(word=lexicon["word"][0])
    assert points.height == once.height + own.height > once.height
    expected = np.sort(np.append(own["log_frequency"], np.full(own.height, np.log(5.0))))
    found = points.filter(word=lexicon["word"][0])["log_frequency"].sort()
    np.testing.assert_allclose(found, expected)
