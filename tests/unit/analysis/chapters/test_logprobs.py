import math

import numpy as np
import polars as pl
import pytest
import scipy.stats

import analysis
from analysis.chapters import logprobs
from tests.support import runs
from tests.support.studies import cited


@pytest.fixture
def run(small_run):
    runs.add_logprobs(small_run, "base-lm", "v2", "greatest", [-1.0, -9.0, -5.0, -0.5, -0.25, -3.0])
    return analysis.load(small_run)


def test_a_language_model_is_no_reward_model_and_its_likeliest_tokens_are_listed(run):
    assert list(run.models) == ["m-one", "m-two"]
    assert list(run.logprobs) == [("base-lm", "greatest")]
    table = analysis.logprobs_ends(run, "greatest", 2)
    assert table.columns == ["model", "end", "rank", "token_id", "token", "logprob"]
    assert table["end"].to_list() == ["top", "top", "bottom", "bottom"]
    assert table["token"].to_list() == ["love", " love", "<script>alert(1)</script>", "\ufffd"]


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


def test_the_log_ratio_is_that_of_the_formula():
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.2, 0.7])
    expected = [0.4 * math.log(1 / 7), 0.0, 0.4 * math.log(7)]
    np.testing.assert_allclose(analysis.log_ratio(np.log(p), np.log(q)), expected, atol=1e-15)


REWARDS = {"love": 4.0, "peace of mind": 3.0, "a <b>cat</b>": 1.0, "war": -2.0}
READ = {"love": (1, -2.0), "peace of mind": (3, -9.0), "a <b>cat</b>": (4, -16.0), "war": (1, -3.0)}


@pytest.fixture
def folder(small_run):
    runs.add_items(small_run, "things", "m-one", "greatest", REWARDS)
    runs.add_item_logprobs(small_run, "things", "base", "greatest", READ)
    return small_run


def test_rewards_are_set_against_the_sum_and_the_mean_over_tokens(folder):
    run = analysis.load(folder)
    assert "base" not in run.models
    (row,) = analysis.logprobs_items(run, ["m-one", "m-two"]).to_dicts()
    keys = ("list", "prompt", "language_model", "model", "n")
    assert [row[key] for key in keys] == ["things", "greatest", "base", "m-one", 4]
    reward, logprob = list(REWARDS.values()), [x for _, x in READ.values()]
    per_token = [x / n for n, x in READ.values()]
    assert row["spearman"] == pytest.approx(scipy.stats.spearmanr(reward, logprob).statistic)
    assert row["kendall"] == pytest.approx(scipy.stats.kendalltau(reward, logprob).statistic)
    expected = scipy.stats.spearmanr(reward, per_token).statistic
    assert row["spearman_per_token"] == pytest.approx(expected)


def test_correlations_are_described_by_their_range_over_rankings(folder):
    table = analysis.logprobs_items(analysis.load(folder), ["m-one"])
    two = pl.concat([table, table]).with_columns(spearman=pl.Series([0.456, -0.2]))
    assert cited(logprobs.described(two, "items"))[:3] == ["−0.20", "0.46", "2"]
    none = table.with_columns(spearman=pl.lit(math.nan))
    assert logprobs.described(none, "items") == ""
