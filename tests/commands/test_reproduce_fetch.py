"""`assay reproduce` without --source-dir: models come from a hub that speaks the hub's protocol."""

import json
import re

import pytest
from safetensors.numpy import load_file

from tests.support import hub_server, stand_ins, tiny
from tests.support.reproduction import GEMMA, SPEC, TINY

pytestmark = pytest.mark.slow

FILES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub of this machine with one model in two shards; the client's own cache is empty."""
    folder = tiny.write_model(tmp_path / "models" / GEMMA, seed=1)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    stand_ins.write_weights(folder, tensors, 2)
    with hub_server.running() as running:
        running.add(SPEC.hub_id, folder)
        hub_server.point(monkeypatch, running, tmp_path / "cache")
        yield running


def fingerprints(root):
    results = json.loads((root / "runs/paper/manifest.json").read_text())["results"]
    return {path: record["fingerprint"] for path, record in results.items() if record["complete"]}


def test_a_model_is_fetched_scored_and_removed_and_a_lost_download_goes_on(command, hub, tmp_path):
    """The first call ends when the second shard is refused, the second fetches that one alone."""
    root = tmp_path / "root"
    models = [f"--models={GEMMA}", *TINY, "--only=sweep", "--config.searched="]
    models += ["--config.check_memory=false"]
    arguments = [f"--root={root}", *models, "--keep=none"]
    second = (tmp_path / "models" / GEMMA / FILES[1]).read_bytes()
    hub.fails(f"GET /{hub_server.sha256(second)}", status=403, spared=1)  # but not of its header
    found = command("reproduce", *arguments)
    assert found.code == 1
    (row,) = [line for line in found.err if line.startswith("R-Gem-2B  ")]
    assert re.search(f"0/6 .*failed: {SPEC.hub_id}: ", row)
    cache = root / "downloads" / f"models--{SPEC.hub_id.replace('/', '--')}"
    assert [path.name for path in cache.rglob("*.safetensors")] == [FILES[0]]
    assert not list(cache.rglob("*.incomplete"))
    assert not (root / "checkpoints" / GEMMA).exists()
    hub.faults.clear()
    begun = [len(hub.downloads(name)) for name in FILES]
    found = command("reproduce", *arguments).fine()
    assert [len(hub.downloads(name)) for name in FILES] == [begun[0], begun[1] + 1]
    assert begun[0] == 1
    assert any(line.endswith("GiB removed (--keep=none)") for line in found.err)
    assert not cache.exists() and not (root / "checkpoints" / GEMMA).exists()
    assert not list((tmp_path / "cache").glob("models--*"))
    asked = len(hub.requests)
    again = command("reproduce", *arguments)
    assert "R-Gem-2B: complete already" in again.err
    assert len(hub.requests) == asked
    folders = tmp_path / "models"  # of a user: never removed
    before = sorted(folders.rglob("*"))
    local = [f"--root={tmp_path / 'local'}", f"--source-dir={folders}", *models, "--keep=none"]
    assert command("reproduce", *local).code == 0
    assert sorted(folders.rglob("*")) == before
    assert len(fingerprints(root)) == 3
    assert fingerprints(root) == fingerprints(tmp_path / "local")


def test_fetching_alone_takes_language_models_too(command, hub, tmp_path):
    """What --only=convert has fetched, a later call computes without the hub."""
    hub.add("google/gemma-2-2b-it", tiny.write_model(tmp_path / "lm", seed=3, head="lm"))
    root = tmp_path / "root"
    models = [f"--root={root}", f"--models={GEMMA}", *TINY]
    models += ["--config.language_models=gemma-2-2b-it", "--config.check_memory=false"]
    command("reproduce", *models, "--only=convert").fine()
    there = {path.name for path in (root / "checkpoints").iterdir()}
    assert there == {GEMMA, "gemma-2-2b-it"}
    planned = command("reproduce", *models, "--only=convert", "--plan", "--devices=cpu-8GB")
    assert sum("converted already" in line for line in planned.out) == 2
    hub.fails(".*", status=404)
    asked = len(hub.requests)
    computed = command("reproduce", *models, "--only=logprobs").fine()
    assert any(line.startswith("gemma-2-2b-it ") and "3/3" in line for line in computed.err)
    assert len(hub.requests) == asked
