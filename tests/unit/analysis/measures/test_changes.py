"""What changed between two models: planted changes are found, and noise is not taken for one."""

import dataclasses

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.chapters.changes import changes_between
from analysis.measures import changes as module
from analysis.measures.changes import CHANGE, WORDS, changes, moved_tokens, moved_words
from analysis.measures.two_models import two_models
from analysis.settings import Limits
from engine.errors import AssayError
from tests.support import runs
from tests.support.studies import cited

N = 600
LIMITS = Limits(kendall=0.9, ends=20, kept=0.8, words=0.05)
KINDS = pl.DataFrame(
    [("kind", "loved" if i < 20 else "left alone", i, f"s{i}") for i in range(40)],
    schema={"list": str, "words": str, "token_id": pl.UInt32, "stem": str},
    orient="row",
)


def _load(folder, rewards, prompts=("greatest",), more=()):
    """A model's rewards of words, and of `more` tokens, under each prompt."""
    vocabulary = {"v": [*(f"w{i}" for i in range(N)), *more]}
    scores = {("m", prompt): rewards for prompt in prompts}
    return analysis.load(runs.write_run(folder, vocabulary, {"m": "v"}, scores, size=N + 1))


@pytest.fixture
def rewards():
    return np.random.default_rng(0).normal(size=N)


@pytest.fixture
def readings(tmp_path, rewards):
    """The same model three times: as it was, with noise, and with 20 words that it now loves."""
    rng = np.random.default_rng(1)
    loved = rewards + 1e-3 * rng.normal(size=N)
    loved[:20] += 2
    noisy = rewards + 1e-3 * rng.normal(size=N)
    made = {"before": rewards, "noisy": noisy, "loved": loved}
    return {name: _load(tmp_path / name, values) for name, values in made.items()}


def _both(readings, after):
    noise = [("noise", two_models(readings["before"], readings["noisy"]))]
    return two_models(readings["before"], readings[after]), noise


def test_words_that_are_loved_now_have_moved_and_others_have_not(readings):
    run, noise = _both(readings, "loved")
    words = moved_words(run, KINDS)
    loved, left = words.rows(named=True)
    assert loved["shift"] > 0.2
    assert loved["q"] < 0.001
    assert loved["ci_low"] < loved["shift"] < loved["ci_high"]
    assert abs(left["shift"]) < 0.05
    tokens = moved_tokens(run, noise, 20)
    assert set(tokens.filter(end="rose")["token_id"].to_list()) == set(range(20))
    assert tokens.filter(end="rose")["beyond_noise"].all()


def test_as_many_tokens_as_expected_move_beyond_noise_where_there_is_noise_alone(readings):
    run, noise = _both(readings, "noisy")
    table = changes(run, noise, LIMITS)
    assert table["of"].to_list() == [CHANGE, "noise"]
    assert table["beyond_noise"].to_list() == pytest.approx([0.01, 0.01], abs=0.005)
    assert changes(run, [], LIMITS)["beyond_noise"].to_list() == [None]


def test_kendall_and_the_kept_ends_are_those_of_a_slow_count(readings):
    run, _ = _both(readings, "loved")
    (row,) = changes(run, [], LIMITS).rows(named=True)
    before, after = (run.rewards(side, "greatest")[1] for side in ("before", "after"))
    i, j = np.triu_indices(N, 1)
    signs = np.sign(before[i] - before[j]) * np.sign(after[i] - after[j])
    assert row["kendall"] == pytest.approx(signs.mean())
    for end, sign in (("top_kept", -1), ("bottom_kept", 1)):
        first, second = (set(np.argsort(sign * x)[:20].tolist()) for x in (before, after))
        assert row[end] == len(first & second) / 20
    assert row["top_kept"] < row["bottom_kept"] < 1


def _words(**columns):
    """Rows of `changes_words.csv` under "greatest", as far as a check reads them."""
    count = len(columns["shift"])
    known = {"prompt": ["greatest"] * count, "list": ["kinds"] * count, **columns}
    schema = {name: kind for name, kind in WORDS.schema.items() if name != "q"}
    return WORDS.frame(pl.DataFrame({name: known.get(name) for name in schema}, schema=schema))


@pytest.mark.parametrize(
    ("shifts", "measured", "what", "holds"),
    [
        ([-0.3, 0.02], -0.3, "a", False),  # a fall counts as a rise does
        ([-0.04, 0.02], -0.04, "a", True),
        ([0.02, 0.3], 0.02, "a", True),  # the second is not significant
    ],
)
def test_the_limit_on_words_is_one_on_the_largest_shift_either_way(shifts, measured, what, holds):
    words = _words(words=["a", "b"], shift=shifts, p=[0.001, 0.4])
    found = module.words_check("greatest", words, [], 0.05)
    assert found[1:] == (what, measured, None, 0.05, "at most", holds)
    noise = _words(words=["a", "b", "c"], shift=[-0.01, 0.002, 0.4], p=[0.5, 0.5, float("nan")])
    assert module.words_check("greatest", words, [noise], 0.05)[3] == 0.01  # of those with a test


def test_the_worst_violation_comes_first_and_what_holds_last():
    """How bad: the share of the way from the limit to the worst value that is possible."""
    rows = [
        ("Kendall’s τ", 0.95, 0.9, "at least", True),
        ("bottom 20 kept", 0.81, 0.8, "at least", True),
        ("Kendall’s τ", -0.05, 0.9, "at least", False),  # .95 of 1.9
        ("top 20 kept", 0.2, 0.8, "at least", False),  # .6 of .8
        ("largest significant shift", -0.62, 0.05, "at most", False),  # .57 of .95
    ]
    names = ("check", "measured", "limit", "allowed", "holds")
    sorted_rows = module.worst_first(pl.DataFrame(rows, names, orient="row"))
    assert sorted_rows["measured"].to_list() == [0.2, -0.62, -0.05, 0.81, 0.95]


def test_a_token_of_one_vocabulary_alone_is_left_out(tmp_path, rewards):
    first = _load(tmp_path / "first", rewards)
    highest = [*rewards, 99.0]  # were it counted
    padded = _load(tmp_path / "padded", highest, more=["<|pad|>"])
    for run in (two_models(first, padded), two_models(padded, first)):
        (row,) = changes(run, [], LIMITS).rows(named=True)
        assert row["n"] == N
        assert row["kendall"] == pytest.approx(1, abs=1e-12)
        assert row["top_kept"] == row["bottom_kept"] == 1
        assert row["mean_shift"] == 0
        assert moved_tokens(run, [], 20).height == 0


def test_a_kind_of_fewer_than_five_stems_has_no_test(readings):
    run, _ = _both(readings, "loved")
    words = moved_words(run, KINDS.with_columns(stem=pl.format("s{}", pl.int_range(pl.len()) % 4)))
    assert words["p"].is_nan().all()
    assert module.kinds_with_a_test(words) == (0, 2)
    assert module.kinds_with_a_test(moved_words(run, KINDS)) == (2, 2)


def test_the_chapter_says_how_far_tokens_moved_and_what_was_not_compared(
    tmp_path, rewards, study_of
):
    first = _load(tmp_path / "first", rewards)
    tokens = [*(f"w{i}" for i in range(N)), "<|pad|>"]
    tokens[:7] = ["love", "loved", "adore", "happy", "great", "good", "women"]
    folder = runs.write_run(tmp_path / "lm", {"v": tokens[:-1]}, {"m": "v"}, {}, size=N)
    scores = {("m", "greatest"): [*rewards, 0.0]}
    runs.write_run(tmp_path / "rm", {"v": tokens}, {"m": "v"}, scores, size=N + 1)
    runs.add_logprobs(folder, "lm", "v", "greatest", rewards[::-1] - 9)
    run = two_models(analysis.load(folder), analysis.load(tmp_path / "rm"))
    chapter = changes_between(limits=LIMITS, noise=[("noise", two_models(first, first))])
    study = study_of(run, chapter)
    (row,) = study.tables["changes"].filter(of=CHANGE).rows(named=True)
    section = chapter.section(study)
    shown = [f"{100 * row['mean_shift']:.2f}", f"{row['kendall']:.2f}".replace("-", "−")]
    assert cited(section.answer) == shown
    marked = [cited(b.text) for b in section.blocks if b.kind == "text"]
    assert any({"1", "600"} <= set(values) for values in marked)  # token left out, and its id
    assert any(values[:3] == ["1", "3", "5"] for values in marked)  # kinds of words with a test


def test_ends_that_overlap_are_refused(readings):
    run, _ = _both(readings, "noisy")
    with pytest.raises(AssayError, match=r"ends=301 of 600 .* 300$"):
        changes(run, [], dataclasses.replace(LIMITS, ends=N // 2 + 1))
