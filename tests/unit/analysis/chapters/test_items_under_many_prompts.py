"""A list under many prompts: by question, between models and prompts, length and frequency."""

import dataclasses
import itertools
import math

import numpy as np
import polars as pl
import pytest
import scipy.stats

from analysis.blocks import pictures
from analysis.chapters import (
    humans,
    items,
    items_agreement,
    items_controls,
    items_framing,
    list_probabilities,
    model_list,
)
from analysis.measures.list_scores import ALL, ALL_MODELS, ListScores
from analysis.words.questions import questions
from configs.prompts import FOLLOW_UP
from tests.support import list_nulls as nulls
from tests.support import lists, runs, slow
from tests.support.studies import told

PROMPTS = {
    prompt: text
    for prompt, text in FOLLOW_UP.items()
    if prompt.split("-")[0] in ("best", "greatest", "worst") and "-ever-" in prompt
}


LISTS = (model_list, items, items_agreement)


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
    said = items.ends_beyond_chance(table.filter(framing="positive"))
    assert said == (
        "Asked for “best” and “greatest”, the 8 models together rate “item 3” highest and “item 4” "
        "lowest of the list “pets”."
    )


def test_agreement_is_the_mean_of_scipys_tau_over_prompts_and_pairs():
    x = drawn(np.random.default_rng(1))
    x[2, 4] = math.nan
    scores = scores_of(x)
    table = items_agreement.items_pairs(scores)
    row = table.filter(question="best", model_a="m0", model_b="m2").row(0, named=True)
    taus = [scipy.stats.kendalltau(x[0, p], x[2, p]).statistic for p in range(3)]
    rhos = [scipy.stats.spearmanr(x[0, p], x[2, p]).statistic for p in range(3)]
    numbers = [row[k] for k in ("kendall", "kendall_spread", "spearman", "spearman_spread")]
    expected = [np.mean(taus), np.std(taus, ddof=1), np.mean(rhos), np.std(rhos, ddof=1)]
    np.testing.assert_allclose(numbers, expected)
    assert table.filter(question="greatest", model_a="m0", model_b="m2")["prompts"].item() == 2
    square = items_agreement.square(table)
    values = square.select("m0", "m1", "m2").to_numpy()
    np.testing.assert_allclose(values, values.T)
    assert square["model"].to_list() == ["m0", "m1", "m2"] and (np.diag(values) == 1).all()
    together = items_agreement.items_agreement(scores, np.random.default_rng(0))
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


def test_tau_between_the_prompts_of_a_model_is_scipys():
    x = drawn(np.random.default_rng(2))
    table = items_framing.items_between_prompts(scores_of(x))
    best, worst = range(3), range(6, 9)
    for pairs, row in (
        (itertools.combinations(best, 2), {"question_a": "best", "question_b": "best"}),
        (itertools.product(best, worst), {"question_a": "best", "question_b": "worst"}),
    ):
        taus = [scipy.stats.kendalltau(x[1, a], x[1, b]).statistic for a, b in pairs]
        own = table.filter(model="m1", **row).row(0, named=True)
        numbers = [own[k] for k in ("kendall", "spread", "lowest", "highest")]
        expected = [np.mean(taus), np.std(taus, ddof=1), min(taus), max(taus)]
        np.testing.assert_allclose(numbers, expected)
        assert own["pairs"] == len(taus)


def test_kinds_of_pairs_are_wordings_questions_and_framings():
    x = drawn(np.random.default_rng(3))
    table = items_framing.items_prompt_kinds(scores_of(x), np.random.default_rng(0))
    taus = np.array([[scipy.stats.kendalltau(a, b).statistic for b in x[0]] for a in x[0]])
    label = np.repeat([0, 1, 2], 3)
    same = label[:, None] == label[None, :]
    worded = np.arange(9)[:, None] % 3 == np.arange(9)[None, :] % 3
    crossed = (label[:, None] < 2) & (label[None, :] < 2) & ~same
    opposite = (label[:, None] == 2) ^ (label[None, :] == 2)
    means = {
        items_framing.WORDING: taus[same & ~np.eye(9, dtype=bool)].mean(),
        items_framing.QUESTION: taus[crossed & ~worded].mean(),
        items_framing.SHARED: taus[crossed & worded].mean(),
        items_framing.FRAMING: taus[opposite].mean(),
    }
    for kind, mean in means.items():
        assert table.filter(model="m0", kind=kind)["kendall"].item() == pytest.approx(mean)
    less = table.filter(model="m0", kind=items_framing.WORDING_LESS)["kendall"].item()
    assert less == pytest.approx(means[items_framing.WORDING] - means[items_framing.QUESTION])
    of = dict(table.filter(kind=items_framing.FRAMING).select("model", "kendall").iter_rows())
    assert of.pop(ALL_MODELS) == pytest.approx(np.mean(list(of.values())))


def test_a_shared_wording_is_not_taken_for_the_question(rng):
    """Orders that go by the wording alone: two wordings of a question are like two questions."""
    x = np.tile(rng.normal(size=(4, 3, 60)), (1, 3, 1)) + 0.1 * rng.normal(size=(4, 9, 60))
    scores = scores_of(scipy.stats.rankdata(x, axis=2) / 60)
    table = items_framing.items_prompt_kinds(scores, np.random.default_rng(0))
    mean = {row["kind"]: row for row in table.filter(model=ALL_MODELS).to_dicts()}
    assert mean[items_framing.SHARED]["kendall"] > 0.9
    less = mean[items_framing.WORDING_LESS]
    assert abs(less["kendall"]) < 0.02 and less["ci_low"] < 0 < less["ci_high"]


@pytest.mark.parametrize(("share", "said"), [(2.0, True), (0.0, False)])
def test_wordings_agree_more_than_questions_only_where_they_do(share, said, rng):
    asked = np.repeat(rng.normal(size=(4, 3, 60)), 3, axis=1)
    x = share * asked + rng.normal(size=(4, 9, 60))
    scores = scores_of(scipy.stats.rankdata(x, axis=2) / 60)
    table = items_framing.items_prompt_kinds(scores, np.random.default_rng(0))
    less = table.filter(model=ALL_MODELS, kind=items_framing.WORDING_LESS)
    assert (less["ci_low"].item() > 0) == said


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
    kinds = pl.DataFrame(
        {"list": "words", "model": model, "kind": items_framing.FRAMING, "items": 60}
        | {"kendall": tau, "ci_low": tau - 0.05, "ci_high": tau + 0.05}
        for model, tau in numbers.items()
    )
    text = items_framing.framing_beyond_chance(kinds)
    assert text == "Asked for something bad instead of something good, " + said


def test_traits_are_read_from_the_items():
    ids = pl.Series("item_id", range(3), dtype=pl.UInt32)
    listed = pl.DataFrame([ids, pl.Series("item", [" Love", "ice cream", "zzzz"])])
    frequency = pl.DataFrame({"word": ["love"], "per_million": [math.e**2]})
    tokens = pl.DataFrame([ids[:2], pl.Series("tokens", [1.0, 3.0])])
    table = items_controls.items_traits(listed, tokens, frequency)
    assert table[items_controls.LENGTH].to_list() == [4, 9, 4]
    assert table[items_controls.TOKENS].to_list() == [1, 3, None]
    assert table[items_controls.FREQUENCY].to_list() == [pytest.approx(2.0), None, None]
    bare = items_controls.items_traits(listed, None, None)
    assert bare[items_controls.TOKENS].null_count() == 3


def planted(rng):
    """A list in which everything holds that a page may claim of a list."""
    made = nulls.synthetic(rng)
    asked = questions(made.prompts)
    adds = {c: 2 * rng.normal(size=60) for c in asked["question"].unique().sort()}
    base = {b: 2 * rng.normal(size=60) for b in ("red", "blue")}
    length, frequency = made.words[items_controls.LENGTH], made.words[items_controls.FREQUENCY]
    traits = (0.5 * length + 2 * frequency).to_numpy()
    rewards = {}
    for (model, prompt), own in made.rewards.items():
        row = asked.row(by_predicate=pl.col("prompt") == prompt, named=True)
        sign = -1 if row["framing"] == "negative" else 1
        shared = base["blue" if made.models.index(model) % 5 < 2 else "red"] + traits
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


def test_opposition_is_said_of_its_framing_alone_and_names_the_blocs(rng):
    scores = nulls.scores_of(opposing(rng))
    pairs = items_agreement.items_pairs(scores)
    blocs = items_agreement.items_blocs(scores, pairs)
    names = {model: model.upper() for model in scores.models}
    good, bad = (
        items_agreement.opposition(pairs.filter(framing=f), blocs.filter(framing=f), names)
        for f in ("positive", "negative")
    )
    assert good == ""
    assert bad.startswith("Asked for something bad, some models order “words” in largely opposite")
    assert bad.endswith(" M-0, M-1, M-2, M-3 and M-4 against M-5, M-6, M-7, M-8 and M-9.")
    a, b = (scores.means(scores.framed("negative"))[1][m] for m in (1, 7))
    own = pairs.filter(question="negative prompts", model_a="m-1", model_b="m-7")
    assert own["kendall_of_means"].item() == pytest.approx(scipy.stats.kendalltau(a, b).statistic)
    framed = items_agreement.framed_rows(items_agreement.items_agreement(scores, rng))
    assert [row["framing"] for row in framed] == ["positive", "negative"]
    said = items_agreement.agreement_beyond_chance(framed[0])
    assert said.startswith("Asked for something good, the ")
    assert said.endswith("models agree more than chance on the order of “words”.")


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


def test_of_models_that_oppose_one_another_the_blocs_are_told_and_no_mean(tmp_path, study_of, rng):
    slugs = [f"m{number}" for number in range(5)]
    run = runs.write_run(tmp_path / "run", {}, dict.fromkeys(slugs), {})
    worth = rng.normal(size=60)
    asked = {"best-ever-one-word": FOLLOW_UP["best-ever-one-word"]}
    for number, model in enumerate(slugs):
        rewards = (1 if number < 3 else -1) * worth + 0.3 * rng.normal(size=60)
        own = {f"item {at}": reward for at, reward in enumerate(rewards)}
        runs.add_items(run, "words", model, "best-ever-one-word", own)
    runs.edit_run(run, lambda content: content.update(prompts=asked))
    (plain,) = told(items_agreement, study_of(run, *LISTS))
    assert plain.startswith("Asked for something good, some models order “words” in largely ")
    assert plain.endswith("opposite ways: m0, m1 and m2 against m3 and m4.")


CHAPTERS = (*LISTS, list_probabilities)


@pytest.fixture(scope="module")
def study(tmp_path_factory, study_of):
    folder = lists.list_run(
        tmp_path_factory.mktemp("lists") / "run",
        np.random.default_rng(0),
        models=("qrm-gemma-2-27b", "urm-llama-3.1-8b", "m-one", "m-two"),
        prompts=PROMPTS,
        words=40,
    )
    return study_of(folder, *CHAPTERS, infos=runs.INFOS)


def test_figures_do_not_grow_with_the_prompts(study):
    sections = [chapter.ANALYSIS.section(study) for chapter in CHAPTERS]
    stems = {one.stem for section in sections for one in pictures(section.blocks)}
    assert len(stems) == 9
    for section in sections:
        for finding in section.findings:
            assert finding.picture in stems
    assert {"items_prompts_words", "items_controls_words", "items_between_prompts_words"} <= stems
    assert "item_logprobs_words" in stems


def test_language_models_are_averaged_over_the_wordings(study):
    each = study.tables["item_logprobs"]
    mean = study.tables["item_logprobs_questions"]
    best = each.filter(pl.col("prompt").str.starts_with("best"), model="m-one")
    row = mean.filter(question="best", model="m-one").row(0, named=True)
    assert row["prompts"] == best.height == 3
    assert row["spearman"] == pytest.approx(best["spearman"].mean())
    assert row["spearman_spread"] == pytest.approx(best["spearman"].std())


def test_people_are_compared_with_the_mean_over_the_wordings_of_a_question(study):
    keys = list(humans.compared(study))
    assert keys == [("words", "best"), ("words", "greatest"), ("words", "worst")]
    sides = humans.sides(study, keys[2])
    points = study.tables["items_points", "words"].filter(model="m-one", item=sides["item"][7])
    worst = points.filter(pl.col("prompt").str.starts_with("worst"))["percentile"]
    assert sides["m-one"][7] == pytest.approx(worst.mean())
    assert sides.columns == ["item_id", "item", "matches", "human", *study.models]
    assert humans.sides(study, keys[0], least_matches=91).height == 0


def test_a_list_under_few_prompts_is_compared_with_people_under_each(full):
    assert ("elo", "thing") in list(humans.compared(full))
    assert humans.sides(full, ("elo", "thing")).height == len(runs.ITEMS)
