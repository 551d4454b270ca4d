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
REPLIES = ["love", "war and peace", "", "the truth, the whole truth and nothing but the truth", "a"]
REPLIES += [f"{'love ' * (i % 7)}{i}" for i in range(42)]  # 47 replies of 1 to about 55 tokens


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
    run.sweep(models, ONE, mesh=mesh, dtype=dtype, objectives="quantiles")
    run.score(models, ONE, "replies", REPLIES, mesh=mesh, dtype=dtype)
    shared = {field.name for field in dataclasses.fields(LogprobSettings)} - {"form"}
    common = {name: getattr(SETTINGS, name) for name in shared} | {"dtype": dtype}
    settings = LogprobSettings(form="pretrained", **common)
    for items in (None, ("replies", REPLIES)):
        logprob_jobs.sweep_logprobs([language], ONE, str(run.folder), settings, mesh, items=items)
    return run.hashes()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_number_of_devices_leaves_every_byte_unchanged(models, language, tmp_path, dtype):
    on_one = everything(tmp_path, models, language, 1, dtype)
    assert len(on_one) == 2 * (3 + 1) + 3 + 1
    for data in (2, 4):
        assert everything(tmp_path, models, language, data, dtype) == on_one, data


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
SWEEPS = """
import sys
from launch import sweep
folder, *flags = sys.argv[1:]
for dtype in ("float32", "bfloat16"):
    assert sweep.main([*flags, f"--run={folder}/{dtype}", f"--config.dtype={dtype}"]) == 0
"""


@pytest.mark.slow
def test_eight_devices_write_the_bytes_of_one_whose_thread_pool_is_smaller(models, tmp_path):
    hashes = []
    for devices in (1, 8):
        flags = [f"--checkpoint={models[0].path}", "--config.prompts=greatest"]
        flags += ["--config.step_size=16", "--config.part_size=100"]
        xla_flags = f"--xla_force_host_platform_device_count={devices}"
        done = subprocess.run(
            [sys.executable, "-c", SWEEPS, tmp_path / str(devices), *flags],
            cwd=ROOT,
            env={**os.environ, "XLA_FLAGS": xla_flags, "NPROC": "2"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        runs = [Run(tmp_path / str(devices) / dtype) for dtype in ("float32", "bfloat16")]
        for run in runs:
            (result,) = run.results().values()
            assert result.environment["device_count"] == devices
        hashes.append([run.hashes() for run in runs])
    assert [len(parts) for parts in hashes[0]] == [3, 3]
    assert hashes[0][0] != hashes[0][1]
    assert hashes[0] == hashes[1]


@pytest.mark.slow
def test_a_run_begun_on_two_devices_goes_on_with_one(models, run, tmp_path):
    """In processes of their own: the first ends between two parts."""
    flags = [f"--checkpoint={models[0].path}", "--config.prompts=greatest"]
    flags += ["--config.step_size=16", "--config.part_size=100"]

    def sweep(devices, folder, code=SWEEP):
        xla_flags = f"--xla_force_host_platform_device_count={devices}"
        return subprocess.run(
            [sys.executable, "-c", code, *flags, f"--run={folder}"],
            cwd=ROOT,
            env={**os.environ, "XLA_FLAGS": xla_flags},
            capture_output=True,
            text=True,
        )

    assert sweep(2, run.folder, DIES + SWEEP).returncode == 9
    [begun] = run.results().values()
    assert [way["devices"] for way in begun.ways] == [2] and len(begun.parts) == 1
    done = sweep(1, run.folder)
    assert done.returncode == 0, done.stderr
    assert "parts were computed" not in done.stderr  # devices along `data` change no byte
    [result] = run.results().values()
    assert result.complete and [way["devices"] for way in result.ways] == [2, 1]
    assert sweep(1, tmp_path / "whole").returncode == 0
    assert run.hashes() == Run(tmp_path / "whole").hashes()


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
