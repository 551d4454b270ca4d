"""The reward after every layer as columns beside the reward."""

import dataclasses

import numpy as np
import polars as pl
import pytest

import analysis
import engine
from engine.convert import gates
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.runs import parts, schema
from engine.runs.reader import RunError
from engine.runs.verify import verify
from engine.scoring.reward_passes import RewardScorer
from engine.sweep.rescore import rescore
from tests.support import slow, tiny
from tests.support.killed import Killed, killed_after
from tests.support.parity import make_mesh
from tests.support.sweeps import SETTINGS, Run

PROMPTS = {"greatest": "What is the greatest thing?", "worst": "What is the worst thing?"}
ONE = {"greatest": PROMPTS["greatest"]}
SIZE = 288


@pytest.fixture(scope="module")
def models(checkpoint):
    """A plain head, and a gated one with objectives, on one decoder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gates, "PATTERNS", {"llama": tiny.GATE})
        architecture = ("LlamaForRewardModelWithGating",)
        gated = checkpoint("qrm", head="qrm", head_seed=7, architectures=architecture)
    return {"tiny": checkpoint(), "qrm": gated}


@pytest.fixture(scope="module")
def swept(models, tmp_path_factory):
    """Both under both prompts in one pass, with the lens and with objectives."""
    run = Run(tmp_path_factory.mktemp("swept") / "run")
    run.sweep(list(models.values()), PROMPTS, lens=True, objectives="values")
    return run


def layers_of(model):
    return list(schema.lens_columns(model.card.reward_head.depth))


def result(slug, prompt="greatest"):
    return f"scores/model={slug}/prompt={prompt}"


@pytest.mark.parametrize("slug", ["tiny", "qrm"])
def test_a_column_a_layer_follows_the_reward_and_the_last_equals_it(swept, models, slug):
    frame, layers = swept.frame(result(slug)), layers_of(models[slug])
    assert frame.columns[:2] == ["token_id", "reward"]
    assert frame.columns[-len(layers) :] == layers and len(layers) >= 2
    assert frame[layers[-1]].equals(frame["reward"], check_names=False)
    assert (frame.select(layers[:-1]).to_numpy() != frame["reward"].to_numpy()[:, None]).any()
    noted = swept.manifest()["results"][result(slug)]
    assert noted["fingerprint"]["lens"] == len(layers)
    assert noted["complete"] and noted["self_check"]["candidates"] == SETTINGS.self_check


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mode", slow.all_but(["ids"], ["ids", "text"]))
def test_the_lens_changes_no_bit_of_a_reward(models, run, other_run, dtype, mode):
    every = list(models.values())
    run.sweep(every, ONE, lens=True, mode=mode, dtype=dtype)
    other_run.sweep(every, ONE, mode=mode, dtype=dtype)
    for slug in models:
        with_lens, without = (each.rewards(slug, "greatest") for each in (run, other_run))
        assert with_lens.tobytes() == without.tobytes()


def test_the_number_of_devices_changes_no_byte(models, tmp_path):
    hashes = []
    for data in (1, 4):
        run = Run(tmp_path / str(data))
        run.sweep(list(models.values()), ONE, mesh=make_mesh(data), lens=True)
        hashes.append(run.hashes())
    assert hashes[0] == hashes[1]


@pytest.mark.slow
def test_layers_hardly_depend_on_the_devices_that_share_a_model(models, swept, run):
    run.sweep([models["tiny"]], ONE, mesh=make_mesh(2, 2), lens=True)
    own, layers = run.frame(result("tiny")), layers_of(models["tiny"])
    for name in layers:
        np.testing.assert_allclose(own[name], swept.frame(result("tiny"))[name], 1e-4, 1e-5)
    assert own[layers[-1]].equals(own["reward"], check_names=False)


def test_a_run_killed_between_parts_ends_in_the_same_bytes(run, other_run, models, monkeypatch):
    own = [models["tiny"]]
    other_run.sweep(own, ONE, lens=True)
    with monkeypatch.context() as patched:
        killed_after(patched, parts, "write_part", 2)
        with pytest.raises(Killed):
            run.sweep(own, ONE, lens=True)
    assert run.sweep(own, ONE, lens=True) == SIZE - 200
    assert run.hashes() == other_run.hashes()


@pytest.mark.parametrize("lens", [False, True])
def test_a_result_is_not_continued_otherwise_than_it_was_begun(run, models, lens):
    own = [models["tiny"]]
    run.sweep(own, ONE, lens=lens)
    before, layers = run.parts(), len(layers_of(models["tiny"]))
    begun = f"lens={layers}, not its default" if lens else f"lens left at its default, not {layers}"
    with pytest.raises(AssayError, match=begun):
        run.sweep(own, ONE, lens=not lens)
    assert run.parts() == before


def test_python_gives_the_layers_of_the_run(swept, models):
    model, layers = engine.load(models["tiny"].path, step_size=64), layers_of(models["tiny"])
    said = model.lens(ONE["greatest"])
    assert said.columns == ["token_id", "token", "reward", *layers]
    assert said.select("token_id", "token", "reward").equals(model.sweep(ONE["greatest"]))
    stored = swept.frame(result("tiny"))
    for name in layers:
        np.testing.assert_allclose(said.sort("token_id")[name], stored[name], 1e-4, 1e-5)


def test_analysis_reads_rewards_objectives_and_layers(swept, models):
    loaded = analysis.load(swept.folder)
    for slug, model in models.items():
        stored = swept.frame(result(slug))
        assert loaded.layers(slug, "greatest").equals(stored.select("token_id", *layers_of(model)))
        np.testing.assert_array_equal(loaded.rewards(slug, "greatest")[1], stored["reward"])
        assert layers_of(model)[0] not in loaded.objectives(slug, "greatest").columns


def test_a_run_without_the_lens_says_how_to_get_it(run, models):
    run.sweep([models["tiny"]], ONE)
    with pytest.raises(RunError, match=r"swept without the lens \(--config\.lens=true\)$"):
        analysis.load(run.folder).layers("tiny", "greatest")


def test_verify_and_rescore_read_the_layers(swept, models):
    found = verify(swept.folder)
    assert found.problems == [] and found.unchecked == []
    paths = [result(slug) for slug in models]
    checked = rescore(
        swept.folder, found.content, list(models.values()), build_mesh(), paths, rows=5, seed=1
    )
    notes = dict(checked)
    assert {note["candidates"] for note in notes.values()} == {5}


def test_verify_sees_parts_whose_layers_are_not_those_of_the_manifest(run, models):
    run.sweep([models["tiny"]], ONE, lens=True)
    run.edit_manifest(lambda c: c["results"][result("tiny")]["fingerprint"].update(lens=1))
    found = verify(run.folder)
    assert any("belongs to something else" in line for line in found.problems)


def test_a_last_layer_that_is_not_the_reward_is_refused(swept, monkeypatch):
    loaded = analysis.load(swept.folder)
    scan = pl.scan_parquet
    monkeypatch.setattr(
        pl, "scan_parquet", lambda *a, **k: scan(*a, **k).with_columns(reward=pl.lit(0.0))
    )
    with pytest.raises(RunError, match="the last layer is not the reward of token ids 0, 1"):
        loaded.layers("tiny", "greatest")


def test_the_self_check_sees_a_layer_go_wrong(run, models, monkeypatch):
    original = RewardScorer.rewards

    def wrong(self, prefix, candidates):
        for step in original(self, prefix, candidates):
            step = step.copy()
            step[1] += 0.5
            yield step

    monkeypatch.setattr(RewardScorer, "rewards", wrong)
    message = rf"^self-check of {result('tiny')}: row \d+ has layer_01 .*, the plain pass gives"
    with pytest.raises(AssayError, match=message):
        run.sweep([models["tiny"]], ONE, lens=True)


def test_lists_have_no_lens(run, models):
    message = r"^lens=True: only vocabularies have a lens; allowed for lists: False$"
    with pytest.raises(AssayError, match=message):
        run.score([models["tiny"]], ONE, "words", ["love"], lens=True)
    assert not run.folder.exists()


def test_a_setting_that_is_no_truth_value_is_refused():
    with pytest.raises(AssayError, match=r"^lens='yes'; allowed: True, False$"):
        dataclasses.replace(SETTINGS, lens="yes")
