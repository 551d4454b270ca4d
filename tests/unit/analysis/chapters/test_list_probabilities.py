"""Lists of replies that language models and reward models both read."""

import math

import polars as pl
import pytest
import scipy.stats

import analysis
from analysis.chapters import language_models, list_probabilities
from tests.support import runs

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
    (row,) = analysis.item_logprobs_rewards(run, ["m-one", "m-two"]).to_dicts()
    keys = ("list", "prompt", "language_model", "model", "n")
    assert [row[key] for key in keys] == ["things", "greatest", "base", "m-one", 4]
    reward, logprob = list(REWARDS.values()), [x for _, x in READ.values()]
    each = [x / n for n, x in READ.values()]
    assert row["pearson"] == pytest.approx(scipy.stats.pearsonr(reward, logprob).statistic)
    assert row["spearman"] == pytest.approx(scipy.stats.spearmanr(reward, logprob).statistic)
    assert row["kendall"] == pytest.approx(scipy.stats.kendalltau(reward, logprob).statistic)
    expected = scipy.stats.spearmanr(reward, each).statistic
    assert row["spearman_per_token"] == pytest.approx(expected)


def test_rewards_that_follow_a_language_model_are_found_and_others_are_not(small_run, rng):
    words = [f"word {i}" for i in range(400)]
    logprob = -rng.exponential(8.0, len(words))
    planted = {"m-one": 0.5 * logprob + rng.normal(0, 2, len(words))}
    planted["m-two"] = rng.normal(size=len(words))
    for model, own in planted.items():
        runs.add_items(small_run, "words", model, "greatest", dict(zip(words, own, strict=True)))
    read = {word: (1, x) for word, x in zip(words, logprob, strict=True)}
    runs.add_item_logprobs(small_run, "words", "base", "greatest", read)
    table = analysis.item_logprobs_rewards(analysis.load(small_run), ["m-one", "m-two"])
    follows, ignores = table["spearman"]
    # Spearman's of m-one over 200,000 draws is .85; three standard errors of 400.
    assert follows == pytest.approx(0.85, abs=0.06)
    assert abs(ignores) < 3 / math.sqrt(len(words))
    said = language_models.described(table.with_columns(spearman=pl.Series([0.456, -0.2])), "items")
    assert "higher in 1 of 2 rankings (Spearman’s ρ 0.46) and lower in 1 of 2 rankings" in said
    none = table.with_columns(spearman=pl.lit(math.nan))
    assert language_models.described(none, "items") == ""


def test_a_prompt_in_chat_form_meets_the_rewards_under_its_text(folder):
    runs.add_item_logprobs(folder, "things", "chat", "greatest.chat", READ)
    table = analysis.item_logprobs_rewards(analysis.load(folder), ["m-one"])
    assert table.select("language_model", "prompt").rows() == [
        ("base", "greatest"),
        ("chat", "greatest.chat"),
    ]


def test_two_language_models_are_set_against_each_other_on_a_list(folder):
    other = READ | {"love": (1, -4.0), "war": (1, -1.0)}
    runs.add_item_logprobs(folder, "things", "other", "greatest", other)
    table = analysis.item_logprobs_ratio(analysis.load(folder), 1)
    assert " ".join(table.columns) == "list prompt p q end rank item log_p log_q ratio"
    assert table.select("p", "q", "end", "rank", "item").rows() == [
        ("base", "other", "p", 1, "love"),
        ("base", "other", "q", 1, "war"),
    ]
    assert table["ratio"][1] == pytest.approx((math.exp(-3) + math.exp(-1)) / 2 * 2)


def test_a_list_that_no_reward_model_scored_is_said(small_run, study_of):
    runs.add_item_logprobs(small_run, "things", "base", "greatest", READ)
    study = study_of(small_run, list_probabilities)
    assert study.tables.reason("item_logprobs") == (
        "No reward model scored a list that a language model scored, under its prompt."
    )
