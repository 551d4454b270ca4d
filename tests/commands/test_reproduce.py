"""`assay reproduce` on tiny models that stand in for two of the paper's; killed in every stage."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from analysis.published import data
from configs import known_models, reproduce
from engine.errors import AssayError
from launch.reproduction import planning
from launch.reproduction.readings import check_second_dtype
from tests.support import tiny

ROOT = Path(__file__).resolve().parents[2]
TWO = {
    "ray2333--grm-gemma2-2b": "grm-gemma2-2b-rewardmodel-ft",
    "skywork": "skywork-reward-gemma-2-27b",
}
GEMMA, SKYWORK = TWO.values()
SPEC = known_models.KNOWN[GEMMA]
# Tiny models have neither the bytes nor the vocabulary of the published ones.
TINY = (
    "--config.check_identity=false",
    "--config.language_models=",
    "--readings=none",
    "--config.part_size=64",
    "--config.self_check=2",
    "--config.search.steps=2",
    "--config.search.candidates=4",
    "--config.search.length=2",
    "--config.search.buffer=2",
    "--config.search.topk=4",
    "--config.permutations=99",
    "--config.bootstraps=99",
)
ITEMS = ("love", "war", "truth", "the", "7", "zq")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder with the folders of two models, one named owner--name and one by its slug."""
    folder = tmp_path_factory.mktemp("models")
    hub = known_models.KNOWN[GEMMA].hub_id.replace("/", "--")
    tiny.write_model(folder / hub, seed=1)
    tiny.write_model(folder / SKYWORK, seed=2)
    return folder


@pytest.fixture(scope="module")
def elo(tmp_path_factory):
    """Items with human ranks, in the layout of the authors' release."""
    path = tmp_path_factory.mktemp("elo") / "items.csv"
    count = range(1, len(ITEMS) + 1)
    columns = {"elo_rank": count, "elo_score": [1700 - i for i in count], "name": ITEMS}
    frame = pl.DataFrame({**columns, "elo_matches": [60] * len(ITEMS), "a/b": [0.0] * len(ITEMS)})
    frame.write_csv(path)
    return path


def flags(root, folders, *more, models=(GEMMA,)):
    named = f"--models={','.join(models)}"
    return [f"--root={root}", f"--source-dir={folders}", named, *TINY, *more]


def parts(root):
    """File -> bytes of everything that was computed."""
    every = sorted((root / "runs").rglob("*.parquet"))
    return {str(path.relative_to(root)): path.read_bytes() for path in every}


@pytest.fixture(scope="module")
def done(folders, elo, tmp_path_factory):
    """A reproduction of one model that nothing interrupted."""
    from launch import reproduce

    root = tmp_path_factory.mktemp("done") / "root"
    assert reproduce.main(flags(root, folders, f"--elo={elo}")) == 0
    return root


@pytest.mark.slow
def test_a_page_about_one_model_of_ten(done):
    page = (done / "paper.html").read_text(encoding="utf-8")
    assert "R-Gem-2B" in page
    assert "not among --models" in page  # the other nine
    assert "<script" not in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert "it is over all ten models, and 1 were scored" in page  # Figures 2C and 5B
    names = {path.name for path in (done / "runs").iterdir()}
    assert names == {"paper", "ours"}


@pytest.mark.slow
def test_its_values_are_written_in_the_form_of_the_published_ones(done):
    own = data.read(done / "own")
    assert set(own.numbers["model"]) == {"R-Gem-2B"}
    assert {"table_3", "figure_5a"} <= set(own.numbers["exhibit"])
    assert set(own.tokens["exhibit"]) == {"table_2", "table_a6", "table_a7"}


@pytest.mark.slow
def test_compared_with_its_own_values_everything_is_the_same(command, done, folders, elo):
    more = (f"--elo={elo}", "--only=page", f"--published={done / 'own'}")
    found = command("reproduce", *flags(done, folders, *more))
    assert found.code == 0
    pattern = r"\(\d+ same, 0 within noise, 0 differs, 0 not run; \d+ not counted\)"
    assert re.search(pattern, found.out[-1])


@pytest.mark.slow
def test_compared_with_the_paper_nothing_is_the_same(command, done, folders, elo):
    found = command("reproduce", *flags(done, folders, f"--elo={elo}", "--only=page"))
    assert re.search(
        r"\(0 same, 0 within noise, \d+ differs, \d+ not run; \d+ not counted\)", found.out[-1]
    )


@pytest.mark.slow
def test_a_second_call_computes_nothing(command, done, folders, elo):
    before = parts(done)
    found = command("reproduce", *flags(done, folders, f"--elo={elo}"))
    assert found.code == 0
    assert "R-Gem-2B: complete already" in found.err
    assert parts(done) == before


STOPS = {  # stage -> line of progress, or file that appears, at which the command is killed
    "convert": "[1/1]",
    "sweep": "runs/paper/scores/*/*/part-*.parquet",
    "second reading": "runs/ours/scores/*/*/part-*.parquet",
    "items": "R-Gem-2B: items",
    "search": "R-Gem-2B: search",
    "page": "tables: ",
}


@pytest.mark.slow
def test_killed_in_every_stage_it_goes_on_to_the_same_bytes(command, done, folders, elo, tmp_path):
    arguments = flags(tmp_path / "root", folders, f"--elo={elo}")
    for stop in STOPS.values():
        killed_at(stop, arguments, tmp_path)
        assert not (tmp_path / "root" / "paper.html").exists()
    found = command("reproduce", *arguments)
    assert found.code == 0
    assert "R-Gem-2B: complete already" in found.err
    assert parts(tmp_path / "root") == parts(done)
    assert (tmp_path / "root" / "paper.html").exists()


def killed_at(stop, arguments, folder):
    """Runs the command, and kills it as soon as a line is printed or a file is there."""
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "launch.reproduce", *arguments],
            cwd=ROOT,
            stderr=output,
            stdout=output,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        ends = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < ends:
            files = list((folder / "root").glob(stop)) if "/" in stop and "*" in stop else []
            if files or stop in log.read_text():
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.01)
    assert process.wait() == -signal.SIGKILL, log.read_text()


@pytest.mark.slow
def test_one_model_that_fails_does_not_stop_the_rest(command, folders, tmp_path):
    broken = tmp_path / "models"
    broken.mkdir()
    hub = known_models.KNOWN[GEMMA].hub_id.replace("/", "--")
    (broken / hub).symlink_to(folders / hub)
    tiny.write_model(broken / SKYWORK, nan_head=True)
    both = flags(tmp_path / "root", broken, "--only=sweep,page", models=(SKYWORK, GEMMA))
    found = command("reproduce", *both)
    assert found.code == 1
    assert found.err[-1].startswith("reproduce: 1 of 2 models failed: S-Gem-27B; ")
    (row,) = [line for line in found.err if line.startswith("S-Gem-27B  ")]
    assert "0/6" in row
    assert "not finite" in row
    assert any(line.startswith("R-Gem-2B") and "6/6" in line for line in found.err)
    page = (tmp_path / "root" / "paper.html").read_text(encoding="utf-8")
    assert "sweep 6 of 6" in page
    assert "not finite" in page


@pytest.mark.slow
def test_keep_none_removes_checkpoints_and_never_a_users_folder(command, folders, tmp_path):
    root = tmp_path / "root"
    arguments = flags(root, folders, "--only=sweep", "--keep=none", "--config.searched=")
    before = sorted(folders.rglob("*"))
    found = command("reproduce", *arguments)
    assert found.code == 0
    assert any("removed (--keep=none)" in line for line in found.err)
    assert not (root / "checkpoints" / GEMMA).exists()
    assert sorted(folders.rglob("*")) == before
    again = command("reproduce", *arguments)
    assert "R-Gem-2B: complete already" in again.err
    assert not (root / "checkpoints" / GEMMA).exists()


@pytest.mark.parametrize(
    ("only", "left"),
    [("page", "sweep, search"), ("logprobs", "sweep, search"), ("items", "sweep, search")],
)
def test_keep_none_keeps_what_a_stage_outside_of_only_needs(command, folders, tmp_path, only, left):
    """--only=page used to remove the checkpoint of a model without any result."""
    checkpoint = tmp_path / "root" / "checkpoints" / GEMMA
    checkpoint.mkdir(parents=True)
    (checkpoint / "kept").touch()
    more = (f"--only={only}", "--keep=none")
    found = command("reproduce", *flags(tmp_path / "root", folders, *more))
    assert found.code == 0
    assert f"R-Gem-2B: checkpoint kept, {left} not complete" in found.err
    assert (checkpoint / "kept").exists()
    (row,) = [line for line in found.err if line.startswith("R-Gem-2B  ")]
    assert row.endswith("nothing to compute")


def test_a_plan_prints_a_table_and_writes_nothing(command, tmp_path, monkeypatch):
    monkeypatch.setattr("engine.convert.downloads.snapshot", None)  # no network
    root = tmp_path / "root"
    found = command("reproduce", f"--root={root}", "--plan", "--devices=8xH100-80GB,cpu-24GB")
    assert (found.code, found.err) == (0, [])
    rows = {line.split()[0]: line for line in found.out if line}
    assert "6.0 GiB " in rows["R-Lla-3B"]  # the registry's bytes
    assert "14.0 GiB*" in rows["R-Lla-8B"]  # expected from the shapes
    assert "sweep 6/6, search 2/2" in rows["R-Lla-8B"]
    assert "logprobs 3/3" in rows["gemma-2-9b"]
    assert "too large" in rows["N-Gem-27B"]
    assert "with --keep=none" in "".join(found.out)
    assert not root.exists()


@pytest.mark.slow
def test_a_plan_counts_what_is_complete(command, done, folders, elo):
    more = (f"--elo={elo}", "--plan", "--devices=cpu-8GB")
    found = command("reproduce", *flags(done, folders, *more))
    (row,) = [line for line in found.out if line.startswith("R-Gem-2B")]
    assert "complete already" in row


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


@pytest.mark.slow
def test_a_folder_with_one_model_of_several_is_no_refusal(command, folders, tmp_path):
    """What it lacks is said in one line; the page is about the rest."""
    one = tmp_path / "models"
    one.mkdir()
    (one / SKYWORK).symlink_to(folders / SKYWORK)
    both = flags(tmp_path / "root", one, "--only=convert", models=(GEMMA, SKYWORK))
    found = command("reproduce", *both)
    assert found.code == 1
    assert found.err[0] == f"--source-dir={one}: no folder of 1 of 2 models: R-Gem-2B"
    rows = {line.split()[0]: line for line in found.err}
    assert rows["S-Gem-27B"].endswith("converted")
    assert "failed: --source-dir=" in rows["R-Gem-2B"]
    planned = command("reproduce", *both, "--plan", "--devices=cpu-8GB")
    assert "no folder in --source-dir: R-Gem-2B" in planned.out


def test_published_values_of_an_unknown_exhibit_are_refused_before_any_work(command, tmp_path):
    own = data.read()
    unknown = own.numbers.head(1).with_columns(exhibit=pl.lit("figure_9"))
    data.Published(models=own.models, numbers=unknown, tokens=own.tokens).write(tmp_path / "own")
    found = command("reproduce", f"--root={tmp_path / 'root'}", f"--published={tmp_path / 'own'}")
    assert found.code == 2
    assert "no numbers 'figure_9 mean'; allowed: " in found.err[0]
    assert not (tmp_path / "root").exists()


def test_a_page_may_be_made_where_the_second_dtype_would_be_the_first(command, tmp_path):
    """A run of a GPU in bfloat16 and float32, its page on a CPU."""
    more = ("--only=page", "--config.second_dtype=float32")
    assert command("reproduce", *flags(tmp_path / "root", tmp_path, *more)).code == 0


def test_a_page_needs_no_folder(command, tmp_path):
    found = command("reproduce", *flags(tmp_path / "root", tmp_path, "--only=page"))
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
            planning,
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

    monkeypatch.setattr(planning, "free_disk", free)
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


def test_a_folder_of_other_weights_is_the_models_one_line(command, folders, tmp_path):
    """The registry knows the bytes of R-Gem-2B; a tiny model is not it."""
    named = [f for f in flags(tmp_path / "root", folders) if "check_identity" not in f]
    found = command("reproduce", *named, "--only=sweep")
    assert found.code == 1
    (row,) = [line for line in found.err if line.startswith("R-Gem-2B  ")]
    assert re.search("failed: .*(published|registry|listed|own files)", row)
    assert not (tmp_path / "root" / "checkpoints" / GEMMA).exists()
