"""Two models as one run: what fits, and what is refused."""

import numpy as np
import pytest

import analysis
from analysis.measures.two_models import two_models
from engine.errors import AssayError
from tests.support import runs

TOKENS = ["love", "hate", "x"]


def _run(folder, models=("m",), prompts=("greatest",), tokens=TOKENS):
    scores = {(m, p): np.arange(len(tokens)) * 1.0 for m in models for p in prompts}
    return analysis.load(
        runs.write_run(folder, {"v": tokens}, dict.fromkeys(models, "v"), scores, size=9)
    )


def test_two_runs_of_one_slug_and_path_keep_their_own_rewards(tmp_path):
    first = _run(tmp_path / "a")
    runs.write_run(tmp_path / "b", {"v": TOKENS}, {"m": "v"}, {("m", "greatest"): [3.0, 2.0, 1.0]})
    run = two_models(first, analysis.load(tmp_path / "b"))
    assert run.rewards("before", "greatest")[1].tolist() == [0, 1, 2]
    assert run.rewards("after", "greatest")[1].tolist() == [3, 2, 1]
    frame = run.scores(models=["after"]).collect()
    assert frame["token"].to_list() == TOKENS
    assert list(run.models) == ["before", "after"]


def test_a_language_model_stands_on_one_side(tmp_path):
    first = _run(tmp_path / "a")
    folder = runs.write_run(tmp_path / "b", {"v": TOKENS}, {}, {})
    runs.add_logprobs(folder, "lm", "v", "greatest", [-1.0, -2.0, -3.0])
    run = two_models(analysis.load(folder), first)
    assert run.rewards("before", "greatest")[1].tolist() == [-1, -2, -3]
    assert run.scores(models=["before"]).collect()["reward"].to_list() == [-1, -2, -3]


def test_other_vocabularies_are_refused(tmp_path):
    other = _run(tmp_path / "b", tokens=[*TOKENS, "y"])
    with pytest.raises(AssayError, match=r"two vocabularies \(3 and 4 tokens\); allowed: two"):
        two_models(_run(tmp_path / "a"), other)


def test_a_run_of_several_models_needs_a_name(tmp_path):
    several = _run(tmp_path / "a", models=("m", "n"))
    one = _run(tmp_path / "b")
    with pytest.raises(AssayError, match="holds m, n; allowed: name one by --before_model"):
        two_models(several, one)
    with pytest.raises(AssayError, match="--after_model='z'; allowed: m"):
        two_models(one, one, models=("", "z"))
    assert two_models(several, several, models=("m", "n")).results.keys() == {
        ("before", "greatest"),
        ("after", "greatest"),
    }


def test_a_prompt_of_one_run_alone_is_refused_unless_others_are_chosen(tmp_path):
    more = _run(tmp_path / "a", prompts=("greatest", "worst"))
    one = _run(tmp_path / "b")
    with pytest.raises(AssayError, match=r"only --before has 'worst'; .*=greatest"):
        two_models(more, one)
    with pytest.raises(AssayError, match="--after has no prompt 'worst'"):
        two_models(more, one, ["worst"])
    assert list(two_models(more, one, ["greatest"]).prompts) == ["greatest"]
    with pytest.raises(AssayError, match="allowed: runs under one prompt"):
        two_models(_run(tmp_path / "c", prompts=("worst",)), one)


def test_another_mode_is_refused(tmp_path):
    first = _run(tmp_path / "a")
    _run(tmp_path / "b")

    def textual(content):
        for result in content["results"].values():
            result["fingerprint"]["mode"] = "text"

    runs.edit_manifest(tmp_path / "b", textual)
    with pytest.raises(AssayError, match="--after with 'text'; allowed: the same mode"):
        two_models(first, analysis.load(tmp_path / "b"))


def test_a_chat_form_stands_for_its_prompt(tmp_path):
    folder = runs.write_run(tmp_path / "b", {"v": TOKENS}, {}, {})
    runs.add_logprobs(folder, "lm", "v", "greatest.chat", [-1.0, -2.0, -3.0])
    text = _run(tmp_path / "a").prompts["greatest"]
    runs.edit_manifest(folder, lambda c: c["prompts"].update({"greatest.chat": text}))
    run = two_models(analysis.load(folder), analysis.load(tmp_path / "a"))
    assert run.rewards("before", "greatest")[1].tolist() == [-1, -2, -3]


def test_one_prompt_of_two_texts_is_refused(tmp_path):
    first = _run(tmp_path / "a")
    _run(tmp_path / "b")
    runs.edit_manifest(tmp_path / "b", lambda c: c["prompts"].update({"greatest": "Another?"}))
    with pytest.raises(AssayError, match=r"'Another\?' in --after; allowed: the same text"):
        two_models(first, analysis.load(tmp_path / "b"))
