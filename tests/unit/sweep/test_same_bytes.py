"""Results have the same bytes on any number of devices along the axis `data`, or are not mixed."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from configs import prompts
from engine.runs.result import Result
from engine.scoring import reward_passes
from engine.settings import LogprobSettings
from engine.sweep import logprob_jobs
from tests.support.killed import Killed, killed_after
from tests.support.parity import make_mesh
from tests.support.sweeps import ONE, SETTINGS, Run

ROOT = Path(__file__).resolve().parents[3]
# Wide enough for matmuls whose last bits depend on the number of rows.
WIDE = {"num_hidden_layers": 2, "hidden_size": 192, "intermediate_size": 320, "head_dim": 48}
REPLIES = ["love", "war and peace", "", "the truth", "a"]
REPLIES += [f"{'love ' * (i % 4)}{i}" for i in range(42)]  # 47 replies of up to 13 tokens


@pytest.fixture(scope="module")
def models(checkpoint):
    """A plain head and a gated one on one decoder."""
    gated = {"head": "qrm", "architectures": ("LlamaForRewardModelWithGating",)}
    return [checkpoint("wide", **WIDE), checkpoint("gated", **gated, **WIDE)]


@pytest.fixture(scope="module")
def language(checkpoint):
    return checkpoint("language", head="lm", **WIDE)


def everything(folder, models, language, data: int) -> dict[str, str]:
    """Path -> sha256 of every part that the commands write on some devices."""
    run, mesh = Run(folder / str(data)), make_mesh(data)
    run.sweep(models, ONE, mesh=mesh, objectives="values")
    run.score(models, ONE, "replies", REPLIES, mesh=mesh)
    shared = {field.name for field in dataclasses.fields(LogprobSettings)} - {"form"}
    common = {name: getattr(SETTINGS, name) for name in shared}
    settings = LogprobSettings(form="pretrained", **common)
    for items in (None, ("replies", REPLIES)):
        logprob_jobs.sweep_logprobs([language], ONE, str(run.folder), settings, mesh, items=items)
    return run.hashes()


@pytest.mark.slow
def test_the_number_of_devices_leaves_every_byte_unchanged(models, language, tmp_path):
    on_one = everything(tmp_path, models, language, 1)
    assert len(on_one) == 2 * (3 + 1) + 3 + 1
    assert everything(tmp_path, models, language, 4) == on_one


@pytest.mark.slow
def test_a_step_that_depends_on_the_number_of_devices_changes_bytes(models, tmp_path, monkeypatch):
    """The planted bug: `step_size` candidates on all devices together, as it once was."""
    hashes = []
    for data in (1, 4):
        run = Run(tmp_path / str(data))
        with monkeypatch.context() as patch:
            patch.setattr(
                reward_passes,
                "rows_of_step",
                lambda candidates, positions, limit, data=data: limit // data,
            )
            run.sweep(models[:1], ONE, mesh=make_mesh(data))
        hashes.append(run.hashes())
    assert hashes[0].keys() == hashes[1].keys()
    assert hashes[0] != hashes[1]


SWEEP = "import sys; from launch import sweep; sys.exit(sweep.main(sys.argv[1:]))"


@pytest.mark.slow
def test_a_run_begun_on_two_devices_goes_on_with_one_and_has_the_bytes_of_eight(
    models, run, tmp_path, monkeypatch, capsys
):
    """It ends between two parts. The thread pool of the eight devices is smaller."""
    asked = {"greatest": prompts.PROMPTS["greatest"]}
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_after(patch, Result, "write", 1)
        run.sweep(models[:1], asked, mesh=make_mesh(2))
    run.sweep(models[:1], asked, mesh=make_mesh(1))
    assert "parts were computed" not in capsys.readouterr().err  # `data` changes no byte
    [result] = run.results().values()
    assert result.complete and [way["devices"] for way in result.ways] == [2, 1]
    flags = [f"--checkpoint={models[0].path}", "--config.prompts=greatest"]
    flags += ["--config.step_size=16", "--config.part_size=100", f"--run={tmp_path / 'whole'}"]
    counted = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-c", SWEEP, *flags],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": counted, "NPROC": "2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    whole = Run(tmp_path / "whole")
    [result] = whole.results().values()
    assert result.environment["device_count"] == 8
    assert run.hashes() == whole.hashes() and len(run.hashes()) == 3
    next((run.folder / "scores").rglob("part-*")).unlink()
    run.sweep(models[:1], asked, mesh=make_mesh(1, 2))
    assert "parts were computed with model_axis default and 2" in capsys.readouterr().err
