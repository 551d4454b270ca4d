"""Word categories: what is planted is found with models as units, and nothing else is."""

import math

import numpy as np
import polars as pl
import pytest
from scipy.stats import false_discovery_control as step_up

import analysis
from analysis import ModelInfo
from analysis.blocks import pictures
from analysis.chapters import categories
from analysis.words.lexicons import categories as built_in
from configs.prompts import FOLLOW_UP
from tests.support import category_runs, charts, runs
from tests.support.studies import cited, found, told

GEMMA = [f"g{i}" for i in range(5)]
LLAMA = [f"l{i}" for i in range(6)]
# Two questions of each framing, in one wording.
ONE_WORDING = [f"{word}-ever-one-word" for word in ("best", "greatest", "worst", "most_bad")]
SEVERAL = {prompt: FOLLOW_UP[prompt] for prompt in ONE_WORDING}


@pytest.fixture
def study_of(study_of):
    """Run folder and metadata -> the study with the tables of this chapter."""
    return lambda run, infos=None, **changed: study_of(
        run, categories, infos=infos, permutations=999, **changed
    )


def two_bases(lineage=lambda model: None):
    unknown = dict.fromkeys(("developer", "size_b", "rewardbench_rank"))
    bases = dict.fromkeys(GEMMA, "Gemma 2") | dict.fromkeys(LLAMA, "Llama 3.1")
    return {
        model: ModelInfo(nickname=model.upper(), base=base, lineage=lineage(model), **unknown)
        for model, base in bases.items()
    }


def effects(rng, gemma, llama, spread=0.3):
    means = dict.fromkeys(GEMMA, gemma) | dict.fromkeys(LLAMA, llama)
    return {model: mean + spread * rng.normal() for model, mean in means.items()}


def big_two(study, framing="positive"):
    table = study.tables["category_contrasts"]
    return table.row(
        by_predicate=(pl.col("category") == "agency") & (pl.col("framing") == framing), named=True
    )


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """A run in which the Gemma models rate agency below communion, and the Llama models above."""
    rng, folder = np.random.default_rng(5), tmp_path_factory.mktemp("apart") / "run"
    return category_runs.category_run(folder, rng, effects(rng, -1.5, 1.5), prompts=SEVERAL)


def test_a_difference_of_bases_is_found_with_models_as_units(apart, study_of):
    study = study_of(apart, two_bases())
    row = big_two(study)
    keys = ("base", "models", "other_base", "other_models", "assignments")
    assert [row[key] for key in keys] == ["Gemma", 5, "Llama", 6, 462]
    assert math.isnan(row["lineage_p"])
    assert row["p"] == row["least_p"] == pytest.approx(1 / 462)
    assert row["q"] < 0.05
    assert row["ci_high"] < 0
    assert row["median_p"] < 0.05
    assert big_two(study, "negative")["difference"] > 0
    assert "category_contrasts.csv" in row["family"]
    headline, *_ = found(categories, study)
    points = f"{-100 * row['difference']:.0f}"
    assert cited(headline.text) == ["5", "6", points, "words"]
    assert headline.picture == "category_contrasts_words_1"


def test_q_corrects_for_every_scale_of_the_table(apart, study_of):
    """Of 33 tests three have the least p that 4 against 6 models can give: q is 33/3 of it."""
    known = {model: info for model, info in two_bases().items() if model != "g4"}
    study = study_of(apart, known)
    table = study.tables["category_contrasts"]
    assert table["scale"].n_unique() == 3
    assert table.height == 33
    np.testing.assert_allclose(table["q"], step_up(table["p"].to_numpy()))
    assert big_two(study)["q"] == pytest.approx(33 / 3 / 210)
    assert told(categories, study) == []
    assert cited(categories.ANALYSIS.section(study).answer) == ["33", f"{33 / 3 / 210:.3f}"[1:]]
    models = study.tables["category_models"]
    np.testing.assert_allclose(models["q"], step_up(models["p"].to_numpy()))


def test_where_bases_are_unknown_models_are_described_and_nothing_is_told(tmp_path, study_of, rng):
    run = category_runs.category_run(tmp_path / "run", rng, {"a": 2.5, "b": 0.0})
    study = study_of(run)
    assert study.tables.reason("category_contrasts")
    assert told(categories, study) == []
    section = categories.ANALYSIS.section(study)
    (shown,) = [b for b in section.blocks if getattr(b, "file", "") == "category_models.csv"]
    assert not {"p", "q"} & {key for key, _, _ in shown.columns}
    table = study.tables["category_models"]
    assert table["q"].is_not_nan().all()
    own = table.filter(model="a", category="agency", framing="positive").row(0, named=True)
    assert (own["words"], own["other_words"], own["questions"], own["prompts"]) == (20, 20, 1, 2)
    assert own["ci_low"] < own["contrast"] < own["ci_high"]
    assert section.described and cited(section.answer) == []


def test_contrasts_are_written_out(tmp_path, study_of, rng):
    """The contrast of a category of several, over questions of unequal numbers of wordings."""
    chosen = [p for p in FOLLOW_UP if p.startswith(("best-ever", "greatest-ever-o", "worst-ever"))]
    prompts = {p: FOLLOW_UP[p] for p in chosen}
    run = category_runs.category_run(tmp_path / "run", rng, {"m": 1.0}, prompts=prompts)
    loaded, words = analysis.load(run), built_in()
    own = words.filter(scale="moral vices")
    means = {}
    for prompt in prompts:
        scores = loaded.item_scores("words", prompt).join(own, left_on="item", right_on="word")
        place = scores["m"].rank("average") - 0.5
        scores = scores.with_columns(place=place / own.height)
        harm = scores.filter(category="harm")["place"].mean()
        means[prompt] = harm - scores.filter(pl.col("category") != "harm")["place"].mean()
    best = np.mean([means[p] for p in prompts if p.startswith("best")])
    positive = (best + means["greatest-ever-one-word"]) / 2
    negative = np.mean([means[p] for p in prompts if p.startswith("worst")])
    table = study_of(run).tables["category_models"].filter(category="harm")
    found = dict(table.select("framing", "contrast").iter_rows())
    expected = {"positive": positive, "negative": negative}
    assert found == pytest.approx(expected | {"positive minus negative": positive - negative})


def test_language_models_are_put_through_the_same_contrast(tmp_path, study_of, rng):
    run = category_runs.category_run(tmp_path / "run", rng, {"m": 0.0})
    words = list(built_in()["word"])
    sides = category_runs.signs(words)
    for model, effect in (("lm-a", 2.0), ("lm-b", -2.0)):
        logprobs = -9 + effect * sides + 0.3 * rng.normal(size=len(words))
        replies = {word: (1, float(x)) for word, x in zip(words, logprobs, strict=True)}
        runs.add_item_logprobs(run, "words", model, "best-ever-one-word", replies)
    table = study_of(run).tables["category_logprobs"].filter(category="agency")
    found = table.select("language_model", "compared_with", "q").rows()
    assert [pair for *pair, _ in found] == [["lm-a", ""], ["lm-b", ""], ["lm-a", "lm-b"]]
    assert all(q < 0.05 for *_, q in found)
    signs = [value > 0 for value in table["contrast"]]
    assert signs == [True, False, False]  # the ratio is high where the second gives more


def test_models_of_one_lineage_are_taken_as_one_and_charts_show_all(apart, study_of):
    infos = two_bases(lambda model: model if model in GEMMA[:2] else f"{model[0]}-shared")
    study = study_of(apart, infos)
    row = big_two(study)
    assert row["p"] == pytest.approx(1 / 462)
    assert row["lineage_p"] == pytest.approx(1 / 4)  # three lines against one
    section = categories.ANALYSIS.section(study)
    drawn = {picture.stem: picture.draw for picture in pictures(section.blocks)}
    assert list(drawn) == [f"category_contrasts_words_{scale}" for scale in (1, 2, 3)]
    shown = charts.rows(drawn["category_contrasts_words_1"]())
    own = study.tables["category_models"].filter(scale="Big Two")
    assert sorted(row["value"] for row in shown) == pytest.approx(
        sorted((100 * own["contrast"]).to_list()), rel=1e-4
    )
    assert {row["base"] for row in shown} == {"Gemma", "Llama"}
    assert {f.picture for f in section.findings} <= set(drawn)
