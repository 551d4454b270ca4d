"""Two models as one run: what fits, and what is refused."""

import re

import numpy as np
import pytest

import analysis
from analysis.measures.two_models import differs_in, left_out, two_models
from engine.errors import AssayError
from tests.support import runs

TOKENS = ["love", "hate", "x"]


def _run(folder, models=("m",), prompts=("greatest",), tokens=TOKENS):
    scores = {(m, p): np.arange(len(tokens)) * 1.0 for m in models for p in prompts}
    return analysis.load(
        runs.write_run(folder, {"v": tokens}, dict.fromkeys(models, "v"), scores, size=9)
    )


def _language_model(folder, tokens=TOKENS, **forms):
    """A language model under "greatest", in these forms (form -> log-probabilities)."""
    runs.write_run(folder, {"v": tokens}, {}, {})
    for form, logprobs in (forms or {"": [-1.0, -2.0, -3.0]}).items():
        prompt = f"greatest.{form}" if form else "greatest"
        runs.add_logprobs(folder, "lm", "v", prompt, logprobs)
    return analysis.load(folder)


def _with_identity(folder, **changed):
    """The run in a folder, whose results have another identity now."""

    def change(content):
        for result in content["results"].values():
            result["identity"] |= changed

    runs.edit_run(folder, change)
    return analysis.load(folder)


def test_two_runs_of_one_slug_and_path_keep_their_own_rewards(tmp_path):
    first = _run(tmp_path / "a")
    runs.write_run(tmp_path / "b", {"v": TOKENS}, {"m": "v"}, {("m", "greatest"): [3.0, 2.0, 1.0]})
    run = two_models(first, analysis.load(tmp_path / "b"))
    assert run.rewards("before", "greatest")[1].tolist() == [0, 1, 2]
    assert run.rewards("after", "greatest")[1].tolist() == [3, 2, 1]
    frame = run.scores(models=["after"]).collect()
    assert frame["token"].to_list() == TOKENS
    assert list(run.models) == ["before", "after"]


def test_a_language_model_stands_on_one_side_also_in_its_chat_form(tmp_path):
    run = two_models(_language_model(tmp_path / "b"), _run(tmp_path / "a"))
    assert run.rewards("before", "greatest")[1].tolist() == [-1, -2, -3]
    assert run.scores(models=["before"]).collect()["reward"].to_list() == [-1, -2, -3]
    chat = _language_model(tmp_path / "chat", chat=[-1.0, -2.0, -3.0])
    run = two_models(chat, _run(tmp_path / "c"))
    assert run.rewards("before", "greatest")[1].tolist() == [-1, -2, -3]


def test_a_few_tokens_behind_the_others_are_left_out_and_others_refused(tmp_path):
    first = _run(tmp_path / "a")
    other = _run(tmp_path / "other", tokens=["love", "like", "x", "y"])
    with pytest.raises(AssayError, match=r"3 and 4 .*'hate' and 'like'"):
        two_models(first, other)
    added = [f"<|added {i}|>" for i in range(513)]
    few = _run(tmp_path / "b", tokens=[*TOKENS, *added[:512]])
    many = _run(tmp_path / "c", tokens=[*TOKENS, *added])
    assert left_out(two_models(first, first)) == ""
    for run, side in ((two_models(first, few), "after"), (two_models(few, first), "before")):
        assert re.search(rf"512 .* {side} .*3 '<\|added 0\|>', 4", left_out(run))
    with pytest.raises(AssayError, match=r"3 and 516 .*512"):
        two_models(first, many)


def test_another_form_of_the_prompt_or_mode_is_refused(tmp_path):
    _language_model(tmp_path / "pretrained"), _language_model(tmp_path / "chat")
    sides = [_with_identity(tmp_path / form, form=form) for form in ("pretrained", "chat")]
    with pytest.raises(AssayError, match="'chat'"):
        two_models(*sides)
    first = _run(tmp_path / "a")
    _run(tmp_path / "b")
    with pytest.raises(AssayError, match="'text'"):
        two_models(first, _with_identity(tmp_path / "b", mode="text"))


def test_other_scored_tokens_are_refused(tmp_path):
    first = _run(tmp_path / "a")
    scores = {("m", "greatest"): {0: 1.0, 2: 2.0}}
    runs.write_run(tmp_path / "b", {"v": TOKENS}, {"m": "v"}, scores)
    second = analysis.load(tmp_path / "b", allow_incomplete=True)
    with pytest.raises(AssayError, match="other tokens"):
        two_models(first, second)


def test_a_run_of_several_models_needs_a_name(tmp_path):
    several = _run(tmp_path / "a", models=("m", "n"))
    single = _run(tmp_path / "b")
    with pytest.raises(AssayError, match=r"m, n; .*--before_model"):
        two_models(several, single)
    with pytest.raises(AssayError, match="--after_model='z'; allowed: m"):
        two_models(single, single, models=("", "z"))
    assert two_models(several, several, models=("m", "n")).results.keys() == {
        ("before", "greatest"),
        ("after", "greatest"),
    }


def test_a_prompt_of_one_run_alone_is_refused_unless_others_are_chosen(tmp_path):
    more = _run(tmp_path / "a", prompts=("greatest", "worst"))
    fewer = _run(tmp_path / "b")
    with pytest.raises(AssayError, match=r"only --before has 'worst'; .*=greatest"):
        two_models(more, fewer)
    with pytest.raises(AssayError, match="'worst'"):
        two_models(more, fewer, ["worst"])
    assert list(two_models(more, fewer, ["greatest"]).prompts) == ["greatest"]
    with pytest.raises(AssayError, match="prompt"):
        two_models(_run(tmp_path / "c", prompts=("worst",)), fewer)


POLICY = {"bos": "template", "date": None}
WEIGHTS = {"source": "hub/m", "revision": None, "decoder_hash": "d", "head": "urm"}


def _of_weights(folder, policy=(), identity=(), **record):
    """A run of one model, whose record says what its weights and settings of conversion are."""
    _run(folder)
    record = {**WEIGHTS, "template": POLICY | dict(policy)} | record
    runs.edit_run(folder, lambda content: content["models"]["m"].update(record))
    return _with_identity(folder, **dict(identity))


@pytest.mark.parametrize(
    ("changed", "start"),
    [
        ({}, ""),
        ({"policy": {"bos": "none", "date": "1 May"}}, "bos=template/none, date=template/1 May"),
        ({"head": "urm-helpfulness"}, "head=urm/urm-helpfulness"),
        ({"identity": {"mode": "text", "pooling": "first_pad"}}, "mode=ids/text, pooling=last/"),
        ({"decoder_hash": "e"}, ""),
        ({"decoder_hash": "e", "policy": {"bos": "none"}}, "model, bos=template/none"),
    ],
)
def test_the_settings_that_differ_are_named(tmp_path, changed, start):
    """Two models without such a setting differ in their weights alone, which is no setting."""
    run = two_models(_of_weights(tmp_path / "a"), _of_weights(tmp_path / "b", **changed))
    assert differs_in(run).startswith(start) and bool(differs_in(run)) is bool(start)


def test_one_prompt_of_two_texts_is_refused(tmp_path):
    first = _run(tmp_path / "a")
    _run(tmp_path / "b")
    runs.edit_run(tmp_path / "b", lambda c: c["prompts"].update({"greatest": "Another?"}))
    with pytest.raises(AssayError, match=r"'Another\?' in --after"):
        two_models(first, analysis.load(tmp_path / "b"))
