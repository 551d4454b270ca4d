"""Objectives as columns beside the reward, and the gate's coefficients in the manifest."""

import dataclasses

import numpy as np
import polars as pl
import pytest

import analysis
import engine
from engine.checkpoint.restore import sharing_groups
from engine.convert import gates
from engine.errors import AssayError
from engine.runs import parts, schema
from engine.scoring.reward_passes import RewardScorer
from engine.sweep.self_check import check_finite, self_check
from tests.support import tiny
from tests.support.killed import Killed, killed_after
from tests.support.sweeps import SETTINGS, Run

PROMPTS = {"greatest": "What is the greatest thing?", "worst": "What is the worst thing?"}
ONE = {"greatest": PROMPTS["greatest"]}
NAMES = list(gates.HELPSTEER)
QUANTILES = [f"{name}-q{q:02}" for name in NAMES for q in range(1, tiny.QUANTILES + 1)]
COLUMNS = {"tiny": [], "qrm": [*NAMES, *QUANTILES], "urm": NAMES}
SIZE = 288


@pytest.fixture(scope="module", autouse=True)
def _pattern_of_the_tiny_template():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gates, "PATTERNS", {"llama": tiny.GATE})
        yield


@pytest.fixture(scope="module")
def models(checkpoint):
    """A plain head, a gated one with quantiles, a URM; all on one decoder."""
    custom = {
        "qrm": "LlamaForRewardModelWithGating",
        "urm": "LlamaForSequenceClassificationWithNormal_Weights",
    }
    heads = {
        slug: checkpoint(slug, head=slug, head_seed=7, architectures=(name,))
        for slug, name in custom.items()
    }
    return {"tiny": checkpoint(), **heads}


@pytest.fixture(scope="module")
def swept(models, tmp_path_factory):
    """All three under both prompts, in one pass, with everything that they have."""
    run = Run(tmp_path_factory.mktemp("swept") / "run")
    run.sweep(list(models.values()), PROMPTS, objectives="quantiles")
    return run


def result(slug, prompt="greatest"):
    return f"scores/model={slug}/prompt={prompt}"


@pytest.mark.parametrize("slug", COLUMNS)
def test_a_column_an_objective_follows_the_reward_of_each_model_of_a_pass(swept, models, slug):
    assert len(sharing_groups(list(models.values()))) == 1
    expected = schema.SCORE_COLUMNS | dict.fromkeys(COLUMNS[slug], pl.Float32)
    assert dict(swept.frame(result(slug)).schema) == expected
    assert list(swept.frame(result(slug)).columns) == list(expected)


@pytest.mark.parametrize("slug", ["qrm", "urm"])
def test_a_model_of_a_pass_has_the_objectives_that_it_has_alone(swept, models, slug):
    alone = engine.load(models[slug].path, step_size=64).objectives(
        PROMPTS["greatest"], ["love", "war"], mode="ids"
    )
    ids = models[slug].template.tokenizer.convert_tokens_to_ids(["love", "war"])
    together = swept.frame(result(slug))[ids]
    assert alone.columns == ["response", "reward", *NAMES]
    for name in ("reward", *NAMES):
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-4, atol=1e-5)
    assert (swept.frame(result(slug)).select(NAMES).to_numpy().std(axis=0) > 0.05).all()


def test_a_model_without_objectives_has_the_reward_that_it_has_without_asking(swept, run, models):
    run.sweep([models["tiny"]], ONE)
    alone, together = run.rewards("tiny", "greatest"), swept.rewards("tiny", "greatest")
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


def test_the_mean_of_an_objectives_quantiles_is_its_value(swept):
    frame = swept.frame(result("qrm"))
    quantiles = frame.select(QUANTILES).to_numpy().reshape(SIZE, len(NAMES), tiny.QUANTILES)
    values = frame.select(NAMES).to_numpy()
    np.testing.assert_allclose(quantiles.mean(axis=2), values, rtol=1e-4, atol=1e-5)
    assert quantiles.std(axis=2).min() > 0


def test_the_manifests_coefficients_sum_the_objectives_to_the_reward(swept):
    results = swept.manifest()["results"]
    by_prompt = [results[result("qrm", prompt)]["coefficients"] for prompt in PROMPTS]
    for prompt, coefficients in zip(PROMPTS, by_prompt, strict=True):
        assert list(coefficients) == NAMES
        frame = swept.frame(result("qrm", prompt))
        summed = frame.select(NAMES).to_numpy() @ np.array(list(coefficients.values()))
        np.testing.assert_allclose(summed, frame["reward"], rtol=1e-4, atol=1e-4)
    assert by_prompt[0] != by_prompt[1]  # the gate reads the prompt
    assert results[result("urm")]["coefficients"] is None
    assert results[result("tiny")]["coefficients"] is None


@pytest.mark.slow
def test_replies_have_objectives_and_python_gives_the_same(run, models):
    replies = ["love", "the war", "", "love"]
    run.score([models["qrm"]], ONE, "words", replies, objectives="values")
    frame = run.frame("items/words/model=qrm/prompt=greatest")
    assert frame.columns == ["item_id", "item", "reward", *NAMES]
    model = engine.load(models["qrm"].path, step_size=64)
    said = model.objectives(ONE["greatest"], replies)
    assert said["response"].to_list() == frame["item"].to_list() == replies
    for name in ("reward", *NAMES):
        np.testing.assert_allclose(said[name], frame[name], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(said["reward"], model.score(ONE["greatest"], replies))
    (noted,) = run.manifest()["results"].values()
    assert model.coefficients(ONE["greatest"]) == pytest.approx(noted["coefficients"], rel=1e-5)
    assert model.objectives(ONE["greatest"], []).schema == said.schema


def test_a_model_without_objectives_says_its_reward_alone(models):
    model = engine.load(models["tiny"].path, step_size=64)
    assert model.objectives("What?", "love").columns == ["response", "reward"]
    assert model.coefficients("What?") is None


def test_analysis_reads_a_run_with_objectives(swept):
    loaded = analysis.load(swept.folder)
    assert loaded.scores(models=["qrm"]).collect()["reward"].len() == 2 * SIZE
    for slug, columns in COLUMNS.items():
        frame = loaded.objectives(slug, "greatest")
        assert frame.columns == ["token_id", "token", "reward", *columns]
        assert frame.drop("token").equals(swept.frame(result(slug)))
    noted = swept.manifest()["results"][result("qrm")]["coefficients"]
    assert loaded.results["qrm", "greatest"].coefficients == noted


def test_a_run_killed_between_parts_ends_in_the_bytes_of_an_uninterrupted_one(
    run, other_run, models, monkeypatch
):
    other_run.sweep([models["qrm"]], ONE, objectives="values")
    with monkeypatch.context() as patched:
        killed_after(patched, parts, "write_part", 2)
        with pytest.raises(Killed):
            run.sweep([models["qrm"]], ONE, objectives="values")
    assert run.sweep([models["qrm"]], ONE, objectives="values") == SIZE - 200
    assert run.hashes() == other_run.hashes()


def test_a_result_is_not_continued_with_other_objectives(swept, models):
    before = swept.parts()
    with pytest.raises(
        AssayError, match=r"was begun with objectives=\['helpfulness', .*, not its default"
    ):
        swept.sweep([models["qrm"]], ONE)
    assert swept.parts() == before


def test_a_result_of_a_model_without_objectives_is_complete_whatever_is_asked(swept, models):
    assert swept.sweep([models["tiny"]], ONE) == 0
    assert swept.sweep([models["tiny"], models["urm"]], ONE, objectives="values") == 0


@pytest.mark.parametrize(
    ("objectives", "slugs"), [("values", ["tiny"]), ("quantiles", ["tiny", "urm"])]
)
def test_objectives_that_none_of_the_models_has_are_refused(run, models, objectives, slugs):
    message = rf"^objectives='{objectives}', but none of the models has any: {', '.join(slugs)}$"
    with pytest.raises(AssayError, match=message):
        run.sweep([models[slug] for slug in slugs], ONE, objectives=objectives)
    assert not run.folder.exists()


def test_the_self_check_sees_an_objective_go_wrong(run, models, monkeypatch):
    original = RewardScorer.rewards

    def wrong(self, prefix, candidates):
        for step in original(self, prefix, candidates):
            step = step.copy()
            step[4] += 0.5
            yield step

    monkeypatch.setattr(RewardScorer, "rewards", wrong)
    message = rf"^self-check of {result('qrm')}: row \d+ has {NAMES[3]} .*, the plain pass gives"
    with pytest.raises(AssayError, match=message):
        run.sweep([models["qrm"]], ONE, objectives="values")


def test_the_self_check_allows_what_a_dtype_rounds_and_names_the_worst():
    plain = np.array([[1.0, 2.0], [100.0, 0.5]], np.float32)
    close, rows = plain * np.float32(1.00005), np.array([3, 9])
    note = self_check("r", ["reward", "a"], rows, close, plain, "float32")
    assert note["candidates"] == 2
    assert note["max_abs_difference"] == pytest.approx(0.005, rel=1e-2)
    close[0, 1] += 0.01
    with pytest.raises(AssayError, match=r"^r: row 9 has reward 2\.01"):
        self_check("r", ["reward", "a"], rows, close, plain, "float32")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_objective_that_is_not_finite_is_refused_by_name(bad):
    values = np.ones((2, 4), np.float32)
    check_finite("m", "token_id", 0, ["reward", "complexity"], values)
    values[1, 2] = bad
    with pytest.raises(
        AssayError, match=r"^model 'm': the complexity is not finite for token_id 7 "
    ):
        check_finite("m", "token_id", 5, ["reward", "complexity"], values)


@pytest.mark.parametrize("count", [1, 5, 19])
def test_published_names_are_columns(count):
    names = gates.objective_names(count)
    assert list(schema.objective_columns(names)) == list(names)
    assert len(set(names)) == count


@pytest.mark.parametrize(
    "names", [["reward"], ["token_id"], ["a", "a"], ["Helpful"], ["a b"], [""]]
)
def test_names_that_are_no_columns_or_taken_are_refused(names):
    with pytest.raises(AssayError, match=rf"^objective '{names[-1]}'; allowed: lower-case letters"):
        schema.objective_columns(names)


def test_settings_name_the_objectives_allowed():
    message = r"^objectives=True; allowed: 'none', 'values', 'quantiles'$"
    with pytest.raises(AssayError, match=message):
        dataclasses.replace(SETTINGS, objectives=True)
