"""Adding an analysis: one chapter, and one line in the list."""

import dataclasses
import importlib.util
from pathlib import Path

import polars as pl
import pytest

import analysis
from analysis import CHAPTERS
from analysis.report import write_report
from analysis.study import Tables, required, table
from engine.errors import AssayError


def report_of(small_run, folder, settings, chapter):
    run = analysis.load(small_run)
    return write_report(run, folder, {}, settings, chapters=[*CHAPTERS[:3], chapter]).parent


def capitals():
    """The example of the guide."""
    guide = Path(__file__).parents[3] / "docs" / "extend" / "capitals.py"
    spec = importlib.util.spec_from_file_location("capitals", guide)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(guide.read_text(encoding="utf-8").splitlines()) <= 60
    return module.ANALYSIS


def test_the_example_of_the_guide_is_a_chapter(make_run, tmp_path, settings):
    words = [" love", " Love", " hate", " Hate", " joy", " Joy"]
    run = make_run({"v": words}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    report = report_of(run, tmp_path / "report", settings, capitals())
    table = pl.read_csv(report / "tables" / "capitals.csv")
    assert table.select("model", "prompt", "n").rows() == [("m", "greatest", 3)]
    assert table["difference"].item() == pytest.approx(1 / 6)
    assert (report / "figures" / "capitals.svg").exists()
    page = (report / "index.html").read_text(encoding="utf-8")
    section = page.split('<article id="capitals"')[1].split("</article>")[0]
    assert 'data-chart="capitals"' in section
    assert 'id="chart-capitals">{"data":{"values":[' in page
    assert 'href="tables/capitals.csv"' in section and '<a href="#capitals">' in page


@pytest.fixture
def tables():
    made = Tables()
    made.add(table("one", make=lambda: pl.DataFrame({"x": [1]})))
    made.add(table("per", "prompt", make=lambda: pl.DataFrame({"x": [2]}), file=False))
    made.add(table("none", make=lambda: required(pl.DataFrame({"x": []}), "Nothing is there.")))
    return made


def test_tables_are_found_by_their_keys_and_give_their_reason_to_those_made_from_them(tables):
    assert tables["one"]["x"].item() == 1
    assert tables["per", "prompt"].equals(tables.get("per", "prompt"))
    assert list(tables.of("per")) == [("prompt",)]
    assert list(tables.files) == ["one"]
    assert tables.reason("one") is None
    tables.add(table("after", make=lambda: tables["none"]))
    assert tables.reason("after") == tables.reason("none") == "Nothing is there."
    assert tables.get("after") is None


def test_a_table_that_no_chapter_makes_and_two_of_one_name_or_file_are_mistakes(tables):
    with pytest.raises(LookupError, match=r"\('two',\)"):
        tables["two"]
    with pytest.raises(ValueError, match=r"\('one',\)"):
        tables.add(table("one", make=pl.DataFrame))
    tables.add(table("a_b", "c", make=pl.DataFrame))
    with pytest.raises(AssayError, match=r"a_b_c\.csv"):
        tables.add(table("a", "b_c", make=pl.DataFrame))


def test_a_prompt_is_called_by_its_words_or_by_its_id_where_that_is_one_of_them(
    small_run, study_of
):
    asked = {"best": "Which is the Best?", "best.chat": "Which is the Best?", "q-7": "Why  so?"}
    asked |= {"p1": "Who?", "p2": "Who?"}  # would be called alike
    run = dataclasses.replace(analysis.load(small_run), prompts=asked)
    names = study_of(run).prompt_names
    called = [names[prompt] for prompt in asked]
    assert called == ["“best”", "“best” (chat)", "“Why so?”", "“p1”", "“p2”"]
