"""Where a reproduction takes its models from, and what `--keep=none` may remove."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import pytest

from configs import known_models
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.text.chat_template import TemplatePolicy
from launch.reproduction import sources
from launch.reproduction.conventions import policy_of
from tests.support import folders, tiny
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


def test_links_are_removed_and_not_what_they_lead_to(bare, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    snapshot(elsewhere, "model.safetensors")
    (tmp_path / "root" / "checkpoints").mkdir(parents=True)
    bare.checkpoint(SPEC).symlink_to(elsewhere)
    (tmp_path / "root" / "downloads").symlink_to(elsewhere)
    assert sources.remove(bare, SPEC) == 0
    assert not bare.checkpoint(SPEC).is_symlink()
    assert repository(elsewhere).exists()


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A folder with one tiny model, and the checkpoint that is made of it."""
    folder = tmp_path_factory.mktemp("published")
    source = tiny.write_model(folder / "models" / SKYWORK, seed=1)
    checkpoint = folders.convert(source, folder / "checkpoint", SKYWORK, bos="template")
    return folder, checkpoint


@pytest.fixture
def one(bare, published, tmp_path):
    """A call with that folder and a copy of that checkpoint."""
    folder, checkpoint = published
    shutil.copytree(folder / "models", tmp_path / "models")
    shutil.copytree(checkpoint.path, bare.checkpoint(OTHER))
    bare.source_dir = tmp_path / "models"
    change(bare, source=str(tmp_path / "models" / SKYWORK), policy=policy_of(OTHER))
    return bare


def change(call, **fields):
    """Rewrites fields of the card."""
    folder = call.checkpoint(OTHER)
    card = dataclasses.replace(Checkpoint.open(folder).card, **fields)
    (folder / "model.json").write_text(card.to_json())


def refused(call, message):
    with pytest.raises(AssayError, match=message) as error:
        sources.converted(call, OTHER)
    assert "\n" not in str(error.value)


def test_the_checkpoint_of_the_folder_is_taken(one):
    assert sources.converted(one, OTHER).card.slug == SKYWORK
    change(one, source="/elsewhere")  # its bytes are the folder's
    assert sources.converted(one, OTHER).card.slug == SKYWORK


def test_what_a_killed_conversion_left_is_removed_and_nothing_else(one):
    """The model of the next version has the same name up to its end."""
    place = one.checkpoint(OTHER).parent
    shutil.rmtree(one.checkpoint(OTHER))
    for name in (f".{SKYWORK}-ab12cd34", f".{SKYWORK}-v0.2-ab12cd34"):
        (place / name / "decoder").mkdir(parents=True)
    assert sources.converted(one, OTHER).card.slug == SKYWORK
    assert {path.name for path in place.iterdir()} == {SKYWORK, f".{SKYWORK}-v0.2-ab12cd34"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"policy": TemplatePolicy(bos="double", date=None)}, "policy="),
        ({"slug": "other"}, "slug='other'; allowed: "),
        ({"files": {"a-00001-of-00002.safetensors": "0"}}, "converted from a-00001-of-00002.safe"),
    ],
)
def test_a_checkpoint_that_was_converted_otherwise_is_refused(one, fields, said):
    change(one, **fields)
    refused(one, said)


def test_weights_of_the_same_size_are_told_apart(one):
    source = one.source_dir / SKYWORK
    sources.converted(one, OTHER)
    sources.check_folder(one, OTHER)
    shutil.rmtree(source)
    tiny.write_model(source, seed=2)
    refused(one, r"converted from another model\.safetensors than that of ")
    with pytest.raises(AssayError, match=r"converted from another model\.safetensors "):
        sources.check_folder(one, OTHER)


def test_a_checkpoint_of_other_weights_than_the_results_is_refused(one):
    sources.converted(one, OTHER)
    kept = sources.kept_card(one, OTHER)
    shutil.rmtree(one.source_dir / SKYWORK)
    shutil.rmtree(one.checkpoint(OTHER))
    tiny.write_model(one.source_dir / SKYWORK, seed=2)
    for _ in range(2):
        refused(one, "other weights than those of .*, which results below .* were computed from")
    assert sources.kept_card(one, OTHER) == kept


def test_a_checkpoint_of_nobody_knows_what_is_refused(one):
    """Without --source-dir the model is that of the hub; a folder of it may be gone."""
    shutil.rmtree(one.source_dir / SKYWORK)
    assert sources.converted(one, OTHER)
    one.source_dir = None
    refused(one, f"source='.*'; allowed: '{OTHER.hub_id}', or --source-dir with the folder")
    change(one, source=OTHER.hub_id)
    assert sources.converted(one, OTHER)


def test_a_checkpoint_without_the_soft_cap_is_not_in_our_conventions():
    head = SimpleNamespace(kind="linear")
    card = SimpleNamespace(
        slug=OTHER.slug,
        head=head,
        policy=policy_of(OTHER),
        revision=None,
        decoder=SimpleNamespace(),
    )
    card.decoder.attention_softcap = 50.0
    assert sources.differences(card, OTHER, identity=True) == []
    card.decoder.attention_softcap = None
    assert sources.differences(card, OTHER, identity=True) == [("attention_softcap", None, 50.0)]
