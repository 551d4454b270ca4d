"""What `assay reproduce` says before it computes anything: its plan, and one line of bad input."""

import json
import re
from contextlib import nullcontext
from types import SimpleNamespace

import polars as pl
import pytest

from analysis.published import data
from configs import known_shapes, reproduce
from engine.errors import AssayError
from launch.reproduction import plan
from launch.reproduction.conventions import check_second_dtype
from tests.support import tiny
from tests.support.reproduction import GEMMA, SPEC, flags, rows


def test_a_plan_prints_a_table_and_writes_nothing(command, tmp_path, monkeypatch):
    monkeypatch.setattr("engine.convert.downloads.snapshot", None)  # no network
    root = tmp_path / "root"
    found = command("reproduce", f"--root={root}", "--plan", "--devices=8xH100-80GB,cpu-24GB")
    assert (found.code, found.err) == (0, [])
    table = rows(found.out)
    assert "6.0 GiB " in table["R-Lla-3B"]  # the registry's bytes
    assert "14.0 GiB*" in table["R-Lla-8B"]  # expected from the shapes
    assert "sweep 6/6, search 2/2" in table["R-Lla-8B"]
    assert "logprobs 3/3" in table["gemma-2-9b"]
    assert "too large" in table["N-Gem-27B"]
    assert "with --keep=none" in "".join(found.out)
    assert not root.exists()


def test_a_plan_of_fetching_alone_counts_every_model(command, tmp_path):
    """Language models too; nothing of it is complete before anything was fetched."""
    given = (f"--root={tmp_path / 'root'}", "--plan", "--only=convert", "--devices=1xH100-80GB")
    found = command("reproduce", *given)
    assert (found.code, found.err) == (0, [])
    assert "10 reward models and 10 language models" in found.out[0]
    table = rows(found.out)
    for name in ("R-Gem-2B", "N-Lla-8B", "gemma-2b", "gemma-2-27b-it"):
        assert re.search(r"GiB\*? .* GiB .*  convert +–$", table[name])
    assert not any("complete already" in line for line in found.out)


@pytest.mark.parametrize(
    ("models", "only", "message"),
    [
        ("gemma-2-2b", "sweep", "gemma-2-2b; allowed: convert, logprobs, page"),
        (GEMMA, "logprobs", f"{GEMMA}; allowed: convert, sweep, search, readings, page"),
        ("paper", "items", "20 models; allowed: convert, sweep, search, logprobs, readings, page"),
    ],
)
def test_stages_that_concern_no_model_are_refused(command, tmp_path, models, only, message):
    root = tmp_path / "root"
    for more in ((), ("--plan", "--devices=cpu-8GB")):
        found = command(
            "reproduce", f"--root={root}", f"--models={models}", f"--only={only}", *more
        )
        assert (found.code, found.out) == (2, [])
        (line,) = found.err
        assert line.startswith(f"reproduce: --only={only}: nothing to do for {message}")
        assert line.endswith("the stage items needs --elo") == (only == "items")
    assert not root.exists()


@pytest.mark.slow
def test_a_plan_counts_the_second_dtype_by_its_own_speed(command, tmp_path):
    given = (f"--root={tmp_path / 'root'}", "--plan", "--readings=none", "--devices=1xH100-80GB")
    lines = command("reproduce", *given, "--config.second_dtype=float32").out
    (line,) = [line for line in lines if line.startswith("noise between dtypes: the paper")]
    assert re.search(
        r"in float32 too, .* on 1xH100-80GB, counted in the times above; too large", line
    )
    assert line.endswith("N-Gem-27B, S-Gem-27B-v0.2, S-Gem-27B")
    assert "sweep 9/9" in rows(lines)["R-Gem-2B"]


def test_a_time_that_is_not_known_is_no_model_that_is_too_large(command, tmp_path):
    given = (f"--root={tmp_path / 'root'}", "--plan", "--readings=none", "--devices=cpu-64GB")
    models = "--models=skywork-reward-llama-3.1-8b-v0.2,skywork-reward-gemma-2-27b-v0.2"
    lines = command("reproduce", *given, models, "--config.dtype=bfloat16").out
    assert rows(lines)["S-Lla-8B-v0.2"].endswith("not predicted")
    assert "too large; dtype=float16 would do" in rows(lines)["S-Gem-27B-v0.2"]
    assert rows(lines)["in"].endswith("not predicted (1 of 2 models; the others do not fit)")
    lines = command("reproduce", *given, models, "--config.second_dtype=bfloat16").out
    (line,) = [line for line in lines if line.startswith("noise between dtypes: the paper")]
    assert "not predicted on cpu-64GB" in line and line.endswith("for S-Gem-27B-v0.2")


def test_language_models_of_the_setting_are_taken_beside_named_models(command, tmp_path):
    def planned(*more):
        given = (f"--root={tmp_path / 'root'}", "--plan", "--devices=cpu-8GB")
        table = rows(command("reproduce", *given, *more).out)
        return [name for name in table if name.startswith(("gemma", "R-Gem"))]

    named = f"--models={GEMMA}"
    assert planned(named) == ["R-Gem-2B"]
    assert planned(named, "--config.language_models=gemma-2-2b") == ["R-Gem-2B", "gemma-2-2b"]
    beside = (f"--models={GEMMA},gemma-2-9b", "--config.language_models=gemma-2-2b")
    assert planned(*beside) == ["R-Gem-2B", "gemma-2-2b", "gemma-2-9b"]
    assert len(planned("--models=paper,gemma-2-9b")) == 11


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--models=grm-gemma-2b", "--models='grm-gemma-2b' (did you mean "),
        ("--models=", "--models=''; allowed: paper, "),
        ("--only=sweeep", "--only='sweeep' (did you mean 'sweep'?); allowed: convert, "),
        ("--keep=some", "--keep='some'; allowed: all, none"),
        ("--source-dir=/nowhere", "--source-dir='/nowhere': no such folder"),
        ("--elo=/nowhere.csv", "--elo=/nowhere.csv: no such file"),
        ("--published=/nowhere", "/nowhere/models.csv: No such file or directory"),
        ("--devices=H100", "--devices without --plan; allowed: --plan"),
        ("--config.second_dtype=float32", "such as 'bfloat16'"),
        ("--config.second_dtype=fp8", "dtype='fp8'; allowed: "),
        ("--config.verify=x", "verify='x'; allowed: auto, true, false"),
        ("--config.searched=x", "searched='x'; allowed: all, or some of "),
        ("--config.language_models=x", "language_models='x'; allowed: paper, "),
        ("--config.item_prompt=x", "item_prompt='x'; allowed: "),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(command, tmp_path, flag, message):
    found = command("reproduce", f"--root={tmp_path / 'root'}", flag)
    assert (found.code, found.out) == (2, [])
    assert len(found.err) == 1
    assert message in found.err[0]
    assert not (tmp_path / "root").exists()


def test_published_values_of_an_unknown_exhibit_are_refused_before_any_work(command, tmp_path):
    own = data.read()
    unknown = own.numbers.head(1).with_columns(exhibit=pl.lit("figure_9"))
    data.Published(models=own.models, numbers=unknown, tokens=own.tokens).write(tmp_path / "own")
    found = command("reproduce", f"--root={tmp_path / 'root'}", f"--published={tmp_path / 'own'}")
    assert found.code == 2
    assert "no numbers 'figure_9 mean'; allowed: " in found.err[0]
    assert not (tmp_path / "root").exists()


def test_a_page_needs_no_folder_and_no_other_second_dtype(command, tmp_path):
    """As of a GPU's run in bfloat16 and float32, on a CPU."""
    more = ("--only=page", "--config.second_dtype=float32")
    found = command("reproduce", *flags(tmp_path / "root", tmp_path, *more))
    assert found.code == 0
    assert found.out[-1].startswith("page: ")


def test_a_folder_that_lacks_the_model_is_one_line_before_anything_is_done(command, tmp_path):
    found = command("reproduce", *flags(tmp_path / "root", tmp_path))
    assert found.code == 2
    assert found.err == [
        f"reproduce: --source-dir={tmp_path}: no folder of Ray2333/GRM-gemma2-2B-rewardmodel-ft; "
        "allowed: Ray2333--GRM-gemma2-2B-rewardmodel-ft or grm-gemma2-2b-rewardmodel-ft, with its "
        "config.json"
    ]
    assert not (tmp_path / "root").exists()


def test_no_room_on_the_disk_is_one_line_that_says_what_would_do(command, tmp_path, monkeypatch):
    root = f"--root={tmp_path / 'root'}"
    for room, way in ((200, "allowed: --keep=none, which needs 104."), (50, "a larger disk")):
        monkeypatch.setattr(
            plan,
            "free_disk",
            lambda folder, room=room: type("D", (), {"free": room * 2**30, "number": 1}),
        )
        found = command("reproduce", root)
        assert found.code == 2
        (line,) = found.err
        assert re.search(rf"871.\d GiB of disk are needed with --keep=all, {room}.0 GiB are", line)
        assert way in line
    assert not (tmp_path / "root").exists()


def test_no_room_on_another_disk_for_the_downloads_is_one_line(command, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    def free(folder):
        is_cache = str(folder).endswith("hub")
        return SimpleNamespace(free=(50 if is_cache else 5000) * 2**30, number=int(is_cache))

    monkeypatch.setattr(plan, "free_disk", free)
    found = command("reproduce", f"--root={tmp_path / 'root'}")
    assert found.code == 2
    assert re.search(r"hub: \d+.\d GiB of disk are needed for downloads, 50.0 GiB", found.err[0])
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("platform", "dtype", "second", "refused"),
    [
        ("gpu", "auto", "bfloat16", True),
        ("gpu", "auto", "float32", False),
        ("cpu", "auto", "float32", True),
        ("cpu", "auto", "bfloat16", False),
        ("gpu", "float32", "bfloat16", False),
        ("gpu", "float32", "", False),
    ],
)
def test_a_second_dtype_that_is_the_first_measures_nothing(platform, dtype, second, refused):
    config = reproduce.get_config()
    config.dtype, config.second_dtype = dtype, second
    with pytest.raises(AssayError, match="is the dtype of the run") if refused else nullcontext():
        check_second_dtype(config, platform)


def test_the_search_is_that_of_the_papers_code():
    search = reproduce.get_config().search
    assert (search.method, search.wrong_sign, search.restarts) == ("paper", True, 1)


PUBLISHED = known_shapes.config_json(SPEC) | {
    "vocab_size": known_shapes.rows(SPEC),
    "architectures": ["Gemma2ForSequenceClassification"],
    "hidden_act": "gelu_pytorch_tanh",
}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, f"config.json has model_type=llama; {SPEC.hub_id} has model_type=gemma2"),
        (PUBLISHED, f"48,640 bytes of tensors; {SPEC.hub_id} has 5,228,688,384"),
    ],
    ids=["another kind", "other bytes"],
)
def test_a_folder_of_other_weights_is_the_models_one_line(command, tmp_path, config, said):
    """The registry knows the kind and the bytes of R-Gem-2B; a tiny model has neither."""
    folder = tiny.write_model(tmp_path / "models" / GEMMA, seed=1)
    own = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(own | config))
    given = flags(tmp_path / "root", tmp_path / "models")
    named = [f for f in given if "check_identity" not in f]
    found = command("reproduce", *named, "--only=sweep", "--config.check_memory=false")
    assert found.code == 1
    (row,) = [line for line in found.err if line.startswith("R-Gem-2B  ")]
    allowed = "allowed: that model's own files, or a folder of another name"
    assert row.endswith(f"  failed: {folder}: {said}; {allowed}")
    assert not (tmp_path / "root" / "checkpoints" / GEMMA).exists()
