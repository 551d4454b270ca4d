import math

import numpy as np
import pytest
import scipy.stats

import analysis
from analysis.report import write_report
from tests.support import runs


@pytest.fixture
def run(small_run):
    runs.add_logprobs(small_run, "base-lm", "v2", "greatest", [-1.0, -9.0, -5.0, -0.5, -0.25, -3.0])
    return analysis.load(small_run)


def test_a_language_model_is_no_reward_model(run):
    assert list(run.models) == ["m-one", "m-two"]
    assert list(run.logprobs) == [("base-lm", "greatest")]


def test_the_likeliest_and_unlikeliest_next_tokens_are_listed(run):
    table = analysis.logprobs_ends(run, "greatest", 2)
    assert table.columns == ["model", "end", "rank", "token_id", "token", "logprob"]
    assert table.select("end", "rank", "token").rows() == [
        ("top", 1, "love"),
        ("top", 2, " love"),
        ("bottom", 1, "<script>alert(1)</script>"),
        ("bottom", 2, "\ufffd"),
    ]


def test_rewards_are_set_against_it_on_strings_of_one_token_in_both(run):
    table = analysis.logprobs_rewards(run, ["m-one", "m-two"])
    assert table.select("language_model", "model", "n").rows() == [
        ("base-lm", "m-one", 4),
        ("base-lm", "m-two", 6),
    ]
    # m-one: "hate", the script, " love", "love" ("\ufffd" is two of its tokens).
    x, y = [-1.0, -9.0, -0.5, -0.25], [-3.0, -9.0, 5.0, 4.0]
    row = table.row(0, named=True)
    assert row["pearson"] == pytest.approx(scipy.stats.pearsonr(x, y).statistic)
    assert row["spearman"] == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
    assert row["kendall"] == pytest.approx(scipy.stats.kendalltau(x, y).statistic)


def test_another_form_of_a_prompt_meets_the_rewards_under_its_text(small_run):
    runs.add_logprobs(
        small_run, "chat", "v2", "greatest.chat", [-1.0, -9.0, -5.0, -0.5, -0.25, -3.0]
    )
    table = analysis.logprobs_rewards(analysis.load(small_run), ["m-one", "m-two"])
    assert table["prompt"].unique().to_list() == ["greatest.chat"]
    assert table["model"].to_list() == ["m-one", "m-two"]


def test_a_run_of_language_models_alone_has_a_report(light, small_run, tmp_path, settings):
    runs.edit_manifest(small_run, lambda content: content["results"].clear())
    runs.add_logprobs(small_run, "base-lm", "v2", "greatest", [-1.0, -9.0, -5.0, -0.5, -0.25, -3.0])
    page = write_report(analysis.load(small_run), tmp_path / "report", {}, settings)
    assert "The most and least probable next tokens of language models" in page.read_text(
        encoding="utf-8"
    )


def test_the_log_ratio_is_that_of_the_formula():
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.2, 0.7])
    expected = [0.4 * math.log(1 / 7), 0.0, 0.4 * math.log(7)]
    np.testing.assert_allclose(analysis.log_ratio(np.log(p), np.log(q)), expected, atol=1e-15)


def test_two_language_models_are_set_against_each_other_on_shared_strings(small_run):
    runs.add_logprobs(small_run, "base-b", "v2", "greatest", [-1.0, -9.0, -5.0, -0.5, -3.0, -3.0])
    own = [-4.0, -3.0, 0.0, 0.0, -1.5, -9.0, -0.1]
    runs.add_logprobs(small_run, "base-a", "v1", "greatest", own)
    table = analysis.logprobs_ratio(analysis.load(small_run), 2)
    # Strings of one token in both: "hate", the script, " love", "love"; p is base-a, q base-b.
    assert table.select("p", "q", "end", "rank", "token").rows() == [
        ("base-a", "base-b", "p", 1, "<script>alert(1)</script>"),
        ("base-a", "base-b", "p", 2, "love"),
        ("base-a", "base-b", "q", 1, " love"),
        ("base-a", "base-b", "q", 2, "hate"),
    ]
    row = table.row(3, named=True)
    assert (row["log_p"], row["log_q"]) == (-1.5, -1.0)
    assert row["ratio"] == pytest.approx(0.5 * (math.exp(-1.5) + math.exp(-1.0)) * 0.5)


def test_one_language_model_is_set_against_none(run):
    assert analysis.logprobs_ratio(run, 2).height == 0
