"""The outline of the page: headlines, groups, the chart beside an answer, empty sections."""

import dataclasses

import pytest

from analysis.blocks import Finding, Heading, Mark, Marks, Picture, Under
from analysis.report import outline, page
from analysis.report.explorer import Packed
from analysis.study import Analysis, Section
from tests.support import charts

NOTHING = Packed(meta={"rows": 0, "models": [], "prompts": []}, blobs=[])


def section(name, *texts, blocks=None, picture=""):
    """A section with a figure and the findings `texts`."""
    figure = Picture(f"{name}_figure", "What it shows.", lambda: None)
    return Section(
        analysis=Analysis(
            id=name,
            title=f"All about {name}",
            label=name.title(),
            lead="",
            make=lambda study: [],
            parts=(),
        ),
        blocks=[figure] if blocks is None else blocks,
        findings=[Finding(text=text, picture=picture) for text in texts],
    )


@pytest.fixture
def source(small_run, study_of):
    """Sections -> the page."""
    return lambda *sections: page.render(study_of(small_run), sections, charts.Undrawn(), NOTHING)


def top(source):
    return source.split('<section id="headlines">')[1].split("</section>")[0]


def test_the_first_finding_of_each_section_in_the_order_of_the_page_at_most_five():
    sections = [section("framing", "F1", "F2"), section("own", "O"), section("sentiment")]
    found = outline.headlines([*sections, section("another", "X")])
    assert [finding.text for _, finding in found] == ["F1", "O", "X"]
    found = outline.headlines([section(name, name) for name in "abcdefg"])
    assert [finding.text for _, finding in found] == list("abcde")


def test_a_finding_shows_its_marks_and_a_figure_of_its_own_section(source):
    marks = Marks.some([Mark("m<1>", 0.25, -0.5, 0.75)], "r")
    shown = top(source(dataclasses.replace(section("framing", "τ is <0."), marks=marks)))
    assert "τ is &lt;0." in shown and "m&lt;1&gt;" in shown
    assert "--low: 0.0; --high: 100.0; --at: 60.0" in shown
    with pytest.raises(ValueError, match="'own_figure'"):
        source(section("framing", "τ is small.", picture="own_figure"), section("own"))


def test_the_chart_beside_an_answer_follows_the_question():
    blocks = [Heading("Far"), *(Picture(stem, "", lambda: None) for stem in ("a_x", "a_y", "all"))]
    beside = outline.charts(section("framing", "F", blocks=blocks), ["x", "y", "z"])
    assert {of: chart.stem for of, chart in beside.items()} == {"x": "a_x", "y": "a_y"}
    framing = section("framing", "F", blocks=blocks, picture="a_y")
    assert outline.charts(framing, ["x", "y"]) == {"": blocks[2]}
    assert outline.without(blocks[:3], blocks[1:3]) == []
    assert outline.without(blocks, [blocks[3]]) == blocks[:3]


def test_charts_of_every_question_take_turns_and_others_stay():
    prompts = ["a", "b"]
    pictures = [Picture(stem, "", lambda: None) for stem in ("x_a", "x_b", "y_a", "z")]
    turns = [outline.question(picture, pictures, prompts) for picture in pictures]
    assert turns == ["a", "b", "", ""]
    assert outline.question(Under("a", pictures), [], prompts) == "a"
    assert outline.question(Under("a", pictures), [], ["a"]) == ""
