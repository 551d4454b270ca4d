"""A list under many prompts: by question, between models, between framings."""

import math

import numpy as np
import polars as pl
import pytest
import scipy.stats

from analysis.chapters import humans, items, model_list
from analysis.chapters.items import ALL_MODELS
from analysis.measures import list_scores
from analysis.measures.list_scores import ALL, ListScores
from analysis.words.questions import questions
from configs.prompts import FOLLOW_UP
from tests.support import runs, slow
from tests.support.studies import cited

PROMPTS = {
    prompt: text
    for prompt, text in FOLLOW_UP.items()
    if prompt.split("-")[0] in ("best", "greatest", "worst") and "-ever-" in prompt
}  # Three wordings each; the last three prompts ask for something bad.


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


def placed(rewards):
    return scipy.stats.rankdata(rewards, axis=2) / rewards.shape[2]


def drawn(rng, models=3, size=30):
    """Orders of `size` items that models and prompts share in part."""
    x = rng.normal(size=size) + rng.normal(size=(models, 1, size))
    return placed(x + rng.normal(size=(models, len(PROMPTS), size)))


def test_an_item_stands_at_the_mean_of_wordings_then_of_models():
    x = drawn(np.random.default_rng(0))
    x[2, 0] = math.nan
    table = items.items_questions(scores_of(x), np.random.default_rng(0), 99)
    row = table.filter(question="best", item_id=7).row(0, named=True)
    means = np.array([x[0, :3, 7].mean(), x[1, :3, 7].mean(), x[2, 1:3, 7].mean()])
    numbers = [row[k] for k in ("mean_percentile", "lowest", "highest")]
    np.testing.assert_allclose(numbers, [means.mean(), means.min(), means.max()])
    assert (row["n"], row["prompts"], row["framing"]) == (3, 3, "positive")
    assert table["question"].unique(maintain_order=True).to_list() == ["best", "greatest", "worst"]
    percentiles = table.filter(question="worst")["mean_percentile"].round(12)
    assert percentiles.is_sorted(descending=True)


def test_agreement_is_the_mean_of_scipys_tau_over_prompts_and_pairs():
    x = drawn(np.random.default_rng(1))
    x[2, 4] = math.nan
    together = items.items_agreement(scores_of(x), np.random.default_rng(0))
    pairs = [
        [scipy.stats.kendalltau(x[a, p], x[b, p]).statistic for a, b in ((0, 1), (0, 2), (1, 2))]
        for p in range(9)
    ]
    means = np.nanmean(pairs, axis=1)
    parts = ["best", "greatest", "worst", "positive prompts", "negative prompts", ALL]
    assert together["question"].to_list() == parts
    assert together["kendall"][5] == pytest.approx(np.mean(means))
    assert (together["ci_low"] < together["kendall"]).all()
    assert together.select("prompts", "models", "pairs", "items").row(5) == (9, 3, 3, 30)
    best = np.mean(pairs[:3], axis=0)
    ends = together.select("lowest", "highest").row(0)
    assert ends == pytest.approx((best.min(), best.max()))


def test_tau_of_two_models_is_scipys_of_their_means_over_a_framing():
    x = drawn(np.random.default_rng(1))
    table = items.items_pairs(scores_of(x))
    row = table.filter(framing="negative", model_a="m0", model_b="m2").row(0, named=True)
    expected = scipy.stats.kendalltau(x[0, 6:].mean(axis=0), x[2, 6:].mean(axis=0)).statistic
    assert (row["question"], row["kendall"]) == ("negative prompts", pytest.approx(expected))
    assert row["ci_low"] < expected < row["ci_high"]


def test_tau_of_opposite_framings_is_scipys_mean_over_their_prompts():
    x = drawn(np.random.default_rng(3))
    x[1, 7] = math.nan
    table = items.items_models(scores_of(x), np.random.default_rng(0))
    taus = [
        np.nanmean([scipy.stats.kendalltau(a, b).statistic for a in own[:6] for b in own[6:]])
        for own in x
    ]
    by_model = table.filter(pl.col("model") != ALL_MODELS)
    np.testing.assert_allclose(by_model["kendall"], taus)
    assert by_model["pairs"].to_list() == [18, 12, 18]
    together = table.row(-1, named=True)
    assert (together["model"], together["pairs"]) == (ALL_MODELS, 48)
    assert together["kendall"] == pytest.approx(np.mean(taus))
    assert together["ci_low"] < together["kendall"] < together["ci_high"]


@pytest.mark.parametrize(
    ("taus", "counts"),
    [((-0.6, -0.5, 0.9), ["3", "2", "1"]), ((-0.6, -0.5, -0.3), []), ((0.6, 0.5, 0.0), [])],
)
def test_models_that_turn_an_order_round_are_not_summed_up_with_those_that_keep_it(taus, counts):
    numbers = {f"m{i}": tau for i, tau in enumerate(taus)}
    numbers[ALL_MODELS] = sum(taus) / 3
    models = pl.DataFrame(
        {"list": "words", "model": model, "items": 60, "pairs": 9}
        | {"kendall": tau, "ci_low": tau - 0.05, "ci_high": tau + 0.05}
        for model, tau in numbers.items()
    )
    text = items.framing_beyond_chance(models)
    assert sorted(cited(text)) == sorted(["words", *counts])


# Claims of the page


def claims(rewards, rng):
    """What a page says of rewards [M, P, N] of a list, by what it is about."""
    scores = scores_of(placed(rewards))
    standing = items.items_questions(scores, rng, 999).filter(question="best")
    agreed, pairs = items.items_agreement(scores, rng), items.items_pairs(scores)
    texts = {"ends": items.ends_beyond_chance(standing, "for “best”")}
    texts["framing"] = items.framing_beyond_chance(items.items_models(scores, rng))
    for name, framing, _ in scores.framings():
        tables = (agreed.filter(question=name), pairs.filter(question=name))
        texts[framing] = items.agreement_beyond_chance(*tables, {m: m for m in scores.models})
    return texts


def noise(rng, models=6, size=40):
    return rng.normal(size=(models, len(PROMPTS), size))


def test_an_order_that_all_models_share_and_turn_round_is_claimed_with_its_ends(rng):
    order = np.linspace(-20, 20, 40)
    planted = noise(rng) + order
    planted[:, 6:] -= 2 * order
    texts = claims(planted, rng)
    assert all(texts.values())
    question, models, *listed = cited(texts["ends"])
    assert (question, models, listed[0], listed[-1]) == ("best", "6", "item 39", "pets")
    assert "item 0" in listed


def test_models_that_oppose_one_another_are_named_under_that_framing_alone(rng):
    order = 4 * rng.normal(size=40)
    planted = noise(rng) + order
    planted[:3, 6:] -= 2 * order
    texts = claims(planted, rng)
    pairs = items.items_pairs(scores_of(placed(planted))).filter(framing="negative").sort("kendall")
    first, second, tau = pairs.select("model_a", "model_b", "kendall").row(0)
    assert (first < "m3") != (second < "m3")
    assert f"{first} and {second}" in texts["negative"]
    # Pairs of 3 and 3 models, of all pairs of 6.
    assert cited(texts["negative"]) == ["9", "15", "pets", f"−{-tau:.2f}"]
    assert cited(texts["positive"])[0] == "6"


@pytest.mark.parametrize("size", slow.all_but([10], [5, 10, 40]))
def test_of_models_that_share_nothing_a_claim_is_rare(rng, size):
    """At a rate of .05, more than 4 of 12 come once in 3,000 times; of 5 items few are made."""
    made = [claims(noise(rng, size=size), rng) for _ in range(12)]
    for about in made[0]:
        count = sum(bool(texts[about]) for texts in made)
        assert count <= (0 if size == 5 and about != "ends" else 4), about


@pytest.fixture(scope="module")
def study(tmp_path_factory, study_of):
    """The study of a list of 40 words that two models and people rank."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("lists") / "run"
    words = [f"word {i}" for i in range(40)]
    runs.write_run(folder, {}, dict.fromkeys(("m-one", "m-two")), {})
    for model in ("m-one", "m-two"):
        for prompt in PROMPTS:
            own = dict(zip(words, rng.normal(size=40), strict=True))
            runs.add_items(folder, "words", model, prompt, own)
    runs.add_humans(folder, "words", {word: 1700.0 - i for i, word in enumerate(words)})
    runs.edit_run(folder, lambda content: content.update(prompts=dict(PROMPTS)))
    return study_of(folder, model_list, items)


def test_people_are_compared_with_the_mean_over_the_wordings_of_a_question(study):
    keys = list(humans.compared(study))
    assert keys == [("words", "best"), ("words", "greatest"), ("words", "worst")]
    sides = humans.sides(study, keys[2])
    scores = list_scores.scores_of(study, "words")
    worst = scores.prompts["question"] == "worst"
    item = scores.items["item"].to_list().index(sides["item"][7])
    places = scores.percentiles[scores.models.index("m-one"), worst, item]
    assert sides["m-one"][7] == pytest.approx(places.mean())
    assert humans.sides(study, keys[0], least_matches=91).height == 0
