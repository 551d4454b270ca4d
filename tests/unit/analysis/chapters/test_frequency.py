import numpy as np
import polars as pl
import pytest

import analysis


def test_frequency_is_fitted_beside_value(word_run, lexicon, rng):
    often = pl.DataFrame({"word": lexicon["word"], "per_million": np.exp(rng.normal(size=7))})
    graded = analysis.sentiment_points(word_run, ["m"], lexicon, "never")
    points = analysis.frequency_points(graded, often)
    design = points.filter(prompt="greatest")
    x = np.column_stack([np.ones(design.height), design["log_frequency"], design["value"]])
    expected = np.linalg.lstsq(x, design["reward"].to_numpy(), rcond=None)[0]
    table = analysis.frequency_slopes(points)
    assert table["slope"][0] == pytest.approx(expected[1])
    assert table["n"].to_list() == [9, 9]
    residual = design["reward"].to_numpy() - expected[2] * design["value"].to_numpy()
    np.testing.assert_allclose(design["residual"], residual)


def test_a_word_of_several_parts_of_speech_counts_once_for_each(word_run, lexicon, rng):
    each = pl.DataFrame({"word": lexicon["word"], "per_million": np.exp(rng.normal(size=7))})
    more = pl.DataFrame({"word": lexicon["word"][:1], "per_million": [5.0]})
    graded = analysis.sentiment_points(word_run, ["m"], lexicon, "never")
    points = analysis.frequency_points(graded, pl.concat([each, more]))
    once = analysis.frequency_points(graded, each)
    own = once.filter(word=lexicon["word"][0])
    assert points.height == once.height + own.height > once.height
    expected = np.sort(np.append(own["log_frequency"], np.full(own.height, np.log(5.0))))
    found = points.filter(word=lexicon["word"][0])["log_frequency"].sort()
    np.testing.assert_allclose(found, expected)


def test_points_whose_value_has_no_slope_keep_their_reward(word_run, lexicon):
    points = _equally_often(word_run, lexicon)
    assert points["residual"].equals(points["reward"])


def test_the_points_of_all_models_and_prompts_lie_in_one_chunk(word_run, lexicon):
    """What is filtered from many chunks keeps as much memory as the whole: once a prompt."""
    points = _equally_often(word_run, lexicon)
    assert points["prompt"].n_unique() == 2
    assert points.n_chunks() == 1


def _equally_often(run, lexicon):
    graded = analysis.sentiment_points(run, ["m"], lexicon, "never")
    return analysis.frequency_points(graded, lexicon.select("word", per_million=1.0))
