"""Loading a tokenizer: tokenizer.json as it is, or a line that says how to make one."""

import shutil

import pytest
import tokenizers

from engine.errors import AssayError
from engine.text.tokenizer import load_tokenizer
from tests.support.folders import edit_json


@pytest.fixture
def folder(checkpoint, tmp_path):
    copy = tmp_path / "tokenizer"
    shutil.copytree(checkpoint().path / "tokenizer", copy)
    return copy


@pytest.mark.parametrize(("name", "family"), [("GPT2Tokenizer", "mistral"), ("Own", "llama")])
def test_the_file_is_what_is_loaded_whatever_class_is_named(folder, name, family):
    edit_json(
        folder / "tokenizer_config.json",
        tokenizer_class=name,
        auto_map={"AutoTokenizer": [None, "own.Own"]},
        add_prefix_space=True,
        fix_mistral_regex=True,
        tokenizer_file="/etc/passwd",
    )
    (folder / "config.json").write_text(f'{{"model_type": "{family}"}}')
    own = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).to_str()
    assert load_tokenizer(folder).backend_tokenizer.to_str() == own


@pytest.mark.slow
def test_the_lines_that_make_a_file_make_it(folder):
    """Of a folder that has vocabulary and merges alone, as GPT-2's."""
    edit_json(folder / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    model = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).model
    model.save(str(folder))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(AssayError) as caught:
        load_tokenizer(folder)
    message = f"{folder}: no tokenizer.json"
    assert str(caught.value).startswith(message)
    code = str(caught.value).rpartition("python -c ")[2].strip('"')
    exec(code, {})
    assert load_tokenizer(folder)("love", add_special_tokens=False)["input_ids"]


def test_a_sentencepiece_model_alone_names_the_extra(folder):
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    message = r"tokenizer\.model; .*\[sentencepiece\]"
    with pytest.raises(AssayError, match=message):
        load_tokenizer(folder)
