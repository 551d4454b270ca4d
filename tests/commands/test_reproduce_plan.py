"""What `assay reproduce` says before it computes anything: its plan, and one line of bad input."""

import re
from contextlib import nullcontext
from types import SimpleNamespace

import polars as pl
import pytest

from analysis.published import data
from configs import reproduce
from engine.errors import AssayError
from launch.reproduction import plan
from launch.reproduction.readings import check_second_dtype
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


def test_published_values_of_an_unknown_exhibit_are_refused_before_any_work(command, tmp_path):
    own = data.read()
    unknown = own.numbers.head(1).with_columns(exhibit=pl.lit("figure_9"))
    data.Published(models=own.models, numbers=unknown, tokens=own.tokens).write(tmp_path / "own")
    found = command("reproduce", f"--root={tmp_path / 'root'}", f"--published={tmp_path / 'own'}")
    assert "exhibit='figure_9'; allowed: " in found.refusal()
    assert not (tmp_path / "root").exists()


def test_no_room_on_the_disk_is_one_line_that_says_what_would_do(command, tmp_path, monkeypatch):
    disk = (1, 200 * 2**30)
    monkeypatch.setattr(plan, "free_disk", lambda folder: disk)
    line = command("reproduce", f"--root={tmp_path / 'root'}").refusal()
    assert re.search(r"871.\d GiB of disk are needed with --keep=all, 200.0 GiB are free", line)
    assert "or --keep=none, which needs 104." in line
    assert not (tmp_path / "root").exists()


def test_a_partial_only_keeps_every_checkpoint_on_the_disk():
    """--only=sweep --keep=none removes nothing before the search is complete."""
    step = SimpleNamespace(spec=SPEC, checkpoint=10, fetch=5, written=0, absent=False)
    for every, peak in ((["sweep"], 15), (["sweep", "search"], 30)):
        call = SimpleNamespace(stages_of=lambda _: ["sweep"], all_stages_of=lambda _, e=every: e)
        assert plan.disk(call, [step, step], "none") == peak


@pytest.mark.parametrize(
    ("dtype", "second", "refused"),
    [("auto", "float32", True), ("auto", "bfloat16", False), ("bfloat16", "float32", False)],
)
def test_a_second_dtype_that_is_the_first_measures_nothing(dtype, second, refused):
    config = reproduce.get_config()
    config.dtype, config.second_dtype = dtype, second
    with pytest.raises(AssayError, match="is the dtype of the run") if refused else nullcontext():
        check_second_dtype(config)


def test_a_folder_of_another_model_is_the_models_one_line(command, tmp_path):
    """The registry knows the kind of R-Gem-2B, which a tiny model is not."""
    folder = tiny.write_model(tmp_path / "models" / GEMMA, seed=1)
    given = flags(tmp_path / "root", tmp_path / "models")
    named = [f for f in given if "check_identity" not in f]
    found = command("reproduce", *named, "--only=sweep", "--config.check_memory=false")
    assert found.code == 1
    (row,) = [line for line in found.err if line.startswith("R-Gem-2B  ")]
    said = f"config.json has model_type=llama; {SPEC.hub_id} has model_type=gemma2; allowed: that"
    assert f"  failed: {folder}: {said}" in row
    assert not (tmp_path / "root" / "checkpoints" / GEMMA).exists()
