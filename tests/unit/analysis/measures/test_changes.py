"""What changed between two models: planted changes are found, and noise is not taken for one."""

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.chapters.changes import Changes, findings
from analysis.measures.changes import CHANGE, Limits, changes, checks, moved_tokens, moved_words
from analysis.measures.two_models import two_models
from engine.errors import AssayError
from tests.support import runs

N = 600
LIMITS = Limits(kendall=0.9, ends=20, kept=0.8, words=0.05)
KINDS = pl.DataFrame(
    {
        "list": ["kind"] * 40,
        "words": ["loved"] * 20 + ["left alone"] * 20,
        "token_id": pl.Series(range(40), dtype=pl.UInt32),
        "stem": [f"s{i}" for i in range(40)],
    }
)


def _load(folder, rewards, prompt="greatest"):
    vocabulary = {"v": [f"w{i}" for i in range(N)]}
    return analysis.load(
        runs.write_run(folder, vocabulary, {"m": "v"}, {("m", prompt): rewards}, size=N)
    )


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


def test_the_verdict_names_what_does_not_hold_and_is_silent_about_noise(readings):
    for after, holds in (("loved", False), ("noisy", True)):
        run, noise = _both(readings, after)
        verdict = _verdict(run, noise)
        assert verdict["holds"].all() is holds
        assert bool(findings(verdict)) is not holds
    said = " ".join(finding.text for finding in findings(_verdict(*_both(readings, "loved"))))
    assert "largest significant shift of a kind of words (loved)" in said


def _verdict(run, noise):
    words = [moved_words(pair, KINDS) for _, pair in noise]
    return checks(changes(run, noise, LIMITS), moved_words(run, KINDS), words, LIMITS)


def test_the_noise_stands_beside_every_limit(readings):
    verdict = _verdict(*_both(readings, "loved"))
    assert verdict["noise"].null_count() == 0
    kendall, top, bottom, words = verdict["noise"]
    assert kendall > 0.99
    assert top == bottom == 1.0
    assert 0 < words < 0.01


def test_hardly_a_listed_token_is_beyond_noise_where_there_is_noise_alone(tmp_path, rewards):
    rng = np.random.default_rng(5)
    sweeps = [_load(tmp_path / str(i), rewards + 0.1 * rng.normal(size=N)) for i in range(3)]
    noise = [("noise", two_models(sweeps[0], sweeps[1]))]
    tokens = moved_tokens(two_models(sweeps[1], sweeps[2]), noise, 20)
    assert tokens["beyond_noise"].sum() <= 4  # of 40


def test_rewards_without_an_order_are_undefined_and_do_not_hold(tmp_path):
    flat = _load(tmp_path / "flat", np.ones(N))
    run = two_models(flat, flat)
    verdict = checks(changes(run, [], LIMITS), moved_words(run, KINDS), [], LIMITS)
    assert "Kendall’s τ is undefined" in findings(verdict)[0].text


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
    tops = [set(np.argsort(-x)[:20].tolist()) for x in (before, after)]
    assert row["top_kept"] == len(tops[0] & tops[1]) / 20


def test_a_kind_of_fewer_than_five_stems_has_no_test(readings):
    run, _ = _both(readings, "loved")
    words = moved_words(run, KINDS.with_columns(stem=pl.lit("one")))
    assert words["p"].is_nan().all()
    verdict = checks(changes(run, [], LIMITS), words, [], LIMITS)
    check = "largest significant shift of a kind of words"
    assert verdict.filter(check=check)["measured"].to_list() == [0.0]


def test_the_chapter_says_the_verdict(readings, settings):
    run, noise = _both(readings, "loved")
    chapter = Changes(limits=LIMITS, noise=noise)
    study = analysis.compute(run, {}, settings, [chapter])
    section = chapter.section(study)
    assert "limits do not hold" in section.blocks[0].text
    assert section.findings
    noiseless = Changes(limits=LIMITS, noise=[])
    study = analysis.compute(
        two_models(readings["before"], readings["noisy"]), {}, settings, [noiseless]
    )
    said = [block.text for block in noiseless.section(study).blocks if block.kind == "text"]
    assert any("No noise was measured" in text for text in said)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kendall", 2),
        ("kendall", "x"),
        ("ends", 0),
        ("ends", True),
        ("kept", -0.1),
        ("words", True),
    ],
)
def test_limits_out_of_range_are_refused(name, value):
    good = {"kendall": 0.9, "ends": 20, "kept": 0.8, "words": 0.05}
    with pytest.raises(AssayError, match=rf"diff\.limits\.{name}="):
        Limits(**good | {name: value})
