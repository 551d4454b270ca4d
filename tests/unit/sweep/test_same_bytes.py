"""Results have the same bytes on any number of devices along the axis `data`, or are not mixed."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.scoring import reward_passes
from engine.settings import LogprobSettings
from engine.sweep import logprob_jobs
from tests.support.parity import make_mesh
from tests.support.sweeps import ONE, SETTINGS, Run

ROOT = Path(__file__).resolve().parents[3]
# Wide enough for matmuls whose last bits depend on the number of rows.
WIDE = {"hidden_size": 192, "intermediate_size": 320, "head_dim": 48}
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


def everything(folder, models, language, data: int, dtype: str) -> dict[str, str]:
    """Path -> sha256 of every part that the commands write on some devices."""
    run, mesh = Run(folder / f"{dtype}-{data}"), make_mesh(data)
    run.sweep(models, ONE, mesh=mesh, dtype=dtype, objectives="values")
    run.score(models, ONE, "replies", REPLIES, mesh=mesh, dtype=dtype)
    shared = {field.name for field in dataclasses.fields(LogprobSettings)} - {"form"}
    common = {name: getattr(SETTINGS, name) for name in shared} | {"dtype": dtype}
    settings = LogprobSettings(form="pretrained", **common)
    for items in (None, ("replies", REPLIES)):
        logprob_jobs.sweep_logprobs([language], ONE, str(run.folder), settings, mesh, items=items)
    return run.hashes()


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "data"), [("float32", 2), ("bfloat16", 4)])
def test_the_number_of_devices_leaves_every_byte_unchanged(models, language, tmp_path, dtype, data):
    on_one = everything(tmp_path, models, language, 1, dtype)
    assert len(on_one) == 2 * (3 + 1) + 3 + 1
    assert everything(tmp_path, models, language, data, dtype) == on_one


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
DIES = """
import os
from engine.runs.result import Result
write = Result.write
def dies(self, *arguments):
    write(self, *arguments)
    os._exit(9)
Result.write = dies
"""


def swept(model, devices, folder, code=SWEEP, **variables):
    """A process that sweeps on some devices."""
    flags = [f"--checkpoint={model.path}", "--config.prompts=greatest", f"--run={folder}"]
    flags += ["--config.step_size=16", "--config.part_size=100"]
    counted = f"--xla_force_host_platform_device_count={devices}"  # the last one counts
    return subprocess.run(
        [sys.executable, "-c", code, *flags],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} {counted}", **variables},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_run_begun_on_two_devices_goes_on_with_one_and_has_the_bytes_of_eight(
    models, run, tmp_path
):
    """The first process ends between two parts; the thread pool of eight devices is smaller."""
    assert swept(models[0], 2, run.folder, DIES + SWEEP).returncode == 9
    [begun] = run.results().values()
    assert [way["devices"] for way in begun.ways] == [2] and len(begun.parts) == 1
    done = swept(models[0], 1, run.folder)
    assert done.returncode == 0, done.stderr
    assert "parts were computed" not in done.stderr  # devices along `data` change no byte
    [result] = run.results().values()
    assert result.complete and [way["devices"] for way in result.ways] == [2, 1]
    whole = Run(tmp_path / "whole")
    done = swept(models[0], 8, whole.folder, NPROC="2")
    assert done.returncode == 0, done.stderr
    [result] = whole.results().values()
    assert result.environment["device_count"] == 8
    assert run.hashes() == whole.hashes() and len(run.hashes()) == 3


@pytest.mark.slow
def test_a_result_goes_on_along_another_model_axis_and_says_so(models, run, capsys):
    run.sweep(models[:1], ONE, mesh=make_mesh(2))
    part = next((run.folder / "scores").rglob("part-*"))
    whole = part.read_bytes()
    part.unlink()
    run.sweep(models[:1], ONE, mesh=make_mesh(4))  # other devices along `data` do not count
    assert part.read_bytes() == whole
    assert "parts were computed" not in capsys.readouterr().err
    part.unlink()
    run.sweep(models[:1], ONE, mesh=make_mesh(1, 2))
    assert "parts were computed with model_axis default and 2" in capsys.readouterr().err
