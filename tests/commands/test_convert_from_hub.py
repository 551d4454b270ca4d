"""`assay convert` of a hub id: the same checkpoint as from the folder, and an orderly end."""

import json
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


def test_an_unknown_architecture_is_refused_before_its_weights_are_fetched(
    command, hub, tmp_path, monkeypatch
):
    folder = tiny.write_model(tmp_path / "tiny-rm")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    hub.add(NAME, folder)
    hub_server.point(monkeypatch, hub, tmp_path / "cache")
    line = command("convert", f"--source={NAME}", f"--checkpoint={tmp_path / 'fetched'}").refusal()
    assert "mamba" in line
    assert hub.downloads("model.safetensors") == []
