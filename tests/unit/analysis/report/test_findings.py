"""The top of the page: findings, and the end of the page: sections that have nothing to show."""

import pytest

import analysis
from analysis.blocks import Finding, Folded, Heading, Picture, Section, Text
from analysis.report import findings, page
from analysis.report.explorer import Packed

NOTHING = Packed(meta={"rows": 0, "models": [], "prompts": []}, blobs=[])


def section(name, *said, blocks=None, picture=""):
    """A section with a figure and the findings `said`."""
    figure = Picture(f"{name}_figure", "What it shows.", lambda: None)
    return Section(
        id=name,
        title=f"All about {name}",
        label=name.title(),
        lead="",
        blocks=[figure] if blocks is None else blocks,
        findings=[Finding(text=text, picture=picture) for text in said],
    )


@pytest.fixture
def study(small_run, settings):
    return analysis.compute(analysis.load(small_run), {}, settings, [])


@pytest.fixture
def source(study):
    """Sections -> the page."""

    def render(*sections):
        figures = {f"{one.id}_figure": f"data:{one.id}" for one in sections}
        return page.render(study, sections, figures, NOTHING)

    return render


def top(source):
    return source.split('<section id="findings">')[1].split("</section>")[0]


def test_the_first_finding_of_each_section_in_the_order_of_the_list():
    sections = [section("framing", "F1", "F2"), section("own", "O"), section("agreement", "A")]
    found = findings.chosen([*sections, section("sentiment"), section("another", "X")])
    assert [finding.text for _, finding in found] == ["A", "F1", "O", "X"]


def test_a_section_lists_its_findings_at_most_six(source):
    own = [f"F{number}" for number in range(9)]
    text = source(section("framing", *own), section("tokens", "T & co"), section("empty"))
    listed = {
        name: text.split(f'<section id="{name}">')[1].split("</section>")[0]
        for name in ("framing", "tokens", "empty")
    }
    assert [said in listed["framing"] for said in own] == [True] * 6 + [False] * 3
    assert "3 more such findings are in the tables." in listed["framing"]
    assert "<li>T &amp; co</li>" in listed["tokens"] and "more such" not in listed["tokens"]
    assert 'class="found"' not in listed["empty"]


def test_there_are_at_most_five():
    sections = [section(name, name) for name in findings.ORDER]
    assert [one.id for one, _ in findings.chosen(sections)] == list(findings.ORDER[:5])


def test_every_section_has_a_place_in_the_order(full):
    known = {chapter.section(full).id for chapter in analysis.CHAPTERS}
    assert known - {"models"} <= set(findings.ORDER)
    assert len(set(findings.ORDER)) == len(findings.ORDER)


def test_a_finding_shows_its_figure_small_and_links_to_its_section(source):
    shown = top(source(section("framing", "τ is <0.", picture="framing_figure")))
    assert "τ is &lt;0." in shown
    assert '<a href="#framing">All about framing</a>' in shown
    assert '<img src="data:framing"' in shown


def test_a_finding_without_a_figure_has_none(source):
    assert "<img" not in top(source(section("framing", "τ is small.")))


def test_a_finding_cannot_name_the_figure_of_another_section(source):
    with pytest.raises(ValueError, match="finding of framing: no figure 'own_figure' in its sec"):
        source(section("framing", "τ is small.", picture="own_figure"), section("own"))


def test_without_a_finding_the_page_says_so(source):
    shown = top(source(section("framing"), section("own")))
    assert "No section has a finding whose evidence holds." in shown
    assert "<li" not in shown


def test_sections_without_figure_and_table_are_one_line_at_the_end(source):
    words = [Heading("Nothing"), Text("Read it so.", "how"), Text("No <list> was scored.", "note")]
    html = source(
        section("framing", "F"),
        section("items", "I", blocks=words),
        section("humans", blocks=[Folded("More", words)]),
        section("objectives", blocks=words),
    )
    assert '<section id="items">' not in html
    assert 'href="#items"' not in html
    assert "I" not in [one.strip() for one in top(html).split()]
    line = html.split('<section id="absent">')[1].split("</section>")[0]
    assert " ".join(line.split()) == (
        '<p class="how"><b>Sections with nothing to show.</b> <span id="items">Items</span>, '
        '<span id="objectives">Objectives</span>: No &lt;list&gt; was scored. · '
        '<span id="humans">Humans</span>. </p>'
    )


def test_a_figure_inside_a_fold_is_something_to_show(source):
    figure = Picture("framing_figure", "What it shows.", lambda: None)
    html = source(section("framing", blocks=[Folded("More", [figure])]))
    assert '<section id="framing">' in html
    assert '<section id="absent">' not in html


def test_the_reading_order_is_findings_explorer_sections_provenance(source):
    html = source(section("framing", "F"), section("humans", blocks=[]))
    names = ("findings", "explorer", "framing", "caveats", "tables", "absent")
    places = [html.index(f'<section id="{name}">') for name in names]
    assert places == sorted(places)
