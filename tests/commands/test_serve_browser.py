"""The page of `assay serve` in a real browser, Chromium on PATH, with tiny models."""

import contextlib
import itertools
import re

import pytest
import scipy.stats
from playwright.sync_api import expect

from launch.serving.explorer import Explorer
from tests.support.sweeps import SIZE

pytestmark = pytest.mark.slow

QUESTION = "What is the greatest thing?"
HOSTILE = "<img src=x onerror=ran=1>{{7*7}}"
ALL = f"{SIZE} of {SIZE} tokens"
FIRST = re.compile(rf"^[1-9]\d* of {SIZE} tokens")
expect.set_options(timeout=120_000)  # what is compiled first, on a machine that may be busy


@pytest.fixture
def window(chromium, server):
    """Opens the page; in the end no script has failed and no request has left the machine."""
    heard = []
    with contextlib.closing(chromium.new_context()) as context:
        context.on("request", lambda sent: heard.append(sent.url))
        context.on("console", lambda message: heard.append(message.text))
        context.on("weberror", lambda failed: heard.append(str(failed.error)))

        def window(address=server.address):
            page = context.new_page()
            page.goto(address)
            expect(page.locator("body")).to_have_attribute("data-ready", "yes")
            return page

        yield window
    assert [x for x in heard if not re.match("http://127.0.0.1:|data:|Failed to load res", x)] == []


def ask(page, question=QUESTION, beside="", until=ALL):
    page.get_by_label("compare with").select_option(beside)
    page.locator("#question").fill(question)
    page.keyboard.press("Enter")
    state(page).to_contain_text(until)


def state(page):
    return expect(page.locator(".state span"))


def test_enter_asks_and_ranks_appear_until_all_are_there(window, explorer, held):
    page = window()
    ask(page, until=FIRST)
    held.set()
    state(page).to_have_text(ALL)
    texts = page.locator("#grid td:nth-child(3)").all_inner_texts()  # 60, more as one scrolls
    shown = [float(text.replace("−", "-")) for text in texts]
    [rewards] = list(explorer._answers.values())[-1][1]
    assert shown == pytest.approx(sorted(rewards, reverse=True)[:60], abs=6e-4)


def test_the_keyboard_alone_reaches_a_ranking_and_keeps_its_place_in_it(window, held):
    page = window()
    ask(page, until=FIRST)
    stops = ("System turn", "After this reply", "model", "compare with", "Rank every token")
    for name in (*stops, "Cancel", "find"):
        page.keyboard.press("Tab")
        expect(page.locator("label:has(:focus), :focus").first).to_contain_text(name)
    reward = page.get_by_role("button", name="reward")
    reward.press("Enter")
    held.set()
    state(page).to_have_text(ALL)
    expect(reward).to_be_focused()


def test_hostile_texts_stay_texts(window, explorer, monkeypatch):
    monkeypatch.setattr(Explorer, "tokens", lambda *_: [HOSTILE] * SIZE)
    monkeypatch.setitem(explorer.about, "run", HOSTILE)
    monkeypatch.setitem(explorer.about["models"][0], "slug", HOSTILE)
    page = window()
    page.get_by_text("System turn", exact=True).click()
    page.locator("#system").fill(HOSTILE)
    page.locator("#replies").fill(HOSTILE)
    ask(page, HOSTILE)
    assert page.locator(".asked").all_inner_texts() == [f"System: {HOSTILE}", f"“{HOSTILE}”"]
    for place in ("#about", "#panels h2", "#replies-table th", ".chips.top li", "#grid tbody th"):
        expect(page.locator(place, has_text="<img src=x onerror").first).to_be_attached()
    assert page.evaluate("[window.ran, document.images.length]") == [None, 0]
    ask(page, "x" * 10_000, until="question: 10,000 characters; allowed: 8,000")


# Top and bottom of what a panel shows, without a histogram, which may stand beside it, and its own.
ENDS = """(all) => all.map((panel) => [...panel.querySelectorAll(":scope > :not(figure)"), panel]
  .map((x) => x.getBoundingClientRect()).filter((x) => x.height).map((x) => [x.top, x.bottom]))"""


def test_lists_of_the_served_page_stand_below_each_other(window, explorer):
    page = window()
    page.set_viewport_size({"width": 390, "height": 800})
    page.get_by_text("System turn", exact=True).click()
    page.locator("#system").fill("Be brief.")
    ask(page, beside="model", until=[ALL, ALL])
    page.get_by_role("button", name="Keep").first.click()  # adds a line
    expect(page.locator("#panels")).to_contain_text(f", in {explorer.run}")
    panels = page.locator(".panels:visible > .panel").evaluate_all(ENDS)
    assert len(panels) == 2
    for *parts, (top, bottom) in panels:
        ends = [top, *itertools.chain(*parts), bottom]
        assert len(parts) >= 5 and ends == sorted(ends)  # a name, and two lists with their titles
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_two_models_and_replies_have_the_percentiles_of_their_rewards(window, explorer):
    page = window()
    ask(page, beside="model", until=[ALL, ALL])
    page.get_by_role("button", name="A − B, points").click()
    answers = [answer[1][0] for answer in list(explorer._answers.values())[-2:]]
    ranks = [scipy.stats.rankdata(rewards) for rewards in answers]
    expected = sorted(100 * (ranks[0] - ranks[1]) / SIZE, reverse=True)[:60]
    texts = page.locator("#grid td:nth-child(6)").all_inner_texts()
    assert [float(text) for text in texts] == pytest.approx(expected, abs=0.06)
    ask(page)
    page.locator("#replies").press_sequentially("love\nthe war of love")
    cells = page.locator("#replies-table tbody td")
    expect(cells).to_have_count(4)
    [numbers] = explorer._reply_numbers(explorer.models[0], QUESTION, ["love", "the war of love"])
    texts = cells.all_inner_texts()
    assert texts[1::2] == [f"{x:.3f}".replace("-", "−") for x in numbers]
    below = [100 * (list(explorer._answers.values())[-1][1][0] < x).mean() for x in numbers]
    assert [float(text[:-2]) for text in texts[::2]] == pytest.approx(below, abs=0.5)
