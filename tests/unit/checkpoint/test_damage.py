"""A flipped bit anywhere in a checkpoint is found before anything is computed."""

import hashlib
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore, sharing_groups
from engine.errors import AssayError
from engine.mesh import build_mesh
from tests.support.folders import flipped


@pytest.fixture
def folder(checkpoint, tmp_path) -> Path:
    """A checkpoint of its own, to be damaged."""
    return Path(shutil.copytree(checkpoint(head="mlp").path, tmp_path / "own"))


def values(folder, verify=True, dtype="float32"):
    """The parameters of a checkpoint."""
    opened = Checkpoint.open(folder, verify=verify)
    return jax.tree.leaves(restore([opened], build_mesh(), jnp.dtype(dtype))[1])


def parameter_files(folder):
    """The files of parameters, relative to the checkpoint."""
    found = (path.parent for path in folder.glob("params/**/.zarray"))
    return [path for parent in found for path in parent.iterdir() if path.name != ".zarray"]


def test_a_flipped_bit_in_any_parameter_is_found(folder):
    files = parameter_files(folder)
    assert len(files) == 1 + 9 + 5  # embedding, layer, norm and head
    for file in files:
        refused = pytest.raises(AssayError, match=f"^{file.parent.parent}: damaged checkpoint")
        with flipped(file, file.stat().st_size // 2), refused:
            values(folder)
    values(folder)


@pytest.mark.slow
def test_the_description_of_a_parameter_cannot_change_what_is_read(folder):
    right = [np.asarray(x) for x in values(folder)]
    described = folder / "params/readout/readout.head.weight_in/.zarray"
    for position in range(0, described.stat().st_size, 5):  # some of them, to be quick
        with flipped(described, position):
            try:
                read = [np.asarray(x) for x in values(folder)]
            except AssayError as error:
                assert "convert the model again" in str(error)
            else:
                assert all(map(np.array_equal, read, right))


def test_every_model_that_shares_a_decoder_is_verified(checkpoint, tmp_path):
    shallow = checkpoint("shallow", head_seed=1)
    damaged = Path(shutil.copytree(shallow.path, tmp_path / "shallow"))
    (group,) = sharing_groups([checkpoint(num_hidden_layers=2), Checkpoint.open(damaged)])
    refused = pytest.raises(AssayError, match=f"^{damaged}/params/readout: damaged checkpoint")
    with flipped(damaged / "params/readout/readout.norm/0", -1), refused:
        restore(group, build_mesh(), jnp.dtype("float32"))


def test_another_tokenizer_file_is_refused(folder):
    file = folder / "tokenizer/tokenizer_config.json"
    file.write_text(file.read_text() + " ")
    message = f"^{file}: damaged checkpoint"
    with pytest.raises(AssayError, match=message):
        _ = Checkpoint.open(folder).tokenizer
    _ = Checkpoint.open(folder, verify=False).tokenizer


def test_a_tokenizer_file_too_many_or_too_few_is_refused(folder):
    more = folder / "tokenizer/added_tokens.json"
    more.write_text("{}")
    with pytest.raises(AssayError, match=f"^{more}: damaged"):
        _ = Checkpoint.open(folder).tokenizer
    more.unlink()
    (folder / "tokenizer/chat_template.jinja").unlink()
    for _ in range(2):
        with pytest.raises(AssayError, match=r"chat_template\.jinja: damaged"):
            _ = Checkpoint.open(folder).tokenizer
        shutil.rmtree(folder / "tokenizer", ignore_errors=True)


def test_a_tokenizer_that_several_models_have_is_loaded_once(folder, checkpoint):
    first, second = (Checkpoint.open(path).tokenizer for path in (folder, checkpoint().path))
    assert first.backend_tokenizer is second.backend_tokenizer
    assert [first.name_or_path, second.name_or_path] == [
        str(folder / "tokenizer"),
        str(checkpoint().path / "tokenizer"),
    ]
    other = Checkpoint.open(checkpoint("other", template="raw").path).tokenizer
    assert other.chat_template != first.chat_template == second.chat_template


def test_a_flipped_bit_in_the_card_is_found(folder):
    card = folder / "model.json"
    card.write_text(card.read_text().replace('"rms_eps": 1e-05', '"rms_eps": 1e-04'))
    assert '"rms_eps": 1e-04' in card.read_text()
    with pytest.raises(AssayError, match=r"model\.json: damaged"):
        Checkpoint.open(folder)


@pytest.mark.parametrize("text", ["", "{", "[1]", "5", "null"])
def test_a_card_that_is_no_json_object_is_refused_in_one_line(folder, text):
    (folder / "model.json").write_text(text)
    message = r"model\.json: damaged"
    with pytest.raises(AssayError, match=message):
        Checkpoint.open(folder)


def test_a_checkpoint_of_an_earlier_release_is_refused_in_one_line_that_says_why(folder):
    fields = json.loads(Checkpoint.open(folder).card.to_json())
    del fields["sha256"], fields["pooling"]
    (folder / "model.json").write_text(json.dumps({**fields, "version": 2}))
    message = r"model\.json: version=2; allowed: 3"
    with pytest.raises(AssayError, match=message):
        Checkpoint.open(folder)


def test_a_template_setting_of_an_earlier_release_is_refused_with_its_name(folder):
    fields = json.loads(Checkpoint.open(folder).card.to_json())
    fields["policy"]["newlines"] = "trim"
    del fields["sha256"]
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps({**fields, "sha256": digest}))
    with pytest.raises(AssayError, match=r"template\.newlines='trim'; .*convert the model again"):
        Checkpoint.open(folder)
