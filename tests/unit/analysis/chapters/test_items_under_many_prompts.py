"""A list under many prompts: by question, between models, between framings."""

import dataclasses
import math

import numpy as np
import polars as pl
import pytest
import scipy.stats

from analysis.blocks import pictures
from analysis.chapters import humans, items, model_list
from analysis.chapters.items import ALL_MODELS
from analysis.measures import list_scores
from analysis.measures.list_scores import ALL, ListScores
from analysis.words.questions import questions
from configs.prompts import FOLLOW_UP
from tests.support import list_nulls as nulls
from tests.support import lists, runs, slow

PROMPTS = {
    prompt: text
    for prompt, text in FOLLOW_UP.items()
    if prompt.split("-")[0] in ("best", "greatest", "worst") and "-ever-" in prompt
}


def scores_of(percentiles, prompts=PROMPTS):
    """An array [M, P, N] as a list."""
    count = percentiles.shape[2]
    return ListScores(
        name="pets",
        items=pl.DataFrame(
            {"item_id": range(count), "item": [f"item {i}" for i in range(count)]},
            schema_overrides={"item_id": pl.UInt32},
        ),
        models=tuple(f"m{m}" for m in range(len(percentiles))),
        prompts=questions(prompts),
        percentiles=percentiles,
    )


def drawn(rng, models=3, size=30):
    """Orders of `size` items that models and prompts share in part."""
    x = rng.normal(size=size) + rng.normal(size=(models, 1, size))
    x = x + rng.normal(size=(models, len(PROMPTS), size))
    return scipy.stats.rankdata(x, axis=2) / size


def test_an_item_stands_at_the_mean_of_wordings_then_of_models():
    x = drawn(np.random.default_rng(0))
    x[2, 0] = math.nan
    table = items.items_questions(scores_of(x), np.random.default_rng(0), 99)
    row = table.filter(question="best", item_id=7).row(0, named=True)
    means = np.array([x[0, :3, 7].mean(), x[1, :3, 7].mean(), x[2, 1:3, 7].mean()])
    spread = np.mean([x[0, :3, 7].std(ddof=1), x[1, :3, 7].std(ddof=1), x[2, 1:3, 7].std(ddof=1)])
    numbers = [row[k] for k in ("mean_percentile", "lowest", "highest", "wording_spread")]
    np.testing.assert_allclose(numbers, [means.mean(), means.min(), means.max(), spread])
    assert (row["n"], row["prompts"], row["framing"]) == (3, 3, "positive")
    assert table["question"].unique(maintain_order=True).to_list() == ["best", "greatest", "worst"]
    each = table.filter(question="worst")["mean_percentile"].round(12)
    assert each.is_sorted(descending=True)


def test_one_wording_has_no_spread():
    one = {"best": "What is the best thing?"}
    x = drawn(np.random.default_rng(0))[:, :1]
    table = items.items_questions(scores_of(x, one), np.random.default_rng(0), 99)
    assert table["wording_spread"].null_count() == table.height


def test_the_items_that_all_models_put_first_are_named_and_no_others():
    x = np.random.default_rng(0).permuted(np.tile(np.arange(1, 201) / 200, (8, 9, 1)), axis=2)
    x[:, :, 3], x[:, :, 4] = 0.999, 0.002
    table = items.items_questions(scores_of(x), np.random.default_rng(0), 999)
    said = items.ends_beyond_chance(table.filter(question="best"))
    assert said == (
        "Asked for “best”, the 8 models together rate “item 3” highest and “item 4” lowest of the "
        "list “pets”."
    )


def test_agreement_is_the_mean_of_scipys_tau_over_prompts_and_pairs():
    x = drawn(np.random.default_rng(1))
    x[2, 4] = math.nan
    scores = scores_of(x)
    together = items.items_agreement(scores, np.random.default_rng(0))
    pairs = [
        [scipy.stats.kendalltau(x[a, p], x[b, p]).statistic for a, b in ((0, 1), (0, 2), (1, 2))]
        for p in range(9)
    ]
    each = np.nanmean(pairs, axis=1)
    parts = ["best", "greatest", "worst", "positive prompts", "negative prompts", ALL]
    assert together["question"].to_list() == parts
    assert together["kendall"][5] == pytest.approx(np.mean(each))
    assert together["prompt_spread"][5] == pytest.approx(np.std(each, ddof=1))
    assert (together["ci_low"] < together["kendall"]).all()
    assert together.select("prompts", "models", "pairs", "items").row(5) == (9, 3, 3, 30)
    best = np.mean(pairs[:3], axis=0)
    ends = together.select("lowest", "highest").row(0)
    assert ends == pytest.approx((best.min(), best.max()))
    rhos = [scipy.stats.spearmanr(x[:, p], axis=1).statistic for p in range(3)]
    upper = np.triu_indices(3, 1)
    assert together["spearman"][0] == pytest.approx(np.mean([rho[upper] for rho in rhos]))


def test_tau_of_two_models_is_scipys_of_their_means_over_a_framing():
    x = drawn(np.random.default_rng(1))
    table = items.items_pairs(scores_of(x))
    assert table["question"].unique(maintain_order=True).to_list() == [
        "positive prompts",
        "negative prompts",
    ]
    row = table.filter(framing="negative", model_a="m0", model_b="m2").row(0, named=True)
    expected = scipy.stats.kendalltau(x[0, 6:].mean(axis=0), x[2, 6:].mean(axis=0)).statistic
    assert row["kendall"] == pytest.approx(expected)
    assert row["ci_low"] < expected < row["ci_high"]


def test_tau_of_opposite_framings_is_scipys_mean_over_their_prompts():
    x = drawn(np.random.default_rng(3))
    x[1, 7] = math.nan
    table = items.items_models(scores_of(x), np.random.default_rng(0))
    taus = [
        np.nanmean([scipy.stats.kendalltau(a, b).statistic for a in own[:6] for b in own[6:]])
        for own in x
    ]
    each = table.filter(pl.col("model") != ALL_MODELS)
    np.testing.assert_allclose(each["kendall"], taus)
    assert each["pairs"].to_list() == [18, 12, 18]
    together = table.row(-1, named=True)
    assert (together["model"], together["pairs"]) == (ALL_MODELS, 48)
    assert together["kendall"] == pytest.approx(np.mean(taus))
    assert together["ci_low"] < together["kendall"] < together["ci_high"]


def test_a_list_of_one_framing_has_no_tau_of_framings():
    good = {prompt: text for prompt, text in PROMPTS.items() if not prompt.startswith("worst")}
    x = drawn(np.random.default_rng(3))[:, :6]
    table = items.items_models(scores_of(x, good), np.random.default_rng(0))
    assert table["kendall"].is_nan().all() and table["pairs"].sum() == 0


def test_models_that_go_by_length_have_a_high_correlation_with_it():
    x = np.tile(np.linspace(0.01, 0.99, 11), (2, len(PROMPTS), 1))  # “item 0” to “item 10”
    x[:, 6:] = x[:, 6:, ::-1]
    table = items.items_models(scores_of(x), np.random.default_rng(0))
    expected = scipy.stats.spearmanr([6] * 10 + [7], range(11)).statistic
    np.testing.assert_allclose(table["length"], expected)


@pytest.mark.parametrize(
    ("taus", "said"),
    [
        ((-0.6, -0.5, 0.9), "of 3 models 2 reverse the order of “words” in part, and 1 keep it."),
        ((-0.6, -0.5, -0.3), "the models reverse the order of “words” in part."),
        ((0.6, 0.5, 0.0), "the models keep the order of “words” in part."),
    ],
)
def test_models_that_turn_an_order_round_are_not_summed_up_with_those_that_keep_it(taus, said):
    numbers = {f"m{i}": tau for i, tau in enumerate(taus)}
    numbers[ALL_MODELS] = sum(taus) / 3
    models = pl.DataFrame(
        {"list": "words", "model": model, "items": 60, "pairs": 9}
        | {"kendall": tau, "ci_low": tau - 0.05, "ci_high": tau + 0.05}
        for model, tau in numbers.items()
    )
    text = items.framing_beyond_chance(models)
    assert text == "Asked for something bad instead of something good, " + said


def planted(rng):
    """A list in which everything holds that a page may claim of a list."""
    made = nulls.synthetic(rng)
    asked = questions(made.prompts)
    adds = {c: 2 * rng.normal(size=60) for c in asked["question"].unique().sort()}
    base = {b: 2 * rng.normal(size=60) for b in ("red", "blue")}
    liked = 2 * rng.normal(size=60)
    rewards = {}
    for (model, prompt), own in made.rewards.items():
        row = asked.row(by_predicate=pl.col("prompt") == prompt, named=True)
        sign = -1 if row["framing"] == "negative" else 1
        shared = base["blue" if made.models.index(model) % 5 < 2 else "red"] + liked
        rewards[model, prompt] = own + adds[row["question"]] + sign * shared
    return dataclasses.replace(made, rewards=rewards)


def opposing(rng):
    """A list that half of the models turn round, asked for something bad."""
    made = nulls.synthetic(rng)
    negative = questions(made.prompts).filter(framing="negative")["prompt"].to_list()
    order = 4 * rng.normal(size=60)
    rewards = {
        (model, prompt): own + (order if model < "m-5" or prompt not in negative else -order)
        for (model, prompt), own in made.rewards.items()
    }
    return dataclasses.replace(made, rewards=rewards)


def test_opposition_is_said_of_its_framing_alone_and_names_the_furthest_pair(rng):
    scores = nulls.scores_of(opposing(rng))
    said = nulls.agreement(scores, rng)
    assert said["positive"].startswith("Asked for something good, the 10 models agree more than ")
    pairs = items.items_pairs(scores).filter(framing="negative").sort("kendall")
    first, second = (pairs[side][0].upper() for side in ("model_a", "model_b"))
    assert (first < "M-5") != (second < "M-5")
    start = f"Asked for something bad, {first} and {second} order “words” in opposite ways (τ = −"
    assert said["negative"].startswith(start)
    assert said["negative"].endswith("), as do 24 other pairs of models.")


@pytest.mark.parametrize("claim", nulls.NULLS)
def test_a_planted_effect_is_claimed(claim, rng):
    make = opposing if claim == nulls.OPPOSE else planted
    assert sum(nulls.claims(make(rng), claim, rng) for _ in range(3)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("claim", nulls.NULLS)
def test_a_claim_without_an_effect_is_rare(claim, rng):
    """At a rate of .05, more than 7 of 40 come once in 700 times."""
    null = nulls.NULLS[claim]
    assert sum(nulls.claims(null(nulls.synthetic(rng), rng), claim, rng) for _ in range(40)) <= 7


SHORT_LISTS = [(claim, n) for claim in (nulls.AGREE, nulls.OPPOSE, nulls.FRAMING) for n in (5, 10)]


@pytest.mark.parametrize(("claim", "words"), slow.all_but([(nulls.FRAMING, 5)], SHORT_LISTS))
def test_a_claim_on_a_short_list_without_an_effect_is_rare(claim, words, rng):
    """At a rate of .05, more than 5 of 20 come once in 3,000 times."""
    null = nulls.NULLS[claim]
    made = (null(nulls.synthetic(rng, words=words), rng) for _ in range(20))
    said = sum(nulls.claims(one, claim, rng) for one in made)
    assert said == 0 if words < 10 else said <= 5


@pytest.fixture(scope="module")
def study(tmp_path_factory, study_of):
    folder = lists.list_run(
        tmp_path_factory.mktemp("lists") / "run",
        np.random.default_rng(0),
        models=("qrm-gemma-2-27b", "urm-llama-3.1-8b", "m-one", "m-two"),
        prompts=PROMPTS,
        words=40,
    )
    return study_of(folder, model_list, items, infos=runs.INFOS)


def test_figures_do_not_grow_with_the_prompts(study):
    section = items.ANALYSIS.section(study)
    stems = {one.stem for one in pictures(section.blocks)}
    kinds = [
        f"{kind}_words_{framing}_prompts"
        for kind in ("standing", "kendall")
        for framing in ("positive", "negative")
    ]
    assert stems == {f"items_{kind}" for kind in ("prompts_words", "framing_words", *kinds)}
    assert {finding.picture for finding in section.findings} <= stems


def test_people_are_compared_with_the_mean_over_the_wordings_of_a_question(study):
    keys = list(humans.compared(study))
    assert keys == [("words", "best"), ("words", "greatest"), ("words", "worst")]
    sides = humans.sides(study, keys[2])
    scores = list_scores.scores_of(study, "words")
    worst = scores.prompts["question"] == "worst"
    item = scores.items["item"].to_list().index(sides["item"][7])
    places = scores.percentiles[scores.models.index("m-one"), worst, item]
    assert sides["m-one"][7] == pytest.approx(places.mean())
    assert sides.columns == ["item_id", "item", "matches", "human", *study.models]
    assert humans.sides(study, keys[0], least_matches=91).height == 0


def test_a_list_under_few_prompts_is_compared_with_people_under_each(full):
    assert ("elo", "thing") in list(humans.compared(full))
    assert humans.sides(full, ("elo", "thing")).height == len(runs.ITEMS)
