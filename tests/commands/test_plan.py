"""`assay plan`: sources, devices, both forms of the answer, and bad input."""

import dataclasses
import json
import re
import shlex
import shutil

import pytest

from configs import known_models
from engine.convert.hf_config import decoder_config
from tests.conftest import ROOT
from tests.support import tiny


@pytest.fixture
def plans(command):
    """Flags -> the rows of the JSON."""

    def read(*flags):
        done = command("plan", *flags, "--json")
        assert (done.code, done.err) == (0, [])
        return json.loads("\n".join(done.out))

    return read


def test_the_example_of_the_documentation_is_what_the_command_prints(command):
    page = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
    shell, text = re.findall(r"```(?:shell|text)\n(.*?)```", page, re.DOTALL)[:2]
    name, *arguments = shlex.split(shell)
    done = command(arguments[0], *arguments[1:])
    assert name == "assay"
    shown = text.split()  # the page wraps its lines
    assert "\n".join(done.out).split()[: len(shown)] == shown
    assert "\n".join(done.out).splitlines()[-1].startswith("here (cpu): ")


@pytest.mark.parametrize("slug", ["grm-gemma2-2b-rewardmodel-ft", "qrm-llama3.1-8b"])
def test_a_listed_model_needs_no_network(plans, monkeypatch, slug):
    monkeypatch.setattr("launch.common.planned.fetch_config", None)
    for source in (slug, known_models.KNOWN[slug].hub_id):
        assert [row["mesh_model"] for row in plans(f"--source={source}")["rows"]][:3] == [1, 1, 2]


def test_a_hub_id_that_is_not_listed_is_planned_by_its_config_alone(plans, monkeypatch, tmp_path):
    folder, asked = tiny.write_model(tmp_path / "hf"), []

    def snapshot(source, revision, patterns, **_):
        asked.append((source, list(patterns)))
        return folder

    monkeypatch.setattr("engine.convert.downloads.snapshot", snapshot)
    assert plans("--source=someone/tiny")["here"]["fits"] is True
    assert asked == [("someone/tiny", ["config.json"])]


def test_folder_config_and_checkpoint_of_a_model_agree(plans, checkpoint, tmp_path):
    folder = tiny.write_model(tmp_path / "hf")
    sources = [folder, folder / "config.json", checkpoint().path]
    flags = ["--config.prefix=32", "--config.own=3", "--config.dtype=float32"]
    found = [plans(f"--source={source}", *flags)["rows"] for source in sources]
    assert found[0] == found[1] == found[2]
    assert [model["rows"] for model in plans(*sources[:2], *flags)["models"]] == found[:2]


LARGE = {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 1000,
}


@pytest.mark.parametrize("name", ["sweep", "search"])
def test_a_model_that_no_machine_holds_is_refused_before_its_weights_are_read(
    command, checkpoint, tmp_path, name
):
    """The card is that of a model of 800 billion parameters; its weights are not there."""
    tiny_one, decoder = checkpoint(), decoder_config(tiny.config(**LARGE))
    head = dataclasses.replace(tiny_one.card.head, width=8192, depth=1000)
    card = dataclasses.replace(tiny_one.card, slug="large", decoder=decoder, head=head)
    folder = tmp_path / "large"
    shutil.copytree(tiny_one.path / "tokenizer", folder / "tokenizer")
    (folder / "model.json").write_text(card.to_json())
    flags = [f"--checkpoint={folder}", f"--run={tmp_path / 'run'}", "--config.dtype=float32"]
    message = command(name, *flags, *["--config.topk=16"] * (name == "search")).refusal()
    assert message.startswith(f"{name}: large: needs ")
    assert " are free; " in message and " would fit; --config.check_memory=" in message
    assert not (tmp_path / "run").exists()
