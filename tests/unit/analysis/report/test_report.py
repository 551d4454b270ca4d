import csv
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import analysis
from analysis.report import folder, write_report
from analysis.report.folder import ReportError
from tests.support import runs
from tests.support.html_page import Page

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def report(light, small_run, tmp_path, infos, settings):
    write_report(analysis.load(small_run), tmp_path / "report", infos, settings)
    return tmp_path / "report"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, settings):
    """The report of the small run with its figures."""
    own = tmp_path_factory.mktemp("drawn")
    run = analysis.load(runs.small_run(own / "run"))
    return write_report(run, own / "report", {}, settings).parent


def page_of(run, tmp_path, settings, **options):
    index = write_report(analysis.load(run, **options), tmp_path / "r", {}, settings)
    return Page(index.read_text(encoding="utf-8"))


def test_tokens_survive_the_tables_byte_for_byte(light, make_run, tmp_path, settings):
    tokens = ['a"b', "a,b", "\n", "\r\n", "", " ", "\x00", "=1+1", "\ufeff", "😀"]
    run = make_run({"v": tokens}, {"m": "v"}, {("m", "greatest"): [float(i) for i in range(10)]})
    page_of(run, tmp_path, settings)
    path = tmp_path / "r/tables/shared_vocabulary.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {int(row["m"]): row["token"] for row in rows} == dict(enumerate(tokens))


def test_the_page_asks_for_nothing_outside_itself_and_every_figure_has_its_own_text(drawn):
    page = Page((drawn / "index.html").read_text(encoding="utf-8"))
    allowed = ("data:", "#", "figures/", "tables/", "cards/", "card.png", "card.md")
    assert page.addresses
    assert [address for address in page.addresses if not address.startswith(allowed)] == []
    for address in page.addresses:
        if address.startswith(("figures/", "tables/")):
            assert (drawn / address.split("#")[0]).is_file()
    described = [alt for alt in page.alts if alt]  # A chart without scripts is its label's.
    assert len(described) == len(set(described))


def test_models_come_by_rewardbench_rank(report):
    first, second = pl.read_csv(report / "tables" / "models.csv").rows()
    assert first == ("m-two", "Two", "Acme", "Gemma 2", 2.0, 7, 6)
    assert second == ("m-one", "m-one", None, None, None, None, 7)


def test_one_token_is_enough_for_a_report(light, make_run, tmp_path, settings):
    scores = {("m", "greatest"): [0.1], ("m", "worst"): [0.0]}
    page = page_of(make_run({"v": ["a"]}, {"m": "v"}, scores), tmp_path, settings)
    assert "scored 1 token, its vocabulary," in page.words


def test_unfinished_and_mixed_runs_warn_at_the_top(light, small_run, tmp_path, settings):
    def change(content):
        first, *_ = results = content["results"].values()
        first["identity"]["mode"] = "text"
        for result in results:
            del result["self_check"]

    runs.edit_run(small_run, change)
    page = page_of(small_run, tmp_path, settings, allow_incomplete=True)
    assert "not finished" in page.words and "(ids, text)" in page.words


def test_the_same_run_gives_the_same_report(report, small_run, tmp_path, infos, settings):
    page = write_report(analysis.load(small_run), tmp_path / "again", infos, settings)
    assert page.read_bytes() == (report / "index.html").read_bytes()


def test_a_report_replaces_an_older_one_whole(report, small_run, settings):
    (report / "tables" / "stale.csv").write_text("x", encoding="utf-8")
    write_report(analysis.load(small_run), report, {}, settings)
    assert not (report / "tables" / "stale.csv").exists()
    assert json.loads((report / "report.json").read_text())["kind"] == "assay-report"


def test_a_full_disk_is_refused_in_one_line_and_leaves_the_older_report(
    report, small_run, settings
):
    before = sorted(report.parent.rglob("*")), (report / "index.html").read_bytes()
    run, limit = analysis.load(small_run), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))  # the page has more
    try:
        with pytest.raises(ReportError, match=r"report: File too large"):
            write_report(run, report, {}, settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert (sorted(report.parent.rglob("*")), (report / "index.html").read_bytes()) == before


# Loaded by its path, for the package brings polars and scipy along.
_KILLED = """
import os, pathlib, runpy, signal, sys
module, report, when = sys.argv[1:]
rename = pathlib.Path.rename
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def renamed(path, target):
    die() if path.name == "new" else rename(path, target)
if when == "renaming":
    pathlib.Path.rename = renamed
with runpy.run_path(module)["staged"](pathlib.Path(report), {}) as folder:
    (folder / "index.html").write_text("half")
    if when == "writing":
        die()
"""


def left(parent):
    return [path for path in parent.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("when", ["writing", "renaming"])
def test_what_a_killed_writer_left_is_gone_a_day_later(tmp_path, when):
    report = tmp_path / "report"
    with folder.staged(report, {}) as work:
        (work / "index.html").write_text("older", encoding="utf-8")
    command = [sys.executable, "-c", _KILLED, folder.__file__, str(report), when]
    done = subprocess.run(command, cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(left(tmp_path)) == 1
    assert report.exists() == (when == "writing")
    for age, count in ((0, 1), (90_000, 0)):
        for path in left(tmp_path):
            os.utime(path, (time.time() - age,) * 2)
        with pytest.raises(ZeroDivisionError), folder.staged(report, {}):
            raise ZeroDivisionError
        assert len(left(tmp_path)) == count
    assert (report / "index.html").read_text(encoding="utf-8") == "older"


def test_what_a_living_writer_or_another_report_has_there_stays(tmp_path):
    others = [tmp_path / name for name in (".report.abcdefgh", ".report.more.abcdefgh")]
    for other in others:
        (other / "notes").mkdir(parents=True)
        os.utime(other, (0, 0))
    with folder.staged(tmp_path / "report", {}) as first:
        with folder.staged(tmp_path / "report", {}):
            assert first.is_dir()
        assert first.is_dir()
    assert sorted(left(tmp_path)) == sorted(others)


def test_what_someone_else_made_is_not_overwritten(report, small_run, tmp_path, settings):
    (tmp_path / "thesis").mkdir()
    faults = {"file": "file: ", "thesis/index.html": "thesis: ", "report/notes.txt": "'notes.txt'"}
    for name, message in faults.items():
        (tmp_path / name).write_text("mine", encoding="utf-8")
        target = tmp_path / name.partition("/")[0]
        with pytest.raises(ReportError, match=message):
            write_report(analysis.load(small_run), target, {}, settings)
        assert (tmp_path / name).read_text(encoding="utf-8") == "mine"


def test_a_report_does_not_take_the_folder_of_its_run(small_run, settings, light):
    for target in (small_run, small_run.parent):
        with pytest.raises(ReportError, match=re.escape(str(target))):
            write_report(analysis.load(small_run), target, {}, settings)


def test_a_folder_that_cannot_be_made_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    refused = pytest.raises(ReportError, match="file/report: File exists")
    with refused, folder.staged(tmp_path / "file" / "report", {}):
        pass
