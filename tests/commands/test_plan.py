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

LLAMA = "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2"


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
    assert [line.rstrip() for line in text.splitlines()] == [
        line.rstrip() for line in done.out[: len(text.splitlines())]
    ]


def test_a_table_has_a_line_for_each_of_the_devices(command):
    devices = "--devices=8xH100-80GB,v5e-16,cpu-24GB"
    done = command("plan", f"--source={LLAMA}", devices, "--price=2")
    assert (done.code, done.err) == (0, [])
    rows = {line.split()[0]: line.split()[1:] for line in done.out if line}
    assert rows["devices"][:4] == ["fits", "mesh", "step", "dtype"]
    assert rows["8xH100-80GB"][:4] == ["yes", "8x1", "2,048", "bfloat16"]
    assert rows["v5e-16"][:2] == ["yes", "16x1"]
    assert rows["cpu-24GB"][0] == "no"
    (small,) = [line for line in done.out if line.startswith("cpu-24GB: too small; ")]
    assert small == "cpu-24GB: too small; dtype=float16 would fit"
    assert sum("usable" in line for line in done.out) == 3  # what was assumed of each kind


@pytest.mark.parametrize("slug", ["grm-gemma2-2b-rewardmodel-ft", "gemma-2-9b", "qrm-llama3.1-8b"])
def test_a_listed_model_needs_no_network(plans, monkeypatch, slug):
    monkeypatch.setattr("launch.plan.fetch_config", None)
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


def test_a_checkpoint_gives_the_positions_of_its_template(plans, checkpoint):
    found = plans(f"--source={checkpoint().path}", "--devices=cpu-8GB")
    assert (found["sweep"]["own"], found["sweep"]["prefix"] % 16) == (3, 0)
    assert found["search"]["suffix"] == 2


def test_a_language_model_has_no_search(plans):
    (one,) = plans("--source=gemma-2-2b", "--devices=H100")["plans"]
    assert one["search_s"] is None
    assert one["sweep_s"] > 0


def test_a_language_model_is_planned_for_log_probabilities(command):
    done = command("plan", "--source=gemma-2-2b", "--devices=H100", "--price=1", "--prompts=2")
    assert "planned: log-probabilities of 2 prompts (64 positions)" in done.out
    (header,) = [line.split() for line in done.out if line.startswith("devices")]
    assert header[-2:] == ["log-probabilities", "cost"]
    (row,) = [line.split() for line in done.out if line.startswith("H100 ")]
    assert 1 < float(row[-3]) < 10 and row[-2:] == ["ms", "0.00"]  # 5.2 GB at 3.35 TB/s, twice
    assert not any(word in line for line in done.out for word in ("search", "sweep", "candidate"))


@pytest.mark.parametrize(
    ("slug", "own"),
    [("skywork-reward-llama-3.1-8b", 2), ("gemma-2-2b", 3), ("internlm2-7b-reward", 4)],
)
def test_a_listed_model_gives_the_positions_of_its_candidates(plans, slug, own):
    assert plans(f"--source={slug}", "--devices=H100")["sweep"]["own"] == own


def test_a_search_has_a_mesh_of_its_own_and_a_floor(plans, command):
    (one,) = plans(f"--source={LLAMA}", "--devices=v6e-8")["plans"]
    assert one["mesh"] == {"data": 8, "model": 1}
    assert one["search_mesh"] == {"data": 2, "model": 4}  # one block for each direction
    (up,) = plans(f"--source={LLAMA}", "--devices=v6e-8", "--config.direction=max")["plans"]
    assert up["search_mesh"] == {"data": 1, "model": 8}
    assert 0.1 * one["search_s"] < one["search_floor_s"] < one["search_s"]
    (named,) = plans(f"--source={LLAMA}", "--devices=v6e-8", "--config.mesh.model=2")["plans"]
    assert named["mesh"] == named["search_mesh"] == {"data": 4, "model": 2}
    done = command("plan", f"--source={LLAMA}", "--devices=v6e-8")
    (row,) = [line for line in done.out if line.startswith("v6e-8 ")]
    assert row.endswith("2x4")


def test_a_part_that_leaves_devices_idle_is_named(command):
    done = command("plan", f"--source={LLAMA}", "--devices=v5e-16,v5e-64")
    (idle,) = [line for line in done.out if "idle" in line]
    assert idle.startswith("v5e-64: a step has 65,536 candidates and a part 16,384 rows, ")
    assert "--config.part_size=65536 of a new run takes 25% of the sweep's steps, " in idle
    flags = ["--devices=v5e-64", "--config.part_size=65536"]
    done = command("plan", f"--source={LLAMA}", *flags)
    assert not any("idle" in line for line in done.out)


def test_times_in_16_bits_on_a_cpu_that_is_not_here_are_not_predicted(plans, command):
    flags = ["--source=grm-gemma2-2b-rewardmodel-ft", "--devices=cpu-64GB"]
    (one,) = plans(*flags, "--config.dtype=bfloat16", "--price=1")["plans"]
    assert (one["fits"], one["sweep_s"], one["search_s"], one["cost"]) == (True, None, None, None)
    done = command("plan", *flags, "--config.dtype=bfloat16", "--price=1")
    (row,) = [line for line in done.out if line.startswith("cpu-64GB ")]
    assert row.count("not predicted") == 3
    assert any("instructions that the CPU may have or lack" in line for line in done.out)
    (half,) = plans(*flags, "--config.dtype=float16")["plans"]
    (whole,) = plans(*flags, "--config.dtype=float32")["plans"]
    assert half["sweep_s"] == whole["sweep_s"]  # XLA multiplies float16 in float32


def test_a_model_of_float16_is_slower_on_a_tpu_than_in_bfloat16(plans):
    slug, said = "grm-llama3.2-3b-rewardmodel-ft", "--config.dtype=bfloat16 is faster, but rounds"
    flags = [f"--source={slug}", "--devices=v6e-8"]
    assert known_models.KNOWN[slug].dtype == "float16"
    (half,), (brain,) = (
        plans(*flags, *more)["plans"] for more in ([], ["--config.dtype=bfloat16"])
    )
    assert half["dtype"] == "float16"
    assert 2 * brain["sweep_s"] < half["sweep_s"] < 3.1 * brain["sweep_s"]
    assert f"3.1 times as long as in bfloat16: {said}" in half["assumed"]
    assert said not in brain["assumed"]
    (gpu,) = plans(f"--source={slug}", "--devices=H100")["plans"]
    assert (gpu["dtype"], said in gpu["assumed"]) == ("float16", False)


def test_the_self_check_that_is_named_counts(plans):
    def needed(rows):
        flags = [f"--source={LLAMA}", "--devices=H100", "--config.step_size=16"]
        (one,) = plans(*flags, f"--config.self_check={rows}")["plans"]
        return one["device_bytes"]["step"]

    assert needed(1600) == pytest.approx(100 * needed(16), rel=0.01)


def test_this_machine_is_measured(plans, checkpoint):
    (one,) = plans(f"--source={checkpoint().path}", "--devices=cpu", "--price=1")["plans"]
    assert one["fits"] is True
    assert "measured here" in one["assumed"]
    assert one["cost"] == pytest.approx((one["sweep_s"] + one["search_s"]) / 3600)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--source is missing; allowed: a checkpoint, a folder in Hugging Face format"),
        (["--source=gemma-2-2b"], "--devices is missing; allowed: devices, comma-separated"),
        (["--source=gemma-2-2b", "--devices=H300"], "devices='H300': no such kind (meant: H"),
        (["--source=gemma-2-2b", "--devices=0xH100"], "devices='0xH100': 0 devices; allowed: 1 t"),
        (["--source=gemma-2-2b", "--devices=H100", "--prompts=0"], "prompts=0; allowed: integers"),
        (["--source=gemma-2-2b", "--devices=H100", "--config.part_size=0"], "part_size=0; allowed"),
        (
            ["--source=gemma-2-2b", "--devices=H100", "--config.prefix=99999999999"],
            "prefix=99999999999; allowed: 0 to 8192, the model's longest",
        ),
        (
            ["--source=gemma-2-2b", "--devices=H100", "--config.own=8193"],
            "own=8193; allowed: 0 to 8192, the model's longest",
        ),
        (["--source=gemma-2-2b", "--devices=H100", "--price=-1"], "price=-1.0; allowed: numbers"),
        (["--source=gemma-2-2b", "--devices=H100", "--price=nan"], "price=nan; allowed: numbers"),
        (["--source=nowhere", "--devices=H100"], "source='nowhere'; allowed: a checkpoint, a mod"),
        (
            ["--source=gemma-2-2b", "--devices=8xH100", "--config.mesh.model=3"],
            "mesh.model=3 of 8xH100; allowed: 1, 2, 4, 8",
        ),
        (
            ["--source=gemma-2-2b", "--devices=H100", "--config.dtype=fp8"],
            "dtype='fp8'; allowed: 'bfloat16', 'float16', 'float32'",
        ),
        (
            ["--source=gemma-2-2b", "--devices=H100", "--config.step_size=many"],
            "step_size='many'; allowed: 'auto', or integers >= 1",
        ),
    ],
)
def test_bad_input_is_one_line(command, flags, message):
    done = command("plan", *flags)
    assert (done.code, done.out, len(done.err)) == (2, [], 1)
    assert done.err[0].startswith(f"plan: {message}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "config.json: hidden_size=None; allowed: an integer"),
        ({"architectures": ["BertModel"]}, "config.json: unknown architecture 'BertModel'"),
        ({"num_hidden_layers": 10**6}, "config.json: num_hidden_layers=1000000; allowed: 1 to"),
    ],
)
def test_a_config_that_is_not_understood_is_one_line(command, source, changes, message):
    file = source(json.dumps(tiny.config(**changes)), "config.json")
    done = command("plan", f"--source={file}", "--devices=H100")
    assert (done.code, done.out, len(done.err)) == (2, [], 1)
    assert message in done.err[0]


@pytest.mark.parametrize("text", ["{", "[]", '"model"'])
def test_a_file_that_is_no_config_is_one_line(command, source, text):
    done = command("plan", f"--source={source(text, 'config.json')}", "--devices=H100")
    assert (done.code, done.out, len(done.err)) == (2, [], 1)


def test_the_help_names_the_devices(command):
    done = command("plan", "--help")
    assert any("8xH100-80GB" in line for line in done.out)


@pytest.mark.parametrize("value", ["many", "2.5", "0", "-4", "true"])
def test_a_bad_step_is_one_line_and_nothing_is_written(command, checkpoint, tmp_path, value):
    flags = [f"--checkpoint={checkpoint().path}", f"--run={tmp_path / 'run'}"]
    done = command("sweep", *flags, f"--config.step_size={value}")
    assert (done.code, done.out, len(done.err)) == (2, [], 1)
    assert "; allowed: 'auto', or integers >= 1" in done.err[0]
    assert list(tmp_path.iterdir()) == []


LARGE = {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 1000,
}


@pytest.mark.parametrize("name", ["sweep", "score", "search", "universal search", "logprobs"])
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
    (tmp_path / "words.txt").write_text("love\n")
    flags = [f"--checkpoint={folder}", f"--run={tmp_path / 'run'}", "--config.dtype=float32"]
    own = {
        "score": [f"--items={tmp_path / 'words.txt'}"],
        "search": ["--config.topk=16"],
        "universal search": ["--config.universal=mean", "--config.prompts=greatest,best"],
    }
    own["universal search"] += own["search"]
    flags += own.get(name, [])
    name = "search" if name == "universal search" else name
    done = command(name, *flags)
    assert (done.code, done.out, len(done.err)) == (2, [], 1)
    assert done.err[0].startswith(f"{name}: large: needs ")
    assert " are free; " in done.err[0] and " would fit; --config.check_memory=" in done.err[0]
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
    done = command("convert", *flags)
    assert (done.code, done.out, len(done.err)) == (2, [], 1)
    assert message in done.err[0] and done.err[0].startswith(f"convert: {folder}: ")
    again = command("convert", *flags, "--config.check_memory=false")
    assert again.code == 2 and " needs " not in again.err[0]  # what the check left to be found
    assert not (tmp_path / "checkpoint").exists()
