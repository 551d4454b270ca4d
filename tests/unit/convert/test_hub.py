"""What the hub's cache holds of a model is known before its weights are downloaded."""

import shutil

import huggingface_hub.constants
import pytest

from engine.convert.hub import fetch
from tests.support import tiny

REVISION = "0" * 40


@pytest.mark.parametrize("downloaded", [True, False])
def test_weights_that_were_downloaded_before_are_counted(tmp_path, monkeypatch, downloaded):
    snapshot = tmp_path / "models--owner--name" / "snapshots" / REVISION
    shutil.copytree(tiny.write_model(tmp_path / "hf"), snapshot)
    weights = snapshot / "model.safetensors"
    size = weights.stat().st_size if downloaded else 0
    if not downloaded:
        weights.unlink()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    told = []
    fetch("owner/name", REVISION, lambda hf, cached: told.append((hf["model_type"], cached)))
    assert told == [("llama", size)]
