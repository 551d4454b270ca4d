"""`assay reproduce` takes no finished result that was begun as the call does not ask for it."""

import re
import shutil

import pytest

from engine.errors import AssayError, OutOfMemory
from engine.runs import schema
from engine.runs.reader import RunError
from engine.sweep import rewards
from launch import reproduce
from launch.reproduction import singles, sources
from tests.support import tiny
from tests.support.reproduction import GEMMA, ITEMS, counts, flags, write_items, write_models

pytestmark = pytest.mark.slow

NOISE = "--config.second_dtype=bfloat16"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Folders of models, and items with human ranks."""
    folder = tmp_path_factory.mktemp("files")
    write_models(folder / "models")
    write_items(folder)
    return folder


@pytest.fixture(scope="module")
def done(files, tmp_path_factory):
    """A root with every result of one model, with those that measure the noise."""
    root = tmp_path_factory.mktemp("done") / "root"
    assert reproduce.main(call(root, files, NOISE)) == 0
    return root


def call(root, files, *more, models=None):
    elo = f"--elo={files / 'items.csv'}"
    return flags(root, models or files / "models", elo, *more)


def refused(command, root, arguments, message):
    """A call, its page and its plan are refused in that one line; nothing changes."""
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    for more in ((), ("--only=page",), ("--plan", "--devices=cpu-8GB")):
        found = command("reproduce", *arguments, *more)
        assert (found.code, found.out) == (2, [])
        (line,) = found.err
        assert re.search(message, line), line
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    return True


SWEPT, SEARCHED = r"scores/model=\S+ was begun with ", r"sequences/model=\S+ was begun with "


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("dtype=bfloat16", SWEPT + "dtype='float32', not 'bfloat16'; allowed: the settings"),
        ("dtype=float16", SWEPT + "dtype='float32', not 'float16'"),
        ("step_size=8", SWEPT + r"step_size=\d+, not 8"),
        ("search.steps=3", SEARCHED + "steps=2, not 3; allowed: the settings"),
        ("search.candidates=5", SEARCHED + "candidates=4, not 5"),
        ("search.length=3", SEARCHED + "length=2, not 3"),
        ("search.merge=2", SEARCHED + "merge left at its default, not 2"),
        ("search.wrong_sign=false", SEARCHED + "wrong_sign=True, not False"),
        ("search.dtype=bfloat16", SEARCHED + "dtype='float32', not 'bfloat16'"),
        ("second_dtype=float16", "noise: " + SWEPT + "dtype='bfloat16', not 'float16'"),
    ],
)
def test_a_finished_result_of_another_setting_is_refused(command, done, files, setting, message):
    """It was taken, and the page said that it was computed as asked."""
    assert refused(command, done, call(done, files, f"--config.{setting}"), message)


def test_a_model_whose_run_has_the_second_dtype_has_no_noise(command, done, files, tmp_path):
    """A GRM in float16 on an accelerator: a noise of 0 at first, and a refusal by the next call."""
    root = tmp_path / "root"
    shutil.copytree(done / "runs" / "noise", root / "runs" / "paper")
    shutil.copytree(done / "runs" / "ours", root / "runs" / "ours")
    found = command("reproduce", *call(root, files, "--only=sweep,items,page", NOISE))
    assert found.code == 0, found.err
    assert "R-Gem-2B: complete already" in found.err
    assert not (root / "runs" / "noise" / "manifest.json").exists()
    page = (root / "paper.html").read_text()
    assert "No noise for R-Gem-2B: the run is in bfloat16 already." in page


def test_other_items_and_other_ranks_under_one_name_are_refused(command, done, files, tmp_path):
    asked = call(done, files)
    for items, best, message in (
        (ITEMS[::-1], 1700, "has the list 'items' with items_hash='[0-9a-f]+', not '[0-9a-f]+'"),
        (ITEMS[:-1], 1700, "has the list 'items' with rows=6, not 5, items_hash="),
        (
            ITEMS,
            1800,
            "other human scores of the list 'items' are there already; allowed: the same",
        ),
    ):
        other = f"--elo={write_items(tmp_path / str(best) / items[0], items, best)}"
        assert refused(command, done, [*asked, other], message)
    plain = tmp_path / "items.txt"
    plain.write_text("\n".join(ITEMS))
    assert refused(command, done, [*asked, f"--elo={plain}"], "other human scores of the list")


ANOTHER = (
    f"results of {GEMMA} below .*: converted from another model.safetensors than that of .*; "
    "allowed: the folder that they were computed from, or another --root"
)


def test_other_weights_are_refused_with_nothing_left_to_do(command, done, files, tmp_path):
    """With the checkpoint, and when --keep=none has removed it."""
    other = tmp_path / "other"
    tiny.write_model(other / GEMMA, seed=7)
    asked = (done, files), {"models": other}
    for only in ("sweep", "page", "search"):
        found = command("reproduce", *call(*asked[0], f"--only={only}", **asked[1]))
        assert (found.code, found.out, len(found.err)) == (2, [], 1)
        assert re.search(ANOTHER, found.err[0])
    root = shutil.copytree(done, tmp_path / "root")
    freed = command("reproduce", *call(root, files, "--only=sweep", "--keep=none"))
    assert freed.code == 0 and not (root / "checkpoints" / GEMMA).exists()
    found = command("reproduce", *call(root, files, models=other))
    assert found.code == 2
    assert re.search(ANOTHER, found.err[0])


def test_keep_none_removes_a_damaged_checkpoint_of_complete_results(command, done, files, tmp_path):
    """Its card was read to be noted, so the model failed in every call."""
    root = shutil.copytree(done, tmp_path / "root")
    (root / "checkpoints" / GEMMA / "model.json").write_text("{")
    found = command("reproduce", *call(root, files, "--only=sweep", "--keep=none"))
    assert found.code == 0, found.err
    assert not (root / "checkpoints" / GEMMA).exists()
    assert (root / "sources" / GEMMA / "model.json").exists()


def test_another_checkpoint_than_that_of_the_results_is_refused(command, done, files, tmp_path):
    """The model was converted anew from other weights, and no result is missing."""
    root, other = shutil.copytree(done, tmp_path / "root"), tmp_path / "other"
    tiny.write_model(other / GEMMA, seed=7)
    shutil.rmtree(root / "checkpoints" / GEMMA)
    anew = command("reproduce", *call(root, files, "--only=convert", models=other))
    assert anew.code == 0
    asked = call(root, files, models=other)
    message = SWEPT + "checkpoint_hash='[0-9a-f]+', not '[0-9a-f]+' of checkpoint"
    assert refused(command, root, asked, message)


def test_a_model_is_opened_once_for_all_its_results(command, done, files, monkeypatch):
    opened, present = [], sources.present

    def counted(asked, spec):
        opened.append(spec)
        return present(asked, spec)

    monkeypatch.setattr(sources, "present", counted)
    more = ("--plan", "--devices=cpu-8GB", NOISE)
    assert command("reproduce", *call(done, files, *more)).code == 0
    assert len(opened) == 1


def test_the_same_files_elsewhere_and_settings_of_speed_are_taken(command, done, files, tmp_path):
    shutil.copytree(files / "models", tmp_path / "models")
    more = ("--only=sweep,items,search", "--config.search.every=1", "--config.part_size=128", NOISE)
    found = command("reproduce", *call(done, files, *more, models=tmp_path / "models"))
    assert found.code == 0
    assert "R-Gem-2B: complete already" in found.err


def test_values_of_the_second_dtype_are_within_the_noise(command, done, files, tmp_path):
    """The published values are those of the noise run: no further away than the noise, all of them.

    Without a second dtype the same values differ, and the page says how the noise is measured.
    """
    other, page = tmp_path / "root", done / "paper.html"
    shutil.copytree(done / "runs" / "noise", other / "runs" / "paper")
    only = ("--only=page", "--config.searched=")
    assert command("reproduce", *call(other, files, *only)).code == 0
    against = (*only, f"--published={other / 'own'}")
    found = counts(command("reproduce", *call(done, files, *against, NOISE)).out[-1])
    assert found["within noise"] > NOISY
    assert found["differs"] == 0
    said = "the same conventions in bfloat16: 1 of 1 models, 4 of 4 results."
    assert said in page.read_text()
    without = counts(command("reproduce", *call(done, files, *against)).out[-1])
    assert without["within noise"] == 0
    assert without["differs"] == found["within noise"]
    assert without["same"] == found["same"]
    assert "--config.second_dtype=bfloat16 computes the paper’s conventions" in page.read_text()


NOISY = 10


def test_a_model_too_large_for_the_second_dtype_has_all_other_results(
    command, files, tmp_path, monkeypatch
):
    sweep = rewards.sweep_vocabulary

    def short(models, prompts, run, settings, mesh):
        if settings.dtype == "bfloat16":
            raise failures[0]
        return sweep(models, prompts, run, settings, mesh)

    def no_room(*given):
        raise AssayError("no room")

    def row():
        found = command("reproduce", *call(tmp_path / "root", files, *one, NOISE))
        assert found.code == 1
        return next(line for line in found.err if line.startswith("R-Gem-2B  "))

    monkeypatch.setattr(reproduce, "sweep_vocabulary", short)
    one = ("--config.prompts=greatest", "--only=sweep,items,search,readings")
    one += ("--readings=all", "--config.dimensions=pooling")
    failures = [RunError("a damaged run")]
    with monkeypatch.context() as full:
        full.setattr(singles, "compute", no_room)
        assert row().endswith("failed: a damaged run")  # that is no matter of the noise
        failures = [OutOfMemory("too large in bfloat16")]
        assert row().endswith("failed: too large in bfloat16; no room")
    assert re.search(r"2/3 +2/3 +2/2 +([1-9])/\1 .* failed: too large in bfloat16$", row())


def test_a_plan_counts_the_second_dtype_by_its_own_speed(command, tmp_path):
    plan = (f"--root={tmp_path / 'root'}", "--plan", "--readings=none", "--devices=1xH100-80GB")
    both = [command("reproduce", *plan, *more) for more in ((), ("--config.second_dtype=float32",))]
    assert not any(line.startswith("noise between dtypes: the paper") for line in both[0].out)
    (line,) = [line for line in both[1].out if line.startswith("noise between dtypes: the paper")]
    assert re.search(
        r"in float32 too, .* on 1xH100-80GB, counted in the times above; too large", line
    )
    assert line.endswith("N-Gem-27B, S-Gem-27B-v0.2, S-Gem-27B")
    rows = [line for line in both[1].out if line.startswith("R-Gem-2B")]
    assert "sweep 9/9" in rows[0]


def test_ranks_that_come_after_the_rewards_are_written(command, done, files, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(done, root)
    written = [root / "runs" / one / schema.humans_path("items") for one in ("paper", "ours")]
    for path in written:
        path.unlink()
    assert command("reproduce", *call(root, files)).code == 0
    assert all(path.exists() for path in written)
