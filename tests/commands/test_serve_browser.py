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


def rewards(explorer, answer=-1):
    return list(explorer._answers.values())[answer][1][0]


def test_enter_asks_and_ranks_appear_until_all_are_there(window, explorer, held):
    page = window()
    ask(page, until=FIRST)
    held.set()
    state(page).to_have_text(ALL)
    texts = page.locator("#grid td:nth-child(3)").all_inner_texts()  # 60, more as one scrolls
    shown = [float(text.replace("−", "-")) for text in texts]
    assert shown == pytest.approx(sorted(rewards(explorer), reverse=True)[:60], abs=6e-4)


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


def test_two_models_are_compared_by_the_difference_of_their_percentiles(window, explorer):
    page = window()
    ask(page, beside="model", until=[ALL, ALL])
    page.get_by_role("button", name="A − B, points").click()
    ranks = [scipy.stats.rankdata(rewards(explorer, answer)) for answer in (-2, -1)]
    expected = sorted(100 * (ranks[0] - ranks[1]) / SIZE, reverse=True)[:60]
    texts = page.locator("#grid td:nth-child(6)").all_inner_texts()
    assert [float(text) for text in texts] == pytest.approx(expected, abs=0.06)


def test_replies_have_rewards_and_percentiles_as_one_types(window, explorer):
    page = window()
    ask(page)
    page.locator("#replies").press_sequentially("love\nthe war of love")
    cells = page.locator("#replies-table tbody td")
    expect(cells).to_have_count(4)
    [numbers] = explorer._reply_numbers(explorer.models[0], QUESTION, ["love", "the war of love"])
    texts = cells.all_inner_texts()
    assert texts[1::2] == [f"{x:.3f}".replace("-", "−") for x in numbers]
    below = [100 * (rewards(explorer) < x).mean() for x in numbers]
    assert [float(text[:-2]) for text in texts[::2]] == pytest.approx(below, abs=0.5)


def test_a_reply_is_coloured_by_the_reward_while_it_is_read(window):
    """The token with the highest reward is the darkest; markup in a reply stays text."""
    page, reply = window(), f"the war of love{HOSTILE}"
    page.locator("#replies").fill(reply)
    expect(page.locator("#read")).to_be_visible()
    page.get_by_role("button", name="Colour by the reward").click()
    read = page.locator("#reading .read")
    expect(read).to_have_text(reply)
    spans = read.locator("span").evaluate_all("(all) => all.map((x) => [x.title, x.style.cssText])")
    found = [(float(t.replace("−", "-")), float(css.split(":")[1].strip(" ;"))) for t, css in spans]
    assert max(found)[1] == 1 and min(found)[1] == 0 and len({*found}) > 5
    assert page.evaluate("[window.ran, document.images.length]") == [None, 0]
    page.locator("#replies").fill("love")
    expect(page.locator("#reading")).to_be_empty()


# Top and bottom of what a panel shows, without a histogram, which may stand beside it, and its own.
ENDS = """(all) => all.map((panel) => [...panel.querySelectorAll(":scope > :not(figure)"), panel]
  .map((x) => x.getBoundingClientRect()).filter((x) => x.height).map((x) => [x.top, x.bottom]))"""


def lists_stand_below_each_other(page, count):
    panels = page.locator(".panels:visible > .panel").evaluate_all(ENDS)
    assert len(panels) == count
    for *parts, (top, bottom) in panels:
        ends = [top, *itertools.chain(*parts), bottom]
        assert len(parts) >= 5 and ends == sorted(ends)  # a name, and two lists with their titles
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [1280, 390])
def test_lists_of_the_served_page_stand_below_each_other(window, explorer, width):
    page = window()
    page.set_viewport_size({"width": width, "height": 800})
    page.get_by_text("System turn", exact=True).click()
    page.locator("#system").fill("Be brief.")
    ask(page, beside="model", until=[ALL, ALL])
    lists_stand_below_each_other(page, 2)
    page.get_by_role("button", name="Keep").first.click()  # adds a line
    expect(page.locator("#panels")).to_contain_text(f", in {explorer.run}")
    lists_stand_below_each_other(page, 2)


def test_a_search_shows_its_trace(window):
    page = window()
    page.get_by_label("tokens", exact=True).fill("2")
    page.get_by_label("steps").fill("3")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("#search-line")).to_contain_text("3 steps done; highest reward found")
    found = page.locator("#search-line").inner_text().split()[-1]
    expect(page.locator("#search-table tbody td:nth-child(2)").first).to_have_text(found)
    assert len(page.locator("#trace polyline").get_attribute("points").split()) == 3
