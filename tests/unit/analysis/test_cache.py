import numpy as np
import pytest

import analysis
from analysis import cache


@pytest.fixture
def two_models(make_run):
    scores = {(model, "greatest"): [1.0, 2.0, 3.0] for model in ("m1", "m2")}
    return make_run({"v": ["a", "b", "c"]}, {"m1": "v", "m2": "v"}, scores)


def test_rewards_are_read_once_and_cannot_be_written(two_models):
    run = analysis.load(two_models)
    token_ids, rewards = run.rewards("m1", "greatest")
    assert run.rewards("m1", "greatest")[1] is rewards
    assert run.rewards("m2", "greatest")[0] is token_ids  # one vocabulary
    for column in (token_ids, rewards):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 9


def test_token_ids_of_a_model_that_scored_fewer_are_its_own(make_run):
    scores = {("m1", "greatest"): [1.0, 2.0, 3.0], ("m2", "greatest"): {0: 5.0, 2: 6.0}}
    folder = make_run({"v": ["a", "b", "c"]}, {"m1": "v", "m2": "v"}, scores)
    run = analysis.load(folder, allow_incomplete=True)
    assert run.rewards("m1", "greatest")[0].tolist() == [0, 1, 2]
    assert run.rewards("m2", "greatest")[0].tolist() == [0, 2]


def test_rewards_beyond_the_memory_that_is_given_are_read_again(two_models, monkeypatch):
    monkeypatch.setattr(cache, "_MOST_BYTES", 12)  # of one model
    run = analysis.load(two_models)
    first, second = run.rewards("m1", "greatest")[1], run.rewards("m2", "greatest")[1]
    assert run.rewards("m1", "greatest")[1] is first
    again = run.rewards("m2", "greatest")[1]
    assert again is not second
    np.testing.assert_array_equal(again, second)


def test_a_vocabulary_is_read_once(two_models):
    run = analysis.load(two_models)
    path = run._vocabularies["m1"]
    assert run._cache.vocabulary(path) is run._cache.vocabulary(path)
    assert run.vocabulary("m1").collect().equals(run.vocabulary("m2").collect())
