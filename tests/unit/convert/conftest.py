"""A small Hugging Face folder, saved once a session; each test damages a copy of its own."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.checkpoint.card import Checkpoint
from tests.support import folders, hub_server, tiny, torch_models

MODEL = "gqa"


@pytest.fixture(scope="session")
def published(tmp_path_factory) -> Path:
    """The folder itself: read it, copy it, leave it as it is."""
    return torch_models.save(torch_models.build(MODEL), tmp_path_factory.mktemp("published") / "hf")


@pytest.fixture
def folder(published, tmp_path) -> Path:
    """A copy to damage."""
    return shutil.copytree(published, tmp_path / "hf")


@pytest.fixture(scope="session")
def checkpoint(published, tmp_path_factory) -> Checkpoint:
    """The folder converted."""
    return folders.convert(published, tmp_path_factory.mktemp("converted") / "checkpoint")


@pytest.fixture
def hub_cache(tmp_path) -> Iterator[Path]:
    """The cache of the hub's client: after the test it holds no file that is not whole."""
    yield tmp_path / "cache"
    assert list((tmp_path / "cache").rglob("*.incomplete")) == []


@pytest.fixture
def hub(monkeypatch, hub_cache) -> Iterator[hub_server.Hub]:
    """A hub of this machine, to which the hub's client is pointed; the client never waits."""
    for module in ("file_download", "utils._http"):
        monkeypatch.setattr(f"huggingface_hub.{module}.time", SimpleNamespace(sleep=lambda _: None))
    with hub_server.running() as running:
        hub_server.point(monkeypatch, running, hub_cache)
        yield running


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    """A tiny model in two shards, beside files that nobody may fetch; not to be changed."""
    folder = tiny.write_model(tmp_path_factory.mktemp("tiny") / "hf")
    torch_models.shard(folder)
    for name in ("modeling_own.py", "pytorch_model.bin", "optimizer.pt", "README.md"):
        (folder / name).write_text("never fetched")
    return folder
