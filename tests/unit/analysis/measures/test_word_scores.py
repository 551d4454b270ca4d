import numpy as np
import pytest

import analysis
from analysis.measures import word_scores
from tests.support import runs


def test_only_spellings_of_every_model_count_and_their_mean_is_the_words(make_run):
    vocabularies = {"v1": [" love", "Love", "LOVE", "x", " hate"], "v2": ["Love", " hate", " love"]}
    scores = {("a", "greatest"): [1.0, 3.0, 99.0, 0.0, -1.0], ("b", "greatest"): [5.0, -2.0, 7.0]}
    run = analysis.load(make_run(vocabularies, {"a": "v1", "b": "v2"}, scores))
    found = word_scores.of_vocabulary(run, ["b", "a"], ["love", "hate", "joy"])
    assert (found.source, found.models, found.prompts) == ("vocabulary", ["b", "a"], ["greatest"])
    assert found.words == ["hate", "love"]
    assert found.values.tolist() == [[[-2.0, 6.0]], [[-1.0, 2.0]]]


@pytest.fixture
def listed(small_run):
    """A list of which one word is missing under one prompt, and one model lacks a prompt."""
    runs.add_items(small_run, "mine", "m-one", "greatest", {"Joy": 1.0, " joy": 3.0, "oak": 0.0})
    runs.add_items(small_run, "mine", "m-one", "worst", {"Joy": 2.0, " joy": 2.0, "oak": 5.0})
    lacks = {"Joy": 2.0, " joy": 4.0, "oak": 5.0, "elm": 1.0}
    runs.add_items(small_run, "mine", "m-two", "greatest", lacks)
    return analysis.load(small_run)


def test_items_are_words_in_any_case_of_every_pair_and_prompts_are_those_of_every_model(listed):
    (found,) = word_scores.of_lists(listed, ["m-one", "m-two"], ["joy", "oak", "elm"])
    assert (found.source, found.words) == ("mine", ["joy", "oak"])
    assert found.prompts == ["greatest", "worst"]
    np.testing.assert_array_equal(found.values[0], [[2.0, 0.0], [2.0, 5.0]])
    np.testing.assert_array_equal(found.values[1], [[3.0, 5.0], [np.nan, np.nan]])
    (found,) = word_scores.of_lists(listed, ["m-one", "m-two"], ["joy", "oak"])
    assert found.complete().prompts == ["greatest"]
    shares = found.percentiles()
    assert shares[:, 0].tolist() == [[0.75, 0.25], [0.25, 0.75]]
    assert np.isnan(shares[1, 1]).all()
    assert found.only(["oak"]).percentiles()[0].tolist() == [[0.5], [0.5]]


def test_log_ratios_stand_as_models_behind_the_language_models(small_run):
    for model, logprobs in (("lm-a", (-1.0, -2.0)), ("lm-b", (-2.0, -1.5))):
        replies = dict(zip(("joy", "oak"), ((1, x) for x in logprobs), strict=True))
        runs.add_item_logprobs(small_run, "mine", model, "greatest", replies)
    run = analysis.load(small_run)
    found = word_scores.with_ratios(word_scores.of_replies(run, "mine", ["joy", "oak"]))
    assert found.models == ["lm-a", "lm-b", "lm-a\nlm-b"]
    expected = [analysis.log_ratio(-1.0, -2.0), analysis.log_ratio(-2.0, -1.5)]
    np.testing.assert_allclose(found.values[2, 0], expected, rtol=1e-6)
