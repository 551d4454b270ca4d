"""Where a reproduction takes its models from, and what `--keep=none` may remove."""

import json
from types import SimpleNamespace

import pytest

from configs import known_models
from launch.reproduction import sources
from tests.support import tiny
from tests.support.reproduction import SKYWORK, SPEC

OTHER = known_models.KNOWN[SKYWORK]


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A call with --keep=none that asks for one model, and a hub's cache of its own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    root = tmp_path / "root"
    one = type("Bare", (), {"root": root, "keep": "none", "source_dir": None})()
    one.config = SimpleNamespace(verify="auto", check_identity=False, check_memory=True)
    one.checkpoint = lambda spec: root / "checkpoints" / spec.slug
    return one


def repository(cache):
    return cache / "models--Ray2333--GRM-gemma2-2B-rewardmodel-ft"


def snapshot(cache, *names, index=None):
    """A revision of R-Gem-2B in a cache, with files of five bytes."""
    folder = repository(cache) / "snapshots" / (SPEC.revision or "0" * 40)
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(b"12345")
    if index:
        text = json.dumps({"weight_map": {name: name for name in index}})
        (folder / "model.safetensors.index.json").write_text(text)
    return folder


def test_keep_none_downloads_below_the_root_and_removes_nothing_else(bare, tmp_path):
    """Not even where a download into the hub's cache failed half-way before."""
    snapshot(tmp_path / "hub", "a.safetensors", index=["a.safetensors", "b.safetensors"])
    assert sources.cache_of(bare, SPEC) == tmp_path / "root" / "downloads"
    snapshot(tmp_path / "root" / "downloads", "model.safetensors")
    assert sources.is_fetched(bare, SPEC)
    assert sources.remove(bare, SPEC) == 5
    assert not sources.is_fetched(bare, SPEC)
    assert repository(tmp_path / "hub").exists()


def test_a_whole_model_of_the_hubs_cache_is_used_and_stays(bare, tmp_path):
    snapshot(tmp_path / "hub", "a.safetensors", index=["a.safetensors"])
    assert sources.cache_of(bare, SPEC) == tmp_path / "hub"
    assert sources.remove(bare, SPEC) == 0
    assert repository(tmp_path / "hub").exists()


def test_a_link_and_what_it_leads_to_stay(bare, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    snapshot(elsewhere, "model.safetensors")
    (tmp_path / "root" / "checkpoints").mkdir(parents=True)
    bare.checkpoint(SPEC).symlink_to(elsewhere)
    (tmp_path / "root" / "downloads").symlink_to(elsewhere)
    assert sources.remove(bare, SPEC) == 0
    assert repository(elsewhere).exists()


def test_what_a_killed_conversion_left_is_removed_and_nothing_else(bare, tmp_path):
    """The model of the next version has the same name up to its end."""
    tiny.write_model(tmp_path / "models" / SKYWORK, seed=1)
    bare.source_dir = tmp_path / "models"
    place = bare.checkpoint(OTHER).parent
    for name in (f".{SKYWORK}-ab12cd34", f".{SKYWORK}-v0.2-ab12cd34"):
        (place / name / "decoder").mkdir(parents=True)
    assert sources.converted(bare, OTHER).card.slug == SKYWORK
    assert {path.name for path in place.iterdir()} == {SKYWORK, f".{SKYWORK}-v0.2-ab12cd34"}
