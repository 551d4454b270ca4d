"""A small Hugging Face folder, saved once a session; each test damages a copy of its own."""

import shutil
from pathlib import Path

import pytest

from engine.checkpoint.card import Checkpoint
from tests.support import folders, torch_models

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
