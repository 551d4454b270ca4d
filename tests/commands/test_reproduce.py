"""`assay reproduce` on tiny models that stand in for two of the paper's; killed in every stage."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.published import data
from launch.reproduction import plan
from tests.support import tiny
from tests.support.reproduction import (
    GEMMA,
    LANGUAGE,
    SKYWORK,
    SPEC,
    counts,
    flags,
    parts,
    write_items,
    write_models,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder with the folders of the models."""
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def elo(tmp_path_factory):
    """Items with human ranks."""
    return write_items(tmp_path_factory.mktemp("elo"))


@pytest.fixture(scope="module")
def done(folders, elo, tmp_path_factory):
    """A reproduction of one model that nothing interrupted."""
    from launch import reproduce

    root = tmp_path_factory.mktemp("done") / "root"
    assert reproduce.main(flags(root, folders, f"--elo={elo}")) == 0
    return root


@pytest.mark.slow
def test_a_page_about_one_model_of_ten(done):
    page = (done / "paper.html").read_text(encoding="utf-8")
    assert "R-Gem-2B" in page
    assert "not among --models" in page  # the other nine
    assert "<script" not in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert "it is over all ten models, and 1 were scored" in page  # Figures 2C and 5B
    names = {path.name for path in (done / "runs").iterdir()}
    assert names == {"paper", "ours"}


@pytest.mark.slow
def test_its_values_are_written_in_the_form_of_the_published_ones(done):
    own = data.read(done / "own")
    assert set(own.numbers["model"]) == {"R-Gem-2B"}
    assert {"table_3", "figure_5a"} <= set(own.numbers["exhibit"])
    assert set(own.tokens["exhibit"]) == {"table_2", "table_a6", "table_a7"}


@pytest.mark.slow
def test_compared_with_its_own_values_everything_is_the_same(command, done, folders, elo):
    more = (f"--elo={elo}", "--only=page", f"--published={done / 'own'}")
    found = command("reproduce", *flags(done, folders, *more))
    assert found.code == 0
    said = counts(found.out[-1])
    assert said["same"] > 50
    assert (said["within noise"], said["differs"], said["not run"]) == (0, 0, 0)


@pytest.mark.slow
def test_compared_with_the_paper_nothing_is_the_same(command, done, folders, elo):
    found = command("reproduce", *flags(done, folders, f"--elo={elo}", "--only=page"))
    said = counts(found.out[-1])
    assert said["differs"] > 10
    assert (said["same"], said["within noise"]) == (0, 0)


@pytest.mark.slow
def test_a_second_call_computes_nothing(command, done, folders, elo):
    before = parts(done)
    found = command("reproduce", *flags(done, folders, f"--elo={elo}"))
    assert found.code == 0
    assert "R-Gem-2B: complete already" in found.err
    assert parts(done) == before


STOPS = {  # stage -> files of it, at the first of which the command is killed, and their number
    "convert": ("checkpoints/*/*/**/*", 10**6),
    "items": ("runs/*/items/items/*/*/part-*.parquet", 2),
    "search": ("runs/paper/sequences/*/*/*.safetensors", 1),
    "page": ("own/*.csv", 10**6),
}


@pytest.mark.slow
def test_killed_in_every_stage_it_goes_on_to_the_same_bytes(command, done, folders, elo, tmp_path):
    root = tmp_path / "root"
    arguments = flags(root, folders, f"--elo={elo}", "--config.search.every=1")
    for stage, (files, of) in STOPS.items():
        killed_at(files, arguments, root)
        assert 0 < len(list(root.glob(files))) <= of, stage
        assert (root / "checkpoints" / GEMMA).exists() == (stage != "convert")
        assert bool(list(root.glob("runs/paper/sequences/*/*/*/*"))) == (stage == "page")
        assert not (root / "paper.html").exists()
    found = command("reproduce", *arguments)
    assert found.code == 0
    assert "R-Gem-2B: complete already" in found.err
    assert parts(root) == parts(done)
    assert (root / "paper.html").exists()
    assert [path.name for path in (root / "checkpoints").iterdir()] == [GEMMA]


@pytest.mark.slow
def test_killed_while_log_probabilities_are_computed(command, folders, tmp_path):
    whole, root = tmp_path / "whole", tmp_path / "root"
    assert command("reproduce", *flags(whole, folders, *OF_LANGUAGE, models=[LANGUAGE])).code == 0
    arguments = flags(root, folders, *OF_LANGUAGE, models=[LANGUAGE])
    killed_at("runs/paper/logprobs/*/*/part-*.parquet", arguments, root)
    assert 0 < len(list(root.glob("runs/paper/logprobs/*/*/part-*.parquet"))) < 15
    assert command("reproduce", *arguments).code == 0
    assert parts(root) == parts(whole)


OF_LANGUAGE = ("--only=logprobs",)


def killed_at(files, arguments, root):
    """Runs the command, and kills it as soon as one of the files is there that were not before."""
    before, log = set(root.glob(files)), root.with_name("log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "launch.reproduce", *arguments],
            cwd=ROOT,
            stderr=output,
            stdout=output,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        ends = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < ends:
            if set(root.glob(files)) - before:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.002)
    assert process.wait() == -signal.SIGKILL, log.read_text()


@pytest.mark.slow
def test_one_model_that_fails_does_not_stop_the_rest(command, folders, tmp_path):
    broken = tmp_path / "models"
    broken.mkdir()
    hub = SPEC.hub_id.replace("/", "--")
    (broken / hub).symlink_to(folders / hub)
    tiny.write_model(broken / SKYWORK, nan_head=True)
    both = flags(tmp_path / "root", broken, "--only=sweep,page", models=(SKYWORK, GEMMA))
    found = command("reproduce", *both)
    assert found.code == 1
    assert found.err[-1].startswith("reproduce: 1 of 2 models failed: S-Gem-27B; ")
    (row,) = [line for line in found.err if line.startswith("S-Gem-27B  ")]
    assert "0/6" in row
    assert "not finite" in row
    assert any(line.startswith("R-Gem-2B") and "6/6" in line for line in found.err)
    page = (tmp_path / "root" / "paper.html").read_text(encoding="utf-8")
    assert "sweep 6 of 6" in page
    assert "not finite" in page


@pytest.mark.slow
def test_keep_none_removes_checkpoints_and_never_a_users_folder(command, folders, tmp_path):
    root = tmp_path / "root"
    arguments = flags(root, folders, "--only=sweep", "--keep=none", "--config.searched=")
    before = sorted(folders.rglob("*"))
    found = command("reproduce", *arguments)
    assert found.code == 0
    assert any("removed (--keep=none)" in line for line in found.err)
    assert not (root / "checkpoints" / GEMMA).exists()
    assert sorted(folders.rglob("*")) == before
    again = command("reproduce", *arguments)
    assert "R-Gem-2B: complete already" in again.err
    assert not (root / "checkpoints" / GEMMA).exists()


@pytest.mark.parametrize(
    ("only", "left"),
    [
        ("page", "sweep, search"),
        ("logprobs,page", "sweep, search"),
        ("items,page", "sweep, search"),
    ],
)
def test_keep_none_keeps_what_a_stage_outside_of_only_needs(command, folders, tmp_path, only, left):
    """--only=page used to remove the checkpoint of a model without any result."""
    checkpoint = tmp_path / "root" / "checkpoints" / GEMMA
    checkpoint.mkdir(parents=True)
    (checkpoint / "kept").touch()
    more = (f"--only={only}", "--keep=none")
    found = command("reproduce", *flags(tmp_path / "root", folders, *more))
    assert found.code == 0
    assert f"R-Gem-2B: checkpoint kept, {left} not complete" in found.err
    assert (checkpoint / "kept").exists()
    (row,) = [line for line in found.err if line.startswith("R-Gem-2B  ")]
    assert row.endswith("nothing to compute")


@pytest.mark.slow
def test_a_plan_counts_what_is_complete(command, done, folders, elo):
    more = (f"--elo={elo}", "--plan", "--devices=cpu-8GB")
    found = command("reproduce", *flags(done, folders, *more))
    (row,) = [line for line in found.out if line.startswith("R-Gem-2B")]
    assert "complete already" in row


@pytest.mark.slow
def test_a_folder_with_one_model_of_several_is_no_refusal(command, folders, tmp_path, monkeypatch):
    """What it lacks is said in one line and takes no disk; the page is about the rest."""
    small = SimpleNamespace(free=2**30, number=1)
    monkeypatch.setattr(plan, "free_disk", lambda folder: small)
    one = tmp_path / "models"
    one.mkdir()
    (one / SKYWORK).symlink_to(folders / SKYWORK)
    both = flags(tmp_path / "root", one, "--only=convert", models=(GEMMA, SKYWORK))
    found = command("reproduce", *both)
    assert found.code == 1
    assert found.err[0] == f"--source-dir={one}: no folder of 1 of 2 models: R-Gem-2B"
    rows = {line.split()[0]: line for line in found.err}
    assert rows["S-Gem-27B"].endswith("converted")
    assert "failed: --source-dir=" in rows["R-Gem-2B"]
    planned = command("reproduce", *both, "--plan", "--devices=cpu-8GB")
    assert "no folder in --source-dir: R-Gem-2B" in planned.out
