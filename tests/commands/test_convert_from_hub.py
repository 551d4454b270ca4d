"""`assay convert` of a hub id: the same checkpoint as from the folder, and an orderly end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.checkpoint.card import Checkpoint
from tests.support import hub_server, tiny
from tests.support.folders import files_of

ROOT = Path(__file__).resolve().parents[2]
NAME = "owner/tiny-rm"
DESCRIBING = ("source", "revision", "sha256")  # of model.json: where files came from, and its hash
TIMES = ("_CHECKPOINT_METADATA", "commit_success.txt")  # files that say when they were written


@pytest.fixture
def hub(tmp_path):
    with hub_server.running() as running:
        yield running


def timeless(checkpoint: Path) -> dict[str, bytes]:
    return {n: data for n, data in files_of(checkpoint).items() if not n.endswith(TIMES)}


def test_a_checkpoint_from_a_hub_is_the_one_from_the_folder(command, hub, tmp_path, monkeypatch):
    folder = tiny.write_model(tmp_path / "tiny-rm", head="urm")
    commit = hub.add(NAME, folder, "v1")
    hub.add(NAME, tiny.write_model(tmp_path / "newer", seed=1))
    fetched, local = tmp_path / "fetched", tmp_path / "local"
    assert command("convert", f"--source={folder}", f"--checkpoint={local}").code == 0
    hub_server.point(monkeypatch, hub, tmp_path / "cache")
    flags = (f"--source={NAME}", "--revision=v1", f"--checkpoint={fetched}")
    done = command("convert", *flags)
    assert done.code == 0 and ["32 of 320 rows" in line for line in done.err] == [True]
    assert done.out == [f"{fetched}: tiny-rm, 3 layers, urm head, 320 tokens, float32"]
    here, there = timeless(fetched), timeless(local)
    mine, theirs = json.loads(here.pop("model.json")), json.loads(there.pop("model.json"))
    assert here == there
    assert (mine["source"], mine["revision"]) == (NAME, commit)
    assert (theirs["source"], theirs["revision"]) == (str(folder), None)
    without = [{k: v for k, v in c.items() if k not in DESCRIBING} for c in (mine, theirs)]
    assert without[0] == without[1]
    cards = [Checkpoint.open(path).card for path in (fetched, local)]
    assert cards[0].checkpoint_hash == cards[1].checkpoint_hash
    assert command("convert", *flags).refusal()  # it exists; nothing is asked for
    assert len(hub.downloads("model.safetensors")) == 1


@pytest.mark.slow
def test_a_download_that_is_stopped_leaves_one_line_and_whole_files(hub, tmp_path):
    folder = tiny.write_model(tmp_path / "tiny-rm", intermediate_size=2**15)
    assert (folder / "model.safetensors").stat().st_size > 16 * 2**20
    hub.add(NAME, folder)
    hub.fails("GET /[0-9a-f]{64}", pause=0.1)  # half a minute for the whole
    command = [sys.executable, "-m", "launch.convert", f"--source={NAME}"]
    process = subprocess.Popen(
        [*command, f"--checkpoint={tmp_path / 'ck'}"],
        cwd=ROOT,
        env=os.environ | hub_server.environment(hub, tmp_path / "cache"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not hub.downloads("model.safetensors") and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (143, "")
    assert len(err.splitlines()) == 1 and "SIGTERM" in err
    files = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert "tokenizer.json" in files
    assert not [name for name in files if name.endswith((".incomplete", ".safetensors"))]
    assert not (tmp_path / "ck").exists()
