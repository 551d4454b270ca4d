"""`assay plan`: sources, devices, both forms of the answer, and bad input."""

import dataclasses
import json
import re
import shlex
import shutil
from unittest import mock

import pytest

from configs import known_models
from engine.convert.hf_config import decoder_config
from engine.errors import AssayError
from engine.planning import machines
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
    shown, printed = text.splitlines(), "\n".join(done.out).splitlines()
    assert [line.rstrip() for line in shown] == [line.rstrip() for line in printed[: len(shown)]]
    assert [line.partition(":")[0] for line in printed[len(shown) :]] == [
        *("H100-80GB", "v5e", "v6e", "cpu")  # what is assumed of each kind
    ]


@pytest.mark.parametrize("slug", ["grm-gemma2-2b-rewardmodel-ft", "qrm-llama3.1-8b"])
def test_a_listed_model_needs_no_network(plans, monkeypatch, slug):
    monkeypatch.setattr("launch.common.planned_models.fetch_config", None)
    for source in (slug, known_models.KNOWN[slug].hub_id):
        found = plans(f"--source={source}", "--devices=H200")
        assert found["plans"][0]["fits"] is True


def test_a_hub_id_that_is_not_listed_is_planned_by_its_config_alone(plans, monkeypatch, tmp_path):
    folder, asked = tiny.write_model(tmp_path / "hf"), []

    def snapshot(source, revision, patterns, **_):
        asked.append((source, list(patterns)))
        return folder

    monkeypatch.setattr("engine.convert.downloads.snapshot", snapshot)
    assert plans("--source=someone/tiny", "--devices=cpu-8GB")["plans"][0]["fits"] is True
    assert asked == [("someone/tiny", ["config.json"])]


def test_folder_config_and_checkpoint_of_a_model_agree(plans, checkpoint, tmp_path):
    folder = tiny.write_model(tmp_path / "hf")
    sources = [folder, folder / "config.json", checkpoint().path]
    flags = ["--devices=v5e-2", "--config.prefix=32", "--config.own=3", "--config.dtype=float32"]
    found = [plans(f"--source={source}", *flags)["plans"][0] for source in sources]
    weights = {one["device_bytes"]["weights"] for one in found}
    assert len(weights) == len({one["sweep_s"] for one in found}) == 1
    assert [one["plans"][0] for one in plans(*sources[:2], *flags)["models"]] == found[:2]


@pytest.mark.parametrize(
    ("slug", "own"),
    [("skywork-reward-llama-3.1-8b", 2), ("gemma-2-2b", 3), ("internlm2-7b-reward", 4)],
)
def test_a_listed_model_gives_the_positions_of_its_candidates(plans, slug, own):
    assert plans(f"--source={slug}", "--devices=H100")["sweep"]["own"] == own


def test_a_language_model_is_planned_for_log_probabilities(command, plans):
    done = command("plan", "--source=gemma-2-2b", "--devices=H100", "--prompts=2")
    assert "planned: log-probabilities of 2 prompts (64 positions)" in done.out
    (header,) = [line.split() for line in done.out if line.startswith("devices")]
    (row,) = [line.split() for line in done.out if line.startswith("H100 ")]
    assert header[-1] == "log-probabilities" and row[-2:] == ["1", "ms"]
    assert not any(word in line for line in done.out for word in ("search", "candidate", "step"))
    (one,) = plans("--source=gemma-2-2b", "--devices=H100", "--prompts=2")["plans"]
    assert one["search_mesh"] is None
    # 64 positions, 2 operations for each of 2.0·10⁹ weights of layers, half of 989 TFLOP/s
    assert one["sweep_s"] == pytest.approx(2 * 64 * 2 * 2.02e9 / (0.5 * 989e12), rel=0.02)


GEMMA = "--source=gemma-2-2b"


@pytest.mark.parametrize(
    ("kind", "limit_gib", "named"),
    [
        ("NVIDIA H100 80GB HBM3", 59, "2xH100-80GB"),
        ("TPU v5 lite", 15.7, "2xv5e"),
    ],
)
def test_without_devices_it_plans_for_those_of_this_machine(
    plans, monkeypatch, kind, limit_gib, named
):
    assert plans(GEMMA)["plans"][0]["devices"] == "cpu"
    device = mock.Mock(platform="gpu", device_kind=kind)
    device.memory_stats.return_value = {"bytes_limit": int(limit_gib * 2**30)}
    monkeypatch.setattr("jax.devices", lambda: [device])
    monkeypatch.setattr("jax.device_count", lambda: 2)
    assert plans(GEMMA)["plans"][0]["devices"] == named
    device.device_kind = "Radeon"
    with pytest.raises(AssayError, match="'Radeon' is here, which is not known"):
        machines.here()


LARGE = {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 1000,
}


@pytest.mark.parametrize("name", ["sweep", "search", "logprobs"])
def test_a_model_that_no_machine_holds_is_refused_before_its_weights_are_read(
    command, checkpoint, tmp_path, name
):
    """The card is that of a model of 800 billion parameters; its weights are not there."""
    language = name == "logprobs"
    tiny_one = checkpoint("lm", head="lm") if language else checkpoint()
    decoder = decoder_config(tiny.config(**LARGE))
    sizes = {"width": 8192} if language else {"width": 8192, "depth": 1000}
    head = dataclasses.replace(tiny_one.card.head, **sizes)
    card = dataclasses.replace(tiny_one.card, slug="large", decoder=decoder, head=head)
    folder = tmp_path / "large"
    shutil.copytree(tiny_one.path / "tokenizer", folder / "tokenizer")
    (folder / "model.json").write_text(card.to_json())
    flags = [f"--checkpoint={folder}", f"--run={tmp_path / 'run'}", "--config.dtype=float32"]
    done = command(name, *flags, *["--config.topk=16"] * (name == "search"))
    said = done.refusal()
    assert said.startswith(f"{name}: large: needs ")
    assert " are free; " in said and " would fit; --config.check_memory=" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 2**17, "intermediate_size": 2**21}, "converting needs "),
        (LARGE, "the checkpoint needs "),
    ],
)
def test_a_conversion_that_the_machine_cannot_hold_is_refused(command, tmp_path, changes, message):
    folder = tiny.write_model(tmp_path / "hf")
    (folder / "config.json").write_text(json.dumps(tiny.config(**changes)))
    flags = [f"--source={folder}", f"--checkpoint={tmp_path / 'checkpoint'}"]
    said = command("convert", *flags).refusal()
    assert message in said and said.startswith(f"convert: {folder}: ")
    again = command("convert", *flags, "--config.check_memory=false")
    assert " needs " not in again.refusal()  # what the check left to be found
    assert not (tmp_path / "checkpoint").exists()
