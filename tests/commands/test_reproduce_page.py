"""What the page of `assay reproduce` says of the noise between dtypes."""

from types import SimpleNamespace

import pytest

from launch.reproduction import page, runs


def study(*keys, dtype="bfloat16"):
    """Tables of a run that has these results: model and prompt, or list, model and prompt."""
    result = SimpleNamespace(fingerprint={"dtype": dtype})
    named = {tuple(key.split()): result for key in keys}
    swept = {key: one for key, one in named.items() if len(key) == 2}
    items = {key: one for key, one in named.items() if len(key) == 3}
    return SimpleNamespace(run=SimpleNamespace(results=swept, items=items))


OWN = ("a best", "a worst", "b best", "items a greatest", "items b greatest")


@pytest.mark.parametrize(
    ("second", "noise", "said"),
    [
        ("", (), "this call does not ask for the noise between dtypes. --config.second_dtype=f"),
        ("float32", (), "none of 5 results is there in float32 too, which --config.second_dtype"),
        ("float32", ("c best",), "none of 5 results is there in float32 too"),
        ("float32", ("a best", "items a greatest", "c best"), ": 1 of 2 models, 2 of 5 results."),
        ("float32", OWN, "in float32: 2 of 2 models, 5 of 5 results."),
    ],
)
def test_the_page_says_of_how_many_results_the_noise_is_known(second, noise, said):
    """With a model too large for the second dtype it said that the call did not ask for it."""
    asked = SimpleNamespace(rewards=[], config=SimpleNamespace(second_dtype=second))
    made = {"paper": study(*OWN)} | ({"noise": study(*noise)} if noise else {})
    (line,) = page.noise_facts(asked, made)
    assert said in line


def test_where_every_model_has_the_second_dtype_that_is_all_that_is_said(monkeypatch):
    """It went on: "none of N results is there in bfloat16 too", which all of them are."""
    monkeypatch.setattr(runs, "has_no_noise", lambda asked, spec: True)
    rewards = [SimpleNamespace(nickname="A")]
    asked = SimpleNamespace(rewards=rewards, config=SimpleNamespace(second_dtype="bfloat16"))
    said = page.noise_facts(asked, {"paper": study("a best")})
    assert said == ["No noise for A: the run is in bfloat16 already."]


def test_without_a_result_nothing_is_said_of_noise():
    assert page.noise_facts(SimpleNamespace(), {}) == []
