"""What is fetched from a hub, from which revision, how it goes on after a lost connection."""

import json
import os
import re
import shutil
import signal
import threading
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest

from engine.convert import downloads
from engine.convert.hub import fetch, fetch_config
from engine.errors import AssayError
from engine.progress import progress
from tests.support import hub_server, tiny

NAME = "owner/tiny"
SHARDS = ("a.safetensors", "b.safetensors")
LARGE = 12 * 2**20  # more than what the client writes at once, 10 MiB


@pytest.fixture
def large(hub, tmp_path):
    """A repository whose weights are 12 MiB of noise: its folder."""
    folder = tiny.write_model(tmp_path / "large")
    noise = np.random.default_rng(0).bytes(LARGE)
    (folder / "model.safetensors").write_bytes(noise)
    hub.add(NAME, folder)
    return folder


def same_files(fetched, folder) -> set[str]:
    """Names of the files in a fetched folder, each of which is as in the other folder."""
    names = {str(path.relative_to(fetched)) for path in fetched.rglob("*")}
    assert all((fetched / name).read_bytes() == (folder / name).read_bytes() for name in names)
    return names


def test_weights_configs_and_tokenizer_are_fetched_and_nothing_else_is_asked_for(hub, tiny_folder):
    commit = hub.add(NAME, tiny_folder)
    source = fetch(NAME, None)
    assert (source.name, source.revision) == (NAME, commit)
    code = {"modeling_own.py", "pytorch_model.bin", "optimizer.pt", "README.md"}
    here = {path.name for path in tiny_folder.iterdir()}
    assert same_files(source.folder, tiny_folder) == here - code
    assert set(SHARDS) < here
    assert all("never fetched" not in path.read_text() for path in source.folder.glob("*.json"))
    contents = "|".join(re.escape(name) for name in code)
    assert not [one for one in hub.asked if re.search(contents, one.path)]
    for name in ("pytorch_model.bin", "optimizer.pt"):
        assert hub.downloads(name) == []
    assert {one.authorization for one in hub.asked} == {""}  # no token of its own


def test_an_index_of_the_single_file_and_copies_of_it_hinder_no_download(hub, tmp_path):
    folder = tiny.write_model(tmp_path / "hf")
    weight_map = {"weight_map": {"model.norm.weight": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(weight_map))
    for name in ("consolidated.safetensors", "original/consolidated.00.pth"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("never fetched")
    hub.add(NAME, folder)
    source = fetch(NAME, None)
    assert "model.safetensors" in same_files(source.folder, folder)
    assert not list(source.folder.rglob("consolidated*"))


def test_another_cache_is_filled_and_used_instead_of_the_hubs(hub, tiny_folder, tmp_path):
    hub.add(NAME, tiny_folder)
    another, shared = tmp_path / "another", Path(huggingface_hub.constants.HF_HUB_CACHE)
    source = fetch(NAME, None, cache=another)
    assert source.folder.is_relative_to(another)
    assert not list(shared.glob("models--*"))
    told = []
    assert fetch(NAME, None, lambda hf, cached: told.append(cached), cache=another) == source
    assert told[0] > 0
    assert len(hub.downloads("a.safetensors")) == 1


def test_the_users_token_reaches_the_hub_and_not_the_host_of_the_files(
    hub, tiny_folder, monkeypatch
):
    hub.add(NAME, tiny_folder)
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    fetch(NAME, None)
    of_files = hub.downloads("a.safetensors") + hub.downloads("b.safetensors")
    assert len(of_files) == 2
    assert {one.authorization for one in of_files} == {""}
    rest = [one for one in hub.asked if one not in of_files]
    assert {one.authorization for one in rest} == {"Bearer hf_of_the_user"}


def test_a_branch_and_a_commit_are_fetched_as_they_are_named(hub, tiny_folder, tmp_path):
    other = tiny.write_model(tmp_path / "other", seed=1)
    first, second = hub.add(NAME, tiny_folder), hub.add(NAME, other, "feature/seed-1")
    for revision, commit, folder in (
        ("feature/seed-1", second, other),
        (second, second, other),
        ("main", first, tiny_folder),
        (first, first, tiny_folder),
    ):
        source = fetch(NAME, revision)
        assert source.revision == commit
        same_files(source.folder, folder)


def test_a_config_is_fetched_alone(hub, tiny_folder):
    hub.add(NAME, tiny_folder)
    assert fetch_config(NAME)["model_type"] == "llama"
    files = [one.path for one in hub.asked if "/resolve" in one.path]
    assert [path for path in files if not path.endswith("/config.json")] == []


def test_what_is_in_the_cache_is_not_fetched_again_and_needs_no_hub(hub, tiny_folder, monkeypatch):
    hub.add(NAME, tiny_folder)
    first = fetch(NAME, None)
    before = len(hub.asked)
    told = []
    assert fetch(NAME, None, lambda hf, cached: told.append(cached)) == first
    assert told == [sum((tiny_folder / name).stat().st_size for name in SHARDS)]
    assert len(hub.asked) == before + 1  # which commit is the main branch?
    assert fetch(NAME, first.revision) == first
    assert len(hub.asked) == before + 1
    with monkeypatch.context() as offline:
        offline.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        assert fetch(NAME, None) == first
    hub_server.point(monkeypatch, hub, first.folder.parents[2])
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert fetch(NAME, None) == first


@pytest.mark.parametrize("downloaded", [True, False])
def test_a_cache_that_lists_no_files_is_used(hub_cache, tiny_folder, monkeypatch, downloaded):
    """As one that an older client has filled."""
    whole = hub_cache / "models--owner--tiny" / "snapshots" / ("0" * 40)
    shutil.copytree(tiny_folder, whole)
    size = sum((whole / name).stat().st_size for name in SHARDS)
    if not downloaded:
        for name in SHARDS:
            (whole / name).unlink()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub_cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    told = []
    fetch(NAME, "0" * 40, lambda hf, cached: told.append(cached))
    assert told == [size if downloaded else 0]


@pytest.mark.parametrize("reset", [False, True])
def test_a_lost_connection_is_resumed_where_it_broke_off(hub, large, capsys, reset):
    hub.fails("GET /[0-9a-f]{64}", times=1, after=LARGE - 2**20, reset=reset)
    source = fetch(NAME, None)
    same_files(source.folder, large)
    first, resumed = hub.downloads("model.safetensors")
    assert (first.range, resumed.range) == ("", f"bytes={10 * 2**20}-")
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"{NAME}: Error while downloading from \S+: .+ Trying to resume .+", line)
    assert hub_server.SIGNATURE not in line


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("GET .*/tree/", {"status": 503}),
        ("GET /[0-9a-f]{64}", {"status": 429, "headers": {"Retry-After": "0"}}),
    ],
)
def test_a_busy_hub_is_asked_again_and_the_wait_is_told(hub, tiny_folder, capsys, pattern, fault):
    hub.add(NAME, tiny_folder)
    hub.fails(pattern, times=1, **fault)
    same_files(fetch(NAME, None).folder, tiny_folder)
    refused, waits = capsys.readouterr().err.splitlines()
    assert refused.startswith(f"{NAME}: HTTP Error {fault['status']} thrown while requesting ")
    assert hub_server.SIGNATURE not in refused
    assert re.fullmatch(rf"{NAME}: .* in 1s .*|{NAME}: Rate limited. Waiting 1.0s .*", waits)


def test_progress_has_bytes_and_rate_where_standard_error_is_no_terminal(
    hub, large, capsys, monkeypatch
):
    monkeypatch.setattr(
        downloads,
        "progress",
        lambda total, unit, *, what, **delay: progress(total, unit, what=what),
    )
    fetch(NAME, None)
    bars = capsys.readouterr().err.replace("\r", "\n").splitlines()
    last = {bar.split(":")[0]: bar for bar in bars if bar}
    assert set(last) == {f"downloading {NAME}", f"checking {NAME}"}
    for bar in last.values():
        assert re.search(r"100%\|.*\| 12\.6M/12\.6M \[\d\d:\d\d<00:00, .* B/s\]", bar), bar


def test_other_bytes_of_the_same_size_are_noticed_and_not_kept(hub, large):
    content = (large / "model.safetensors").read_bytes()
    damaged = bytearray(content)
    damaged[LARGE // 2] ^= 1
    hub.served[hub_server.sha256(content)] = bytes(damaged)
    with pytest.raises(AssayError) as caught:
        fetch(NAME, None)
    what = "model.safetensors: other bytes than the hub states (sha256); removed, run it again"
    assert str(caught.value) == f"{NAME}: {what}"
    hub.served.clear()
    same_files(fetch(NAME, None).folder, large)


def test_an_interrupted_download_ends_at_once_and_keeps_whole_files(hub, large, hub_cache):
    hub.fails("GET /[0-9a-f]{64}", pause=0.1)  # twenty seconds for the whole
    timer = threading.Timer(0.7, os.kill, [os.getpid(), signal.SIGINT])
    # Ctrl-C raises, also where this process was started in the background of a shell.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            fetch(NAME, None, lambda hf, cached: timer.start())
    finally:
        signal.signal(signal.SIGINT, before)
    assert not list(hub_cache.rglob("model.safetensors"))
    assert list(hub_cache.rglob("tokenizer.json"))


def test_a_file_is_compared_with_its_name_where_the_cache_links_it_to_another(tmp_path):
    content = b"the true bytes"
    shared = tmp_path / "shared" / hub_server.sha256(b"a hash of another kind")
    blob = tmp_path / "blobs" / hub_server.sha256(content)
    pointer = tmp_path / "snapshots" / "commit" / "model.safetensors"
    for path in (shared, blob, pointer):
        path.parent.mkdir(parents=True)
    shared.write_bytes(content)
    blob.symlink_to(shared)
    pointer.symlink_to(Path("../../blobs") / blob.name)
    downloads.verify(NAME, [pointer])
    shared.write_bytes(content[::-1])
    with pytest.raises(AssayError, match="other bytes than the hub states"):
        downloads.verify(NAME, [pointer])
    assert not any(path.is_symlink() or path.exists() for path in (shared, blob, pointer))
