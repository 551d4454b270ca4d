"""Exact policies from runs with planted rewards."""

import dataclasses

import numpy as np
import pytest

import analysis
from analysis.blocks import pictures
from analysis.chapters import policies
from analysis.chapters.policies import BEST_OF_N, policies_of
from analysis.measures import reference_policy
from configs.prompts import FOLLOW_UP
from tests.support import runs

N = 400


def _run(folder, rewards):
    """Models of one vocabulary under "greatest", and a language model that finds all alike."""
    words = [f"w{i}" for i in range(N)]
    scores = {(model, "greatest"): values for model, values in rewards.items()}
    run = runs.write_run(folder, {"v": words}, dict.fromkeys(rewards, "v"), scores, size=N)
    runs.add_logprobs(run, "lm", "v", "greatest", np.full(N, -np.log(N)))
    return analysis.load(run)


def _replies(run):
    (replies,) = reference_policy.vocabularies(run, list("abcd"))
    return replies


def notes_of(section):
    """The notes of a section."""
    return [block.text for block in section.blocks if getattr(block, "role", "") == "note"]


@pytest.fixture(scope="module")
def turning(tmp_path_factory):
    """Rewards: b is a, but low where a is highest; c is a in other units; d is noise."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=N)
    b = np.where(a < 1.8, a, -2.0)
    folder = tmp_path_factory.mktemp("turning") / "run"
    return _run(folder, {"a": a, "b": b, "c": 3 * a - 7, "d": rng.normal(size=N)})


@pytest.fixture(scope="module")
def study(turning, study_of):
    return study_of(turning, policies)


def test_replies_too_improbable_for_a_float_do_no_harm(tmp_path):
    run = _run(tmp_path / "run", {"a": np.arange(N) * 1.0, "b": -np.arange(N) * 1.0})
    replies = _replies(run)
    log_p = np.full(N, -2000.0)
    log_p[:5] = np.log(0.2)
    far = dataclasses.replace(replies, log_p=log_p)
    table = policies_of(far)
    assert table.select("kl", "gain", "replies").to_numpy().min() >= 0


def test_a_model_that_scored_a_part_alone_and_a_flat_one_are_left_out(tmp_path):
    a = np.random.default_rng(0).normal(size=N)
    run = _run(tmp_path / "run", {"a": a, "b": np.ones(N)})
    assert _replies(run).models == ("a",)
    part = dataclasses.replace(run.results["a", "greatest"], self_check=None)
    cut = dataclasses.replace(run, results={**run.results, ("a", "greatest"): part})
    assert list(reference_policy.vocabularies(cut, ["a", "b"])) == []


def _run_of_keys(folder, vocabularies):
    """Models a and b and a language model, each with a vocabulary of its own key."""
    rng = np.random.default_rng(0)
    scores = {(model, "greatest"): rng.normal(size=4) for model in "ab"}
    keys = {model: model for model in "ab"}
    run = runs.write_run(folder, vocabularies, keys, scores)
    runs.add_logprobs(run, "lm", "lm", "greatest", np.log([0.4, 0.3, 0.2, 0.1]))
    return analysis.load(run)


def test_models_of_equal_tokens_share_a_reference_and_others_are_apart(tmp_path, study_of):
    words = ["w", "x", "y", "z"]
    run = _run_of_keys(tmp_path / "run", dict.fromkeys(("a", "b", "lm"), words))
    assert len({run.same_vocabulary(model) for model in ("a", "b", "lm")}) == 3
    study = study_of(run, policies)
    assert study.tables["policies"]["of"].unique().to_list() == ["vocabulary"]
    assert study.tables["policies"]["model"].unique().sort().to_list() == ["a", "b"]
    assert notes_of(policies.ANALYSIS.section(study)) == []
    tables = {"a": words, "b": ["w", "x", "z", "y"], "lm": words}
    study = study_of(_run_of_keys(tmp_path / "apart", tables), policies)
    assert study.tables["policies"]["model"].unique().to_list() == ["a"]
    (note,) = notes_of(policies.ANALYSIS.section(study))
    assert note.endswith(": b.")


def test_a_prompt_that_no_language_model_was_given_is_said_and_a_chat_form_first(
    small_run, study_of
):
    runs.add_logprobs(small_run, "lm", "v2", "worst", [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0])
    assert study_of(small_run, policies).tables.reason("policies")
    flat = [-1.8] * 6
    runs.add_logprobs(small_run, "lm", "v2", "greatest", flat)
    runs.add_logprobs(small_run, "lm", "v2", "greatest.chat", flat)
    (replies,) = reference_policy.vocabularies(analysis.load(small_run), ["m-two"])
    assert replies.form == "greatest.chat"


def test_lists_are_taken_with_the_language_model_that_read_them(small_run, study_of):
    rewards = {"love": 4.0, "peace of mind": 3.0, "war": -2.0}
    runs.add_items(small_run, "things", "m-one", "greatest", rewards)
    read = {"love": (1, -2.0), "peace of mind": (3, -9.0), "war": (1, -3.0)}
    runs.add_item_logprobs(small_run, "things", "base", "greatest", read)
    run = analysis.load(small_run)
    (replies,) = reference_policy.lists(run, ["m-one", "m-two"])
    assert replies.models == ("m-one",)
    assert np.exp(replies.log_p).sum() == pytest.approx(1)
    assert replies.covered == pytest.approx(sum(np.exp([-2.0, -9.0, -3.0])))
    study = study_of(run, policies)
    assert study.tables["policies"]["of"].unique().to_list() == ["list things"]
    best = study.tables["policies"].filter(method=BEST_OF_N, n=1_000_000)
    assert best["top"].to_list() == ["love"]


START = ("best-", "greatest-", "worst-")
ASKED = [p for p in FOLLOW_UP if p.startswith(START) and p.endswith("-one-word")]


@pytest.fixture(scope="module")
def listed(tmp_path_factory, study_of):
    """A list under three wordings of three questions, and a language model that knows a part.

    The reward of b is that of a, but low where a is highest.
    """
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("listed") / "run"
    runs.write_run(folder, {"v": ["x", "y"]}, {"a": "v"}, {("a", "greatest"): [0.0, 1.0]})
    items = [f"item {i}" for i in range(N)]
    for prompt in ASKED:
        a = rng.normal(size=N)
        for model, own in (("a", a), ("b", np.where(a < 1.8, a, -2.0))):
            runs.add_items(folder, "items", model, prompt, dict(zip(items, own, strict=True)))
        runs.add_item_logprobs(folder, "items", "lm", prompt, {i: (2, -15.0) for i in items})
    texts = {prompt: FOLLOW_UP[prompt] for prompt in ASKED}
    runs.edit_run(folder, lambda c: c["prompts"].update(texts))
    record = {"source": "b", "checkpoint_hash": "h", "vocab": None}
    runs.edit_run(folder, lambda c: c["models"].update({"b": record}))
    return study_of(folder, policies)


def test_a_list_under_many_prompts_has_charts_of_three_questions_and_says_so(listed):
    assert len(ASKED) == 9
    first, *_ = reference_policy.lists(listed.run, ["a", "b"])
    own = listed.run.item_scores("items", first.prompt, ["a", "b"])
    np.testing.assert_array_equal(first.rewards, own.select("a", "b").to_numpy().T)
    section = policies.ANALYSIS.section(listed)
    stems = [picture.stem for picture in pictures(section.blocks)]
    asked = ["best-ever-one-word", "worst-ever-one-word", "greatest-ever-one-word"]
    assert stems == [f"policies_list_items_{prompt}" for prompt in asked]
    assert [block.kind for block in section.blocks].count("folded") == 3  # movers


def test_a_finding_names_the_reply_that_gains_most(turning, study, monkeypatch):
    (finding,) = policies.ANALYSIS.section(study).findings
    best = int(turning.rewards("a", "greatest")[1].argmax())
    assert f"“w{best}” (a and c)" in finding.text
    assert finding.picture == "policies_vocabulary_greatest"
    monkeypatch.setattr(policies, "piece_mark", lambda reply, _: f"piece of {reply}")
    (finding,) = policies.ANALYSIS.section(study).findings
    assert f"“w{best}” (piece of w{best}; a and c)" in finding.text
