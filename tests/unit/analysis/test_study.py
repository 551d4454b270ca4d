"""Adding an analysis: one chapter, and one line in the list."""

import dataclasses
import importlib.util
from pathlib import Path

import altair as alt
import polars as pl
import pytest

import analysis
from analysis import CHAPTERS
from analysis.blocks import Picture, Section, notes, rows
from analysis.chapters import agreement, model_list, tokens
from analysis.charts import look
from analysis.report import write_report
from analysis.study import Absent, Study, Tables, required, table
from engine.errors import AssayError


@dataclasses.dataclass
class Lengths:
    """How long the highest token of each model is, as a chapter."""

    reason: str = ""

    def tables(self, study):
        """token_lengths.csv. For the figure: ("token_lengths_doubled",)."""
        yield table("token_lengths", make=lambda: self.lengths(study))
        yield table("token_lengths_doubled", make=lambda: self.doubled(study), file=False)

    def lengths(self, study: Study):
        """model, length."""
        if self.reason:
            raise Absent(self.reason)
        highest = study.tables["top_bottom", "greatest"].filter(end="top", rank=1)
        return highest.select("model", length=pl.col("token").str.len_chars())

    def doubled(self, study):
        """model, length."""
        return study.tables["token_lengths"].with_columns(pl.col("length") * 2)

    def bars(self, doubled):
        """One bar per model."""
        return alt.Chart(look.data(doubled)).mark_bar().encode(x="length:Q", y="model:N")

    def section(self, study):
        """The bars, the numbers, or the reason why there are none."""
        lengths = study.tables.get("token_lengths")
        doubled, picture = study.tables.get("token_lengths_doubled"), []
        if doubled is not None:
            picture = [Picture("token_lengths", "Longer is longer.", lambda: self.bars(doubled))]
        columns = [("model", "model", "model"), ("length", "characters", "count")]
        return Section(
            id="lengths",
            title="Lengths of tokens",
            label="Lengths",
            lead="How long are the tokens that models like?",
            blocks=[
                *notes([study.tables.reason("token_lengths")]),
                *picture,
                *rows(lengths, columns, "token_lengths.csv"),
            ],
            caveats=["Characters are not bytes."],
        )


def report_of(small_run, folder, settings, chapter):
    run = analysis.load(small_run)
    return write_report(run, folder, {}, settings, chapters=[*CHAPTERS[:3], chapter]).parent


def test_an_added_chapter_has_its_table_its_figure_and_its_section(small_run, tmp_path, settings):
    report = report_of(small_run, tmp_path / "report", settings, Lengths())
    written = (report / "tables" / "token_lengths.csv").read_text(encoding="utf-8")
    assert written == "model,length\nm-one,5\nm-two,4\n"
    assert not (report / "tables" / "token_lengths_doubled.csv").exists()
    assert (report / "figures" / "token_lengths.svg").stat().st_size > 0
    page = (report / "index.html").read_text(encoding="utf-8")
    section = page.split('<article id="lengths"')[1].split("</article>")[0]
    for part in ("Lengths of tokens", "tokens that models like?", "Longer is longer.", ">5<"):
        assert part in section
    assert "Characters are not bytes." in section
    assert 'href="tables/token_lengths.csv"' in section
    assert 'data-chart="token_lengths"' in section
    assert 'id="chart-token_lengths">{"data":{"values":[' in page
    assert '<a href="#lengths">Lengths</a>' in page


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
    assert '<article id="capitals"' in (report / "index.html").read_text(encoding="utf-8")


def test_a_table_that_cannot_be_made_is_a_sentence_and_no_file(
    light, small_run, tmp_path, settings
):
    chapter = Lengths(reason="Tokens have <no> length here.")
    report = report_of(small_run, tmp_path / "report", settings, chapter)
    assert not (report / "tables" / "token_lengths.csv").exists()
    page = (report / "index.html").read_text(encoding="utf-8")
    assert '<a href="#lengths">' not in page
    group = page.split('<section id="method"')[1].split("</section>")[0]
    assert '<b id="lengths">Lengths</b>: Tokens have &lt;no&gt; length here.' in group
    assert "Characters are not bytes." not in page


@pytest.mark.parametrize(
    "before",
    [(), (tokens.ANALYSIS,), (model_list.ANALYSIS, tokens.ANALYSIS, agreement.ANALYSIS)],
)
def test_a_report_may_have_few_chapters(small_run, tmp_path, settings, before):
    chapters = [*before, capitals()]
    page = write_report(analysis.load(small_run), tmp_path / "r", {}, settings, chapters=chapters)
    text = page.read_text(encoding="utf-8")
    assert 'id="capitals">' in text
    assert "share no tokens" not in text


@pytest.fixture
def tables():
    made = Tables()
    made.add(table("one", make=lambda: pl.DataFrame({"x": [1]})))
    made.add(table("per", "prompt", make=lambda: pl.DataFrame({"x": [2]}), file=False))
    made.add(table("none", make=lambda: required(pl.DataFrame({"x": []}), "Nothing is there.")))
    return made


def test_tables_are_found_by_their_keys(tables):
    assert tables["one"]["x"].item() == 1
    assert tables["per", "prompt"].equals(tables.get("per", "prompt"))
    assert list(tables.of("per")) == [("prompt",)]
    assert list(tables.files) == ["one"]
    assert tables.reason("one") is None


def test_the_reason_of_a_table_is_the_reason_of_those_made_from_it(tables):
    tables.add(table("after", make=lambda: tables["none"]))
    assert tables.reason("after") == tables.reason("none") == "Nothing is there."
    assert tables.get("after") is None


def test_a_table_that_no_chapter_makes_is_a_mistake(tables):
    with pytest.raises(LookupError, match=r"table \('two',\): not made by this chapter or one bef"):
        tables["two"]


def test_two_tables_of_one_name_are_a_mistake(tables):
    with pytest.raises(ValueError, match=r"table \('one',\): made twice"):
        tables.add(table("one", make=pl.DataFrame))


def test_two_tables_of_one_file_are_a_mistake(tables):
    tables.add(table("a_b", "c", make=pl.DataFrame))
    with pytest.raises(AssayError, match=r"table a_b_c.csv: made twice, because the names of two"):
        tables.add(table("a", "b_c", make=pl.DataFrame))


def test_a_chapter_cannot_read_a_table_of_a_later_one(small_run, settings):
    with pytest.raises(LookupError, match="not made by this chapter or one before it in the list"):
        analysis.compute(analysis.load(small_run), {}, settings, [Lengths(), *CHAPTERS])
