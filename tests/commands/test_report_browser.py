"""The page of a report in a real browser: its first screen, a word that is looked up, print."""

import numpy as np
import pytest
from playwright.sync_api import expect

import analysis
from analysis.chapters import model_list, tokens
from analysis.report import write_report
from analysis.settings import AnalyzeSettings
from tests.support import runs

pytestmark = pytest.mark.slow

INTERSECT = """() => {
  const chips = [...document.querySelectorAll(".chips li")];
  const seen = chips.map((chip) => chip.getBoundingClientRect()).filter((box) => box.width);
  const apart = (a, b) => a.right - 1 <= b.left || b.right - 1 <= a.left
    || a.bottom - 1 <= b.top || b.bottom - 1 <= a.top;
  return seen.filter((a, at) => !seen.slice(at + 1).every((b) => apart(a, b))).length;
}"""


SMALLEST = """() => Math.min(...[...document.querySelectorAll(".chart svg")].flatMap((svg) => {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim());
  return scale ? texts.map((text) => scale * parseFloat(getComputedStyle(text).fontSize)) : [];
}))"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    run = analysis.load([str(runs.full_run(folder / "run", np.random.default_rng(0)))])
    chapters = [tokens.ANALYSIS, model_list.ANALYSIS]
    return write_report(run, folder / "report", {}, AnalyzeSettings(), chapters=chapters).as_uri()


@pytest.fixture
def page(chromium, address):
    page = chromium.new_page()
    page.set_default_timeout(120_000)
    page.goto(address)
    yield page
    page.close()


def test_a_word_has_a_bar_for_each_model_and_question(page):
    box, found = page.locator("#word input"), page.locator("#word-found")
    box.fill("lvoe")
    box.press("Enter")
    found.get_by_role("button", name="love").click(timeout=120_000)
    expect(found.locator("h3")).to_contain_text("love")
    assert found.locator("tbody .bar").count() == 4 * 3
    found.get_by_role("link").click()
    expect(page.locator("#explorer-query")).to_be_focused()
    expect(page.locator("#explorer-query")).to_have_value(" love")


@pytest.mark.parametrize(("width", "floor"), [(1280, 11), (390, 10)])
def test_chips_do_not_intersect_and_type_is_large_enough_in_a_window(page, width, floor):
    page.set_viewport_size({"width": width, "height": 900})
    assert page.locator(".chips li").count() > 10
    assert page.evaluate(INTERSECT) == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator(".chart:visible").first.scroll_into_view_if_needed()
    expect(page.locator(".chart:visible svg text").first).to_be_attached()
    assert page.evaluate(SMALLEST) >= floor


def test_a_chip_that_is_followed_has_the_focus_in_the_explorer(page):
    page.locator(".chips a:visible").first.click()
    expect(page.locator("#explorer-query")).to_be_focused()


def test_a_chart_that_was_not_scrolled_to_is_printed(page):
    page.emulate_media(media="print")
    pictures = page.locator("article .paper")
    assert pictures.count()
    expect(pictures.first).to_be_visible()
    assert page.evaluate("document.querySelector('article .paper').naturalWidth") > 0
    expect(page.locator("nav")).to_be_hidden()


def test_paper_has_the_question_the_ink_of_small_charts_and_no_empty_chapter(page):
    page.emulate_media(media="print")
    expect(page.locator("#questions span:visible")).to_have_count(1)
    ink = "getComputedStyle(document.querySelector('.chips a')).printColorAdjust"
    assert page.evaluate(ink) == "exact"
    for chapter in page.locator("article.analysis").all():
        expect(chapter.locator(".paper, table").first).to_be_visible()
    expect(page.locator("th button:visible").first).to_have_text("model")
    assert page.evaluate("getComputedStyle(document.querySelector('.scroll')).maxHeight") == "none"
    expect(page.locator(":not(th) > button:visible")).to_have_count(0)
