import json
import math

import pytest
import scipy.stats

import analysis
from analysis import RunError
from analysis.report import write_report


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


def test_another_form_of_a_prompt_meets_the_rewards_under_its_text(small_run, add_logprobs, edit):
    add_logprobs(small_run, "chat", "v2", "greatest.chat", [-1.0, -9.0, -5.0, -0.5, -0.25, -3.0])
    text = json.loads((small_run / "manifest.json").read_text())["prompts"]["greatest"]
    edit(small_run, lambda content: content["prompts"].update({"greatest.chat": text}))
    table = analysis.logprobs_rewards(analysis.load(small_run), ["m-one", "m-two"])
    assert table["prompt"].unique().to_list() == ["greatest.chat"]
    assert table["model"].to_list() == ["m-one", "m-two"]


def test_a_run_of_language_models_alone_has_a_report(
    small_run, add_logprobs, edit, tmp_path, settings
):
    edit(small_run, lambda content: content["results"].clear())
    add_logprobs(small_run, "base-lm", "v2", "greatest", [-1.0, -9.0, -5.0, -0.5, -0.25, -3.0])
    page = write_report(analysis.load(small_run), tmp_path / "report", {}, settings)
    assert "What language models themselves would say" in page.read_text(encoding="utf-8")
