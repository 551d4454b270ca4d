"""Loading a tokenizer: the plain class is loaded by itself, all others by AutoTokenizer."""

import json
import shutil

import pytest
from transformers import AutoTokenizer, TokenizersBackend

from engine.text import tokenizer
from engine.text.tokenizer import load_tokenizer
from tests.support.folders import edit_json


@pytest.fixture
def folder(checkpoint, tmp_path):
    copy = tmp_path / "tokenizer"
    shutil.copytree(checkpoint().path / "tokenizer", copy)
    return copy


def contents(loaded):
    state = {k: str(v) for k, v in loaded.init_kwargs.items() if k != "tokenizer_object"}
    return type(loaded), loaded.backend_tokenizer.to_str(), state, loaded.chat_template


def test_the_plain_class_gives_what_auto_tokenizer_gives(folder):
    named = json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"]
    assert named == TokenizersBackend.__name__  # as transformers writes it
    assert tokenizer._class_of(folder) is TokenizersBackend
    expected = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    assert contents(load_tokenizer(folder)) == contents(expected)


@pytest.mark.parametrize(
    "changes",
    [{"tokenizer_class": "GemmaTokenizer"}, {"auto_map": {"AutoTokenizer": [None, "own.Own"]}}],
)
def test_another_class_is_left_to_auto_tokenizer(folder, changes):
    edit_json(folder / "tokenizer_config.json", **changes)
    assert tokenizer._class_of(folder) is AutoTokenizer


def test_a_model_beside_its_tokenizer_is_left_to_auto_tokenizer(folder):
    (folder / "config.json").write_text('{"model_type": "gemma2"}')
    assert tokenizer._class_of(folder) is AutoTokenizer
