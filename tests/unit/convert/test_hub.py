"""What is fetched from a hub, from which revision, and what a download can fail for."""

import re
import shutil

import huggingface_hub.constants
import pytest
from safetensors.numpy import load_file, save_file

from engine.convert.conversion import understand
from engine.convert.hub import fetch
from engine.errors import AssayError
from engine.text.chat_template import TemplatePolicy
from tests.support import hub_server, tiny

NAME = "owner/tiny"
A_FILE = "GET /[0-9a-f]{64}"


@pytest.fixture
def whole(hub, tmp_path):
    """A repository with a single file of weights; its folder."""
    folder = tiny.write_model(tmp_path / "whole")
    hub.add(NAME, folder)
    return folder


def same_files(fetched, folder) -> set[str]:
    """Names of the files in a fetched folder, each of which is as in the other folder."""
    names = {str(path.relative_to(fetched)) for path in fetched.rglob("*")}
    assert all((fetched / name).read_bytes() == (folder / name).read_bytes() for name in names)
    return names


def refusal(hub_cache, *arguments, **options) -> str:
    """The one line with which a fetch fails; no weights are to be seen in the cache."""
    with pytest.raises(AssayError) as caught:
        fetch(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert hub_server.SIGNATURE not in str(caught.value)
    assert list(hub_cache.rglob("*.safetensors")) == []
    return str(caught.value)


def test_weights_configs_and_tokenizer_are_fetched_and_no_code_or_pickle(hub, tiny_folder):
    commit = hub.add(NAME, tiny_folder)
    source = fetch(NAME, None)
    assert (source.name, source.revision) == (NAME, commit)
    code = {"modeling_own.py", "pytorch_model.bin", "optimizer.pt", "README.md"}
    here = {path.name for path in tiny_folder.iterdir()}
    assert same_files(source.folder, tiny_folder) == here - code
    contents = "|".join(re.escape(name) for name in code)
    assert not [path for path in hub.requests if re.search(contents, path)]
    for name in ("pytorch_model.bin", "optimizer.pt"):
        assert hub.downloads(name) == []


def test_a_head_in_a_file_of_its_own_is_fetched(hub, tmp_path):
    folder = tiny.write_model(tmp_path / "own")
    weights = load_file(folder / "model.safetensors")
    head = {"v_head.summary.weight": weights.pop("score.weight")}
    save_file(weights, folder / "model.safetensors")
    save_file(head, folder / "value_head.safetensors")
    hub.add(NAME, folder)
    same_files(fetch(NAME, None).folder, folder)
    assert len(hub.downloads("value_head.safetensors")) == 1


def test_what_is_in_the_cache_is_not_fetched_again_and_needs_no_hub(hub, tiny_folder, monkeypatch):
    hub.add(NAME, tiny_folder)
    first = fetch(NAME, None)
    before = len(hub.requests)
    assert fetch(NAME, None, lambda source: None) == first
    assert len(hub.requests) == before + 1  # which commit is the main branch?
    assert fetch(NAME, first.revision) == first
    assert len(hub.requests) == before + 1
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert fetch(NAME, None) == first


def unreachable(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")


def gated(hub, monkeypatch):
    hub.repositories[NAME].gated = 403


def well(hub, monkeypatch):
    pass


def broken_off(hub, monkeypatch):
    hub.breaks(A_FILE, after=100)


AGAIN = "run it again"
NOTHING = ".*{url}/owner/other"
FAILURES = {
    "no repository": ("owner/other", None, well, NOTHING),
    "no tag": (NAME, "v2", well, "no revision 'v2'"),
    "gated": (NAME, None, gated, "gated; .*{url}/owner/tiny"),
    "no network": (NAME, None, unreachable, "http://127.0.0.1:9 .*{cache}"),
    "broken off": (NAME, None, broken_off, rf"the download failed .*; {AGAIN}"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_fails_is_one_line_that_says_what_to_do(hub, whole, hub_cache, monkeypatch, case):
    source, revision, happens, line = FAILURES[case]
    happens(hub, monkeypatch)
    line = line.replace("{url}", hub.url).replace("{cache}", str(hub_cache))
    assert re.match(f"{source}: {line}", refusal(hub_cache, source, revision))


def test_weights_that_are_not_the_whole_model_are_refused_before_any_is_fetched(
    hub, tmp_path, hub_cache
):
    folder = tiny.write_model(tmp_path / "damaged")
    shutil.copy(folder / "model.safetensors", folder / "score.safetensors")
    hub.add(NAME, folder)
    message = ".*score"
    assert re.match(rf"{NAME} at \w+: {message}", refusal(hub_cache, NAME, None))
    assert hub.downloads("value_head.safetensors") == []


def test_weights_of_another_size_than_published_are_refused(tmp_path):
    folder = tiny.write_model(tmp_path / "whole")
    held = sum(tensor.nbytes for tensor in load_file(folder / "model.safetensors").values())
    source, policy = fetch(str(folder), None), TemplatePolicy(bos="template", date=None)
    assert understand(source, policy=policy, tensor_bytes=held)
    with pytest.raises(AssayError, match=f"{held:,} bytes of tensors; published: {held + 4:,}"):
        understand(source, policy=policy, tensor_bytes=held + 4)
