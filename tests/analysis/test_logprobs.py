import math

import pytest
import scipy.stats

import analysis
from analysis import RunError


@pytest.fixture
def run(small_run, add_logprobs):
    add_logprobs(small_run, "base-lm", "v2", "greatest", [-1.0, -9.0, -5.0, -0.5, -0.25, -3.0])
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


def test_a_log_probability_that_is_not_finite_is_refused(small_run, add_logprobs):
    add_logprobs(small_run, "base-lm", "v2", "greatest", [0.0, -math.inf, 0.0, 0.0, 0.0, 0.0])
    with pytest.raises(RunError, match="logprobs that are not finite, token ids 1"):
        analysis.load(small_run)
