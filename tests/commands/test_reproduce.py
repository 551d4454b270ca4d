"""`assay reproduce` on tiny models that stand in for two of the paper's, killed in every stage.

It takes no finished result that was begun as the call does not ask for it.
"""

import re
import shutil

import pytest

from analysis.published import data, tables
from launch import reproduce
from tests.support import tiny
from tests.support.folders import files_of
from tests.support.killed import Killed, killed_writing
from tests.support.reproduction import (
    GEMMA,
    ITEMS,
    SKYWORK,
    SPEC,
    counts,
    flags,
    rows,
    write_items,
    write_models,
)

NOISE = "--config.second_dtype=bfloat16"
PLAN = ("--plan", "--devices=cpu-8GB")
slow = pytest.mark.slow


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


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    """The page of `done` has them."""
    monkeypatch.setattr(tables, "draw", lambda *given: {})


def call(root, files, *more):
    return flags(root, files / "models", f"--elo={files / 'items.csv'}", *more)


@slow
def test_a_page_about_one_model_of_ten(done):
    text = (done / "paper.html").read_text(encoding="utf-8")
    assert "R-Gem-2B" in text
    assert "not among --models" in text  # the other nine
    assert "<script" not in text
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert "it is over all ten models, and 1 were scored" in text  # Figures 2C and 5B
    assert {path.name for path in (done / "runs").iterdir()} == {"paper", "ours", "noise"}
    own = data.read(done / "own")
    assert set(own.numbers["model"]) == {"R-Gem-2B"}
    assert {"table_3", "figure_5a"} <= set(own.numbers["exhibit"])
    assert set(own.tokens["exhibit"]) == {"table_2", "table_a6", "table_a7"}


@slow
def test_its_own_values_are_the_same_and_the_papers_are_not(command, done, files):
    against = f"--published={done / 'own'}"
    said = counts(command("reproduce", *call(done, files, "--only=page", against)).out[-1])
    assert said["same"] > 50
    assert (said["within noise"], said["differs"], said["not run"]) == (0, 0, 0)
    said = counts(command("reproduce", *call(done, files, "--only=page")).out[-1])
    assert said["differs"] > 10
    assert (said["same"], said["within noise"]) == (0, 0)


@slow
def test_a_second_call_computes_nothing(command, done, files):
    before = files_of(done, "*.parquet")
    found = command("reproduce", *call(done, files, NOISE)).fine()
    assert "R-Gem-2B: complete already" in found.err
    assert files_of(done, "*.parquet") == before
    planned = command("reproduce", *call(done, files, *PLAN))
    assert "complete already" in rows(planned.out)["R-Gem-2B"]
    of_speed = (NOISE, "--only=sweep,items,search", "--config.part_size=128")
    found = command("reproduce", *call(done, files, *of_speed, "--config.search.every=1"))
    assert "R-Gem-2B: complete already" in found.err


KILLS = {  # in the path of files -> how many of them are written
    "/scores/": 3,
    "/items/": 2,
    ".safetensors": 1,
    "/noise/": 2,
    "/own/": 1,
}


@slow
def test_killed_in_every_stage_it_goes_on_to_the_same_bytes(command, done, files, tmp_path):
    root = tmp_path / "root"
    arguments = call(root, files, NOISE, "--config.search.every=1")
    for name, count in KILLS.items():
        with pytest.MonkeyPatch.context() as patch:
            killed_writing(patch, name, count)
            with pytest.raises(Killed):
                reproduce.main(arguments)
        assert (root / "checkpoints" / GEMMA).exists()
        assert not (root / "paper.html").exists()
    found = command("reproduce", *arguments).fine()
    assert "R-Gem-2B: complete already" in found.err
    assert files_of(root / "runs", "*.parquet") == files_of(done / "runs", "*.parquet")
    assert [path.name for path in (root / "checkpoints").iterdir()] == [GEMMA]


@slow
def test_one_model_that_fails_does_not_stop_the_rest(command, files, tmp_path):
    broken, hub = tmp_path / "models", SPEC.hub_id.replace("/", "--")
    broken.mkdir()
    (broken / hub).symlink_to(files / "models" / hub)
    tiny.write_model(broken / SKYWORK, nan_head=True)
    both = flags(tmp_path / "root", broken, "--only=sweep,page", models=(SKYWORK, GEMMA))
    found = command("reproduce", *both)
    assert found.code == 1
    assert found.err[-1].startswith("reproduce: 1 of 2 models failed: S-Gem-27B; ")
    table = rows(found.err)
    assert "0/6" in table["S-Gem-27B"] and "not finite" in table["S-Gem-27B"]
    assert "6/6" in table["R-Gem-2B"]
    text = (tmp_path / "root" / "paper.html").read_text(encoding="utf-8")
    assert "sweep 6 of 6" in text and "not finite" in text


def refused(command, root, arguments, message):
    """A call, its page and its plan are refused in that one line; nothing changes."""
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    for more in ((), ("--only=page",), PLAN):
        line = command("reproduce", *arguments, *more).refusal()
        assert re.search(message, line), line
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


SWEPT, SEARCHED = r"scores/model=\S+ was begun with ", r"sequences/model=\S+ was begun with "


@slow
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("dtype=bfloat16", SWEPT + "dtype='float32', not 'bfloat16'; allowed: the settings"),
        ("search.steps=3", SEARCHED + "steps=2, not 3; allowed: the settings"),
        ("second_dtype=float16", "noise: " + SWEPT + "dtype='bfloat16', not 'float16'"),
    ],
)
def test_a_finished_result_of_another_setting_is_refused(command, done, files, setting, message):
    refused(command, done, call(done, files, f"--config.{setting}"), message)


@slow
def test_other_items_and_other_ranks_under_one_name_are_refused(command, done, files, tmp_path):
    given, people = call(done, files), "other human scores of the list 'items' are there already"
    for items, best, message in (
        (ITEMS[::-1], 1700, "list 'items' is there already with items_hash='[0-9a-f]+', not '"),
        (ITEMS[:-1], 1700, "list 'items' is there already with rows=6, not 5, items_hash="),
        (ITEMS, 1800, f"{people}; allowed: the same"),
    ):
        other = f"--elo={write_items(tmp_path / str(best) / items[0], items, best)}"
        refused(command, done, [*given, other], message)
    plain = tmp_path / "items.txt"
    plain.write_text("\n".join(ITEMS))
    refused(command, done, [*given, f"--elo={plain}"], people)


@slow
def test_values_of_the_second_dtype_are_within_the_noise(command, done, files, tmp_path):
    """The published values are those of the noise run: no further away than the noise, all of them.

    Without a second dtype the same values differ, and the page says how the noise is measured.
    """
    other, text = tmp_path / "root", done / "paper.html"
    shutil.copytree(done / "runs" / "noise", other / "runs" / "paper")
    only = ("--only=page", "--config.searched=")
    assert command("reproduce", *call(other, files, *only)).code == 0
    against = (*only, f"--published={other / 'own'}")
    found = counts(command("reproduce", *call(done, files, *against, NOISE)).out[-1])
    assert found["within noise"] > 10
    assert found["differs"] == 0
    said = "the same conventions in bfloat16: 1 of 1 models, 4 of 4 results."
    assert said in text.read_text()
    without = counts(command("reproduce", *call(done, files, *against)).out[-1])
    assert without["within noise"] == 0
    assert without["differs"] == found["within noise"]
    assert without["same"] == found["same"]
    assert "--config.second_dtype=bfloat16 computes the paper’s conventions" in text.read_text()
