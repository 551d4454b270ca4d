"""What a download can fail for: one line that says what, where, what to do; and a clean cache."""

import re
import resource

import huggingface_hub.constants
import pytest
from safetensors.numpy import load_file

from engine.convert import downloads
from engine.convert.hub import fetch
from engine.errors import AssayError
from tests.support import hub_server, tiny

NAME = "owner/tiny"
A_FILE = "GET /[0-9a-f]{64}"
AGAIN = "run it again later, complete files are kept"


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


def offline(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def unreachable(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")


def without_main(hub, monkeypatch):
    del hub.repositories[NAME].names["main"]


def gated(status):
    return lambda hub, monkeypatch: setattr(hub.repositories[NAME], "gated", status)


def fails(pattern, **fault):
    return lambda hub, monkeypatch: hub.fails(pattern, **fault)


def hangs(hub, monkeypatch):
    monkeypatch.setattr(downloads, "_SILENT_S", 0.2)
    hub.fails("GET /api", status=200, pause=0.5)


NOTHING = "no such folder, and no repository {url}/owner/other, unless a private one; allowed: an"
GATED = "gated; accept the licence at {url}/owner/tiny and log in with `hf auth login`$"
LOGIN = "log in with `hf auth login` and an account that may read it$"
MISSING = "and the hub's cache {cache} does not hold {what}; "
AUTHORITY = {"X-Error-Message": "Invalid credentials in Authorization header"}
FAILURES = {
    "no repository": ("owner/other", None, fails("-"), NOTHING),
    "no name": ("owner/not a name", None, fails("-"), "allowed: an existing folder or a hub id"),
    "no tag": (
        NAME,
        "v2",
        fails("-"),
        "no revision 'v2'; allowed: a commit, tag or branch of {url}",
    ),
    "no commit": (NAME, "0" * 40, fails("-"), f"no revision '{'0' * 40}'; allowed: a commit, tag"),
    "no main": (NAME, None, without_main, "no revision 'main'; allowed: a commit, tag or branch"),
    "gated, without login": (NAME, None, gated(401), GATED),
    "gated, with login": (NAME, None, gated(403), GATED),
    "a wrong token": (
        NAME,
        None,
        fails("GET /api", status=401, headers=AUTHORITY),
        f"the hub answers 401, Unauthorized, for {{url}}/api/.*; {LOGIN}",
    ),
    "a forbidden file": (
        NAME,
        None,
        fails(A_FILE, status=403),
        f"the hub answers 403, Forbidden, for {{content}}/[0-9a-f]*; {LOGIN}",
    ),
    "too many requests": (
        NAME,
        None,
        fails("GET /api", status=429),
        f"the hub answers 429, Too Many Requests, for {{url}}/api/.*; {AGAIN}$",
    ),
    "a status that Python does not know": (
        NAME,
        None,
        fails("GET /api", status=520),
        f"the hub answers 520, an error, for {{url}}/api/.*; {AGAIN}$",
    ),
    "busy, at a file": (
        NAME,
        None,
        fails(A_FILE, status=429, headers={"Retry-After": "3600"}),
        f"the hub answers 429, Too Many Requests, for {{content}}/[0-9a-f]*; {AGAIN}$",
    ),
    "no network": (
        NAME,
        None,
        unreachable,
        f"http://127.0.0.1:9 cannot be reached, {MISSING}check the network and HF_ENDPOINT",
    ),
    "offline": (NAME, None, offline, f"HF_HUB_OFFLINE is set, {MISSING}unset it, or name an"),
    "offline, a tag": (NAME, "v1", offline, f"HF_HUB_OFFLINE is set, {MISSING}unset it"),
    "no answer": (NAME, None, hangs, r"the download failed \(.*timed out.*\); " + AGAIN),
    "broken again and again": (
        NAME,
        None,
        fails(A_FILE, after=100),
        rf"the download failed \(.*peer closed connection .*\); {AGAIN}",
    ),
    "no hub": (
        NAME,
        None,
        fails("GET /api", status=200, headers={"Content-Type": "text/html"}),
        r"the download failed \(JSONDecodeError: .*\)",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_fails_is_one_line_that_says_what_to_do(hub, whole, hub_cache, monkeypatch, case):
    source, revision, happens, line = FAILURES[case]
    happens(hub, monkeypatch)
    what = f"the revision {revision!r}" if revision else "the model"
    place = {"url": hub.url, "content": hub.content_url, "cache": hub_cache, "what": what}
    for name, value in place.items():
        line = line.replace(f"{{{name}}}", str(value))
    assert re.match(f"{source}: {line}", refusal(hub_cache, source, revision))


def test_a_download_that_only_began_is_not_taken_for_the_model(hub, whole, hub_cache, monkeypatch):
    hub.fails(A_FILE, status=403)
    refusal(hub_cache, NAME, None)
    offline(hub, monkeypatch)
    assert "HF_HUB_OFFLINE is set, and the hub's cache" in refusal(hub_cache, NAME, None)


@pytest.mark.parametrize("less", [1, -1])
def test_a_file_of_another_size_than_announced_is_not_kept(hub, whole, hub_cache, less):
    size = (whole / "model.safetensors").stat().st_size
    hub.stated["model.safetensors"] = size - less
    told = refusal(hub_cache, NAME, None)
    assert f"file should be of size {size - less} but has size {size}" in told
    hub.stated.clear()
    assert fetch(NAME, None).folder.is_dir()


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
