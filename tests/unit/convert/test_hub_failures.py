"""What a download can fail for: one line that says what, where, what to do; and a clean cache."""

import re
import resource
import socket

import huggingface_hub.constants
import pytest
from safetensors.numpy import load_file

from engine.convert import patience
from engine.convert.hub import fetch
from engine.errors import AssayError
from tests.support import hub_server, tiny

NAME = "owner/tiny"
A_FILE = "GET /[0-9a-f]{64}"
AGAIN = "run it again, complete files are kept"


def refusal(hub_cache, *arguments, **options) -> str:
    """The one line with which a fetch fails; no weights are to be seen in the cache."""
    with pytest.raises(AssayError) as caught:
        fetch(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert hub_server.SIGNATURE not in str(caught.value)
    assert list(hub_cache.rglob("*.safetensors")) == []
    return str(caught.value)


@pytest.fixture
def whole(hub, tmp_path):
    """A repository with a single file of weights; its folder."""
    folder = tiny.write_model(tmp_path / "whole")
    hub.add(NAME, folder)
    return folder


def test_a_repository_that_is_not_there(hub, whole, hub_cache):
    assert refusal(hub_cache, "owner/other", None) == (
        f"source='owner/other': no such folder, and no repository {hub.url}/owner/other, unless a "
        "private one; allowed: an existing folder, a hub id owner/name, or after `hf auth login` a "
        "repository that the login may read"
    )


def test_a_name_that_no_repository_can_have(hub, hub_cache):
    assert refusal(hub_cache, "owner/not a name", None) == (
        "source='owner/not a name'; allowed: an existing folder or a hub id owner/name"
    )
    assert hub.asked == []


@pytest.mark.parametrize("revision", ["v2", "0" * 40, None])
def test_a_revision_that_is_not_there(hub, whole, hub_cache, revision):
    del hub.repositories[NAME].names["main"]
    assert refusal(hub_cache, NAME, revision) == (
        f"{NAME}: no revision '{revision or 'main'}'; allowed: a commit, tag or branch of "
        f"{hub.url}/{NAME}"
    )


@pytest.mark.parametrize(
    ("status", "who"), [(401, "nobody is logged in"), (403, "the login has none")]
)
def test_a_gated_repository(hub, whole, hub_cache, status, who):
    hub.repositories[NAME].gated = status
    assert refusal(hub_cache, NAME, None) == (
        f"{NAME}: gated, and {who}; accept the licence at {hub.url}/{NAME} and log in with "
        "`hf auth login`"
    )


def test_a_token_that_the_hub_refuses(hub, whole, hub_cache):
    message = "Invalid credentials in Authorization header"
    hub.fails("GET /api", status=401, headers={"X-Error-Message": message})
    assert refusal(hub_cache, NAME, None) == (
        f"{NAME}: the hub refuses the login (401); log in with `hf auth login`, or unset HF_TOKEN"
    )


def test_a_file_that_its_host_forbids(hub, whole, hub_cache):
    hub.fails(A_FILE, status=403)
    assert re.fullmatch(
        rf"{NAME}: the hub forbids {hub.content_url}/[0-9a-f]{{64}} \(403\); log in with "
        "`hf auth login` and an account that may read it",
        refusal(hub_cache, NAME, None),
    )


def test_a_hub_that_asks_for_a_longer_wait_than_anyone_has(hub, whole, hub_cache, capsys):
    hub.fails(A_FILE, status=429, headers={"Retry-After": "3600"})
    assert refusal(hub_cache, NAME, None) == (
        f"{NAME}: the hub answers 429, too many requests and asks to wait 3,600 s; run it again "
        "later, complete files are kept"
    )
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("pattern", ["GET /api", "HEAD ", A_FILE])
def test_a_hub_that_stays_busy_is_given_up_after_a_bounded_time(
    hub, whole, hub_cache, capsys, monkeypatch, pattern
):
    monkeypatch.setattr(patience, "LONGEST_S", 0.5)
    hub.fails(pattern, status=503)
    assert refusal(hub_cache, NAME, None) == (
        f"{NAME}: the hub answers 503, unavailable; run it again later, complete files are kept"
    )
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert {re.sub(r"\d+ s", "", line) for line in lines} == {
        f"{NAME}: the hub answers 503, unavailable; trying again in , for at most 0 min"
    }
    hub.forget()
    assert fetch(NAME, None).folder.is_dir()


@pytest.mark.parametrize("revision", [None, "0" * 40])
def test_a_hub_out_of_reach(hub, hub_cache, monkeypatch, capsys, revision):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
    assert re.fullmatch(
        rf"{NAME}: {url} cannot be reached \(.*Connection refused\), and the hub's cache does not "
        "hold the model; check the network and HF_ENDPOINT, or name an existing folder",
        refusal(hub_cache, NAME, revision),
    )
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("revision", [None, "v1"])
def test_a_process_that_must_stay_offline(hub, whole, hub_cache, monkeypatch, revision):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    what = "the revision 'v1'" if revision else "the model"
    assert refusal(hub_cache, NAME, revision) == (
        f"{NAME}: HF_HUB_OFFLINE is set, and the hub's cache {hub_cache} does not hold {what}; "
        "unset it, or name an existing folder"
    )


def test_a_download_that_only_began_is_not_taken_for_the_model(hub, whole, hub_cache, monkeypatch):
    hub.fails(A_FILE, status=403)
    refusal(hub_cache, NAME, None)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set, and the hub's cache" in refusal(hub_cache, NAME, None)


def test_a_hub_that_hangs(hub, whole, hub_cache, monkeypatch):
    monkeypatch.setattr(patience, "_SILENT_S", 0.2)
    hub.fails("GET /api", status=200, pause=0.5)
    assert refusal(hub_cache, NAME, None) == f"{NAME}: the download broke off (timed out); {AGAIN}"


@pytest.mark.parametrize("less", [1, -1])
def test_a_file_of_another_size_than_announced(hub, whole, hub_cache, less):
    size = (whole / "model.safetensors").stat().st_size
    hub.stated["model.safetensors"] = size - less
    assert refusal(hub_cache, NAME, None) == (
        f"{NAME}: a file has {size:,} bytes; announced: {size - less:,}; it was not kept, run it "
        "again"
    )
    hub.stated.clear()
    assert fetch(NAME, None).folder.is_dir()


def test_a_connection_that_breaks_again_and_again(hub, whole, hub_cache, monkeypatch):
    waits = []
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", waits.append)
    hub.fails(A_FILE, after=100)
    assert re.fullmatch(
        rf"{NAME}: the download broke off \(peer closed connection .*\); {AGAIN}",
        refusal(hub_cache, NAME, None),
    )
    assert len(waits) == 5


def test_a_disk_without_room(hub, tmp_path, hub_cache):
    folder = tiny.write_model(tmp_path / "large")
    (folder / "model.safetensors").write_bytes(bytes(3 * 2**20))
    hub.add(NAME, folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
    try:
        message = refusal(hub_cache, NAME, None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert message == (
        f"{NAME}: cannot write to the hub's cache {hub_cache} (File too large); make room there, "
        "or set HF_HUB_CACHE to another folder; complete files are kept"
    )
    assert fetch(NAME, None).folder.is_dir()


def test_what_is_no_hub_at_all(hub, hub_cache):
    hub.fails("GET /api", status=200, headers={"Content-Type": "text/html"})
    message = rf"{NAME}: the download failed \(JSONDecodeError: .*\)"
    assert re.fullmatch(message, refusal(hub_cache, NAME, None))


def without_weights(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def without_a_shard(folder):
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    text = '{"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}'
    (folder / "model.safetensors.index.json").write_text(text)


def with_other_weights(folder):
    weights = (folder / "model.safetensors").read_bytes()
    without_a_shard(folder)
    for name in ("b.safetensors", "model.safetensors"):
        (folder / name).write_bytes(weights)


def written(name, text="never fetched"):
    return lambda folder: (folder / name).write_text(text)


def an_adapter(folder):
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    written("adapter_config.json", '{"base_model_name_or_path": "org/base"}')(folder)
    (folder / "config.json").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            without_weights,
            r"at \w+: no model\.safetensors and no .*index\.json; pickled weights",
        ),
        (
            without_a_shard,
            r"at \w+: shard b\.safetensors is missing; model\.safetensors\.index\.json names it",
        ),
        (
            with_other_weights,
            r"at \w+: weights that nothing reads, perhaps a head: model\.safetensors; only the f",
        ),
        (
            written("value_head.safetensors"),
            r"at \w+: weights that nothing reads, perhaps a head: value_head\.safetensors; only",
        ),
        (written("value_head.bin"), r"at \w+: weights that .* head: value_head\.bin; only"),
        (
            written("adapter_config.json", '{"base_model_name_or_path": "org/base"}'),
            r"at \w+: an adapter on base 'org/base' \(adapter_config\.json\) beside whole weights",
        ),
        (
            an_adapter,
            r"at \w+: an adapter on base 'org/base' \(adapter_config\.json, "
            r"adapter_model\.safetensors\), no whole model; merge it",
        ),
    ],
)
def test_weights_that_are_not_the_whole_model_are_refused_before_any_is_fetched(
    hub, tmp_path, hub_cache, change, message
):
    folder = tiny.write_model(tmp_path / "damaged")
    change(folder)
    hub.add(NAME, folder)
    assert re.match(f"{NAME} {message}", refusal(hub_cache, NAME, None))
    assert [path.name for path in folder.iterdir() if hub.downloads(path.name)] == []


def test_weights_of_another_size_than_published_are_not_fetched(hub, whole, hub_cache):
    size = (whole / "model.safetensors").stat().st_size
    for published in (size - 2**21, size, 2 * size):  # a header has bytes too, at most 2**20
        message = f"files of {size:,} bytes; published: {published:,} bytes of tensors"
        told = refusal(hub_cache, NAME, None, tensor_bytes=published)
        assert re.fullmatch(rf"{NAME} at \w{{12}}: {message}", told)
    assert hub.downloads("model.safetensors") == []
    held = sum(tensor.nbytes for tensor in load_file(whole / "model.safetensors").values())
    assert fetch(NAME, None, tensor_bytes=held).folder.is_dir()
