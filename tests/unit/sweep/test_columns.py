"""Columns beside the reward: objectives, and the reward after every layer (the lens)."""

import numpy as np
import polars as pl
import pytest

import analysis
import engine
from engine.checkpoint.restore import sharing_groups
from engine.convert import gates
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.runs import schema
from engine.runs.verify import verify
from engine.scoring import reward_passes
from engine.scoring.reward_passes import check_finite, self_check
from engine.sweep.rescore import rescore
from tests.support.sweeps import ONE, PROMPTS, SETTINGS, Run, result

pytestmark = pytest.mark.usefixtures("one_length")
NAMES = list(gates.HELPSTEER)
OBJECTIVES = {"tiny": [], "qrm": NAMES, "urm": NAMES}


@pytest.fixture(scope="module")
def swept(heads, tmp_path_factory):
    """All three under both prompts, in one pass, with all of their objectives."""
    run = Run(tmp_path_factory.mktemp("swept") / "run")
    run.sweep(list(heads.values()), PROMPTS, objectives="values")
    return run


@pytest.fixture(scope="module")
def models(heads):
    """A plain head, and a gated one with objectives."""
    return {slug: heads[slug] for slug in ("tiny", "qrm")}


@pytest.fixture(scope="module")
def through_lens(models, tmp_path_factory):
    """Both under both prompts in one pass, with the lens and with objectives."""
    run = Run(tmp_path_factory.mktemp("lens") / "run")
    run.sweep(list(models.values()), PROMPTS, lens=True, objectives="values")
    return run


def layers_of(model):
    return list(schema.lens_columns(model.card.reward_head.depth))


# Objectives


@pytest.mark.parametrize("slug", OBJECTIVES)
def test_a_column_per_objective_follows_the_reward_of_each_model_of_a_pass(swept, heads, slug):
    assert len(sharing_groups(list(heads.values()))) == 1
    expected = schema.SCORE_COLUMNS | dict.fromkeys(OBJECTIVES[slug], pl.Float32)
    assert dict(swept.frame(result(slug)).schema) == expected
    assert list(swept.frame(result(slug)).columns) == list(expected)


@pytest.mark.parametrize("slug", ["qrm", "urm"])
def test_a_model_of_a_pass_has_the_objectives_that_it_has_alone(swept, heads, slug):
    alone = engine.load(heads[slug].path, step_size=16).objectives(
        PROMPTS["greatest"], ["love", "war"], mode="ids"
    )
    ids = heads[slug].template.tokenizer.convert_tokens_to_ids(["love", "war"])
    together = swept.frame(result(slug))[ids]
    assert alone.columns == ["response", "reward", *NAMES]
    for name in ("reward", *NAMES):
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-4, atol=1e-5)
    assert (swept.frame(result(slug)).select(NAMES).to_numpy().std(axis=0) > 0.05).all()


def test_the_recorded_coefficients_sum_the_objectives_to_the_reward(swept):
    results = swept.results()
    by_prompt = [results[result("qrm", prompt)].coefficients for prompt in PROMPTS]
    for prompt, coefficients in zip(PROMPTS, by_prompt, strict=True):
        assert list(coefficients) == NAMES
        frame = swept.frame(result("qrm", prompt))
        summed = frame.select(NAMES).to_numpy() @ np.array(list(coefficients.values()))
        np.testing.assert_allclose(summed, frame["reward"], rtol=1e-4, atol=1e-4)
    assert by_prompt[0] != by_prompt[1]  # the gate reads the prompt
    assert results[result("urm")].coefficients is None
    assert results[result("tiny")].coefficients is None


@pytest.mark.parametrize("names", [["reward"], ["a", "a"], ["a b"]])
def test_names_that_are_no_columns_or_taken_are_refused(names):
    with pytest.raises(AssayError, match=rf"^objective '{names[-1]}'"):
        schema.objective_columns(names)


# The lens


@pytest.mark.parametrize("slug", ["tiny", "qrm"])
def test_a_column_per_layer_follows_the_reward_and_the_last_equals_it(through_lens, models, slug):
    frame, layers = through_lens.frame(result(slug)), layers_of(models[slug])
    assert frame.columns[:2] == ["token_id", "reward"]
    assert frame.columns[-len(layers) :] == layers and len(layers) >= 2
    assert frame[layers[-1]].equals(frame["reward"], check_names=False)
    assert (frame.select(layers[:-1]).to_numpy() != frame["reward"].to_numpy()[:, None]).any()
    noted = through_lens.results()[result(slug)]
    assert noted.identity.lens == len(layers)
    assert noted.complete and noted.self_check.candidates == SETTINGS.self_check


@pytest.mark.parametrize(("mode", "dtype"), [("ids", "float32"), ("text", "bfloat16")])
def test_the_lens_changes_no_bit_of_a_reward(models, run, other_run, mode, dtype):
    opened = list(models.values())
    asked = {"objectives": "values", "mode": mode, "dtype": dtype}  # what is compiled already
    run.sweep(opened, ONE, lens=True, **asked)
    other_run.sweep(opened, ONE, **asked)
    for slug in models:
        with_lens, without = (own.rewards(slug, "greatest") for own in (run, other_run))
        assert with_lens.tobytes() == without.tobytes()


def test_analysis_reads_rewards_objectives_and_layers(through_lens, models):
    loaded = analysis.load(through_lens.folder)
    for slug, model in models.items():
        stored = through_lens.frame(result(slug))
        assert loaded.layers(slug, "greatest").equals(stored.select("token_id", *layers_of(model)))
        np.testing.assert_array_equal(loaded.rewards(slug, "greatest")[1], stored["reward"])
        assert layers_of(model)[0] not in loaded.objectives(slug, "greatest").columns


def test_verify_and_rescore_read_the_layers(through_lens, models):
    found = verify(through_lens.folder)
    assert found.problems == []
    listed = [found.folder.results[result(slug)] for slug in models]
    checked = rescore(found.folder, list(models.values()), build_mesh(), listed, rows=5, seed=1)
    assert {outcome.candidates for _, outcome in checked} == {5}


# Checks of every column


@pytest.mark.parametrize(
    ("slug", "row", "column", "asked"),
    [
        ("tiny", 1, "layer_01", {"lens": True}),
        ("qrm", 4, NAMES[3], {"objectives": "values"}),
    ],
)
def test_the_self_check_sees_a_column_go_wrong(run, heads, monkeypatch, slug, row, column, asked):
    original = reward_passes.in_steps

    def wrong(step, buckets, numbers, *rest):
        original(step, buckets, numbers, *rest)
        numbers[row] += 0.5

    monkeypatch.setattr(reward_passes, "in_steps", wrong)
    message = rf"^self-check of {result(slug)}: row \d+ .*{column}"
    with pytest.raises(AssayError, match=message):
        run.sweep([heads[slug]], ONE, **asked)


def test_the_self_check_allows_what_a_dtype_rounds_and_names_the_worst():
    plain = np.array([[1.0, 2.0], [100.0, 0.5]], np.float32)
    close, rows = plain * np.float32(1.00005), np.array([3, 9])
    note = self_check("r", ["reward", "a"], rows, close, plain, "float32")
    assert note.candidates == 2
    assert note.max_abs_difference == pytest.approx(0.005, rel=1e-2)
    close[0, 1] += 0.01
    with pytest.raises(AssayError, match=r"^r: row 9 .*2\.01"):
        self_check("r", ["reward", "a"], rows, close, plain, "float32")


def test_of_a_mixture_the_self_check_allows_near_ties_of_the_router_in_a_few_rows():
    plain = np.linspace(-1, 1, 16, dtype=np.float32)[None]
    some = plain + np.where(np.arange(16) % 3, 0, 0.4).astype(np.float32)
    about = ("r", ["reward"], np.arange(16))
    note = self_check(*about, some, plain, "float32", compared="median")
    assert note.max_abs_difference == pytest.approx(0.4) and note.tolerance == 0.06
    wrong = plain + np.float32(0.1)
    for written, compared in ((some, "largest"), (wrong, "median"), (-plain, "median")):
        with pytest.raises(AssayError, match=r"^r: row \d+"):
            self_check(*about, written, plain, "bfloat16", compared=compared)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_objective_that_is_not_finite_is_refused_by_name(bad):
    values = np.ones((2, 4), np.float32)
    check_finite("m", "token_id", 0, ["reward", "complexity"], values)
    values[1, 2] = bad
    with pytest.raises(AssayError, match=r"^model 'm': .*complexity .* token_id 7 "):
        check_finite("m", "token_id", 5, ["reward", "complexity"], values)
