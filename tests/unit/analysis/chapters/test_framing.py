import math
import re

import numpy as np
import polars as pl
import pytest
import scipy.stats

import analysis
from analysis.chapters import framing
from analysis.statistics.ranks import ranking
from configs.prompts import FOLLOW_UP
from tests.support import runs
from tests.support.studies import cited

GOOD, BAD = [5.0, 4.0, 0.0, 1.0, -3.0], [-4.0, 5.0, 0.5, 1.0, 3.0]


@pytest.fixture
def run(make_run):
    scores = {("m", "greatest"): GOOD, ("m", "worst"): BAD, ("n", "greatest"): GOOD}
    return analysis.load(make_run({"v": list("abcde")}, {"m": "v", "n": "v"}, scores))


def test_two_prompts_are_correlated_over_the_vocabulary(run):
    table = analysis.framing_table(run, ["m", "n"])
    contract = ["model", "prompt_a", "prompt_b", "pearson", "spearman", "kendall"]
    assert table.columns[: len(contract)] == contract
    row = table.row(0, named=True)
    assert (table.height, row["prompt_a"], row["prompt_b"]) == (1, "greatest", "worst")
    assert row["pearson"] == pytest.approx(scipy.stats.pearsonr(GOOD, BAD).statistic)
    assert row["spearman"] == pytest.approx(scipy.stats.spearmanr(GOOD, BAD).statistic)
    assert row["kendall"] == pytest.approx(scipy.stats.kendalltau(GOOD, BAD).statistic)


def test_tokens_that_one_prompt_lacks_are_left_out(make_run):
    scores = {("m", "greatest"): dict(enumerate(GOOD)), ("m", "worst"): {0: -4.0, 2: 0.5, 4: 3.0}}
    path = make_run({"v": list("abcde")}, {"m": "v"}, scores)
    table = analysis.framing_table(analysis.load(path, allow_incomplete=True), ["m"])
    expected = scipy.stats.spearmanr([5.0, 0.0, -3.0], [-4.0, 0.5, 3.0]).statistic
    assert table["spearman"].item() == pytest.approx(expected)


def test_sum_finds_what_is_liked_anyway_and_difference_what_is_told_apart(run):
    pair = ("greatest", "worst")
    sums = analysis.framing_ends(run, ["m", "n"], pair, 2, "sum")
    differences = analysis.framing_ends(run, ["m", "n"], pair, 2, "difference")
    assert sums["end"].to_list() == ["top", "top", "bottom", "bottom"]
    assert sums.select("token", "reward").rows() == [("b", 9), ("d", 2), ("e", 0), ("c", 0.5)]
    found = differences.select("token", "reward").rows()
    assert found == [("a", 9), ("d", 0), ("e", -6), ("b", -1)]


PROMPTS = ("greatest", "best", "worst")


def of(model, rewards, stems):
    return model, rewards, [ranking(x) for x in rewards.values()], stems


def compared(*models):
    """The table of models with the given rewards under the three prompts, and what is said."""
    words = np.repeat(np.arange(200), 2)
    rewards = [dict(zip(PROMPTS, own, strict=True)) for own in models]
    table = framing.compared([of(f"m{i}", own, words) for i, own in enumerate(rewards)])
    names = {f"m{i}": f"M{i}" for i in range(len(models))}
    found = framing.findings(table, ("best", "worst"), names, {})
    return table, " ".join(finding.text for finding in found)


def models_in(text):
    return re.findall(r"\bM\d\b", text)


def spelt(rng, *weights):
    """Rewards of 200 words with two spellings: `weights` of one common value, and noise."""
    words = np.repeat(np.arange(200), 2)
    common = rng.normal(size=200)[words]
    return [w * common + 0.5 * rng.normal(size=400) for w in weights]


def test_a_reversed_order_is_said_beside_two_questions_of_one_framing():
    rng = np.random.default_rng(0)
    table, text = compared(spelt(rng, 1, 1, -1), spelt(rng, 1, 1, -1), spelt(rng, 1, 1, 1))
    own = table.filter(prompt_a="best", prompt_b="worst")
    assert models_in(text)[:3] == ["M0", "M1", "M2"]
    questions = ["best", "worst", "greatest", "best"]
    assert cited(text)[:8] == ["worst", "best", "2", "3", *questions]
    row = own.row(0, named=True)
    same = table.filter(model="m0", prompt_a="greatest", prompt_b="best").row(0, named=True)
    assert row["reference"] == same["pearson"]
    assert row["difference"] == pytest.approx(row["pearson"] - same["pearson"])
    assert row["difference_low"] < row["difference"] < row["difference_high"] < 0
    assert row["ci_low"] < row["pearson"] < row["ci_high"] < 0
    assert math.isnan(same["reference"])


def test_unrelated_prompts_are_not_said_to_differ(rng):
    assert compared(*(spelt(rng, 0, 0, 0) for _ in range(3)))[1] == ""


def test_one_line_says_how_alike_several_wordings_are(make_run, study_of, rng):
    asked = {
        p: FOLLOW_UP[p]
        for q in ("best", "greatest")
        for p in (f"{q}-ever-one-word", f"{q}-ever-answer-only")
    }
    of_question = {question: rng.normal(size=80) for question in ("best", "greatest")}
    scores = {("m", p): of_question[p.split("-")[0]] + 0.1 * rng.normal(size=80) for p in asked}
    run = make_run({"v": [f"t{i}" for i in range(80)]}, {"m": "v"}, scores, size=100)
    runs.edit_run(run, lambda content: content.update(prompts=asked))
    study = study_of(run, framing)
    pairs = study.tables["framing"].with_columns(
        same=pl.col("prompt_a").str.head(4) == pl.col("prompt_b").str.head(4),
        worded=pl.col("prompt_a").str.tail(4) == pl.col("prompt_b").str.tail(4),
    )
    same = pairs.filter("same")["kendall"].mean()
    other = pairs.filter(~pl.col("same"), ~pl.col("worded"))["kendall"].mean()
    assert study.tables["framing_wordings"].row(0) == pytest.approx((same, other))
