"""Checks a report in headless Chromium, driven by Playwright, and times the token search.

    python -m bench.speed.browser [out/report/index.html] [--shots=out/shots]
    CHROMIUM=/path/to/chrome python -m bench.speed.browser …

Without a page it makes one: ten made-up models of tests/support/large_runs.py, 290,000 tokens,
35 MB (two minutes). Prints each check; exits 1 if one fails. A search is timed from the keystroke
until its rows are drawn; the best of seven counts, because other jobs on the machine only add time.
`make browser-check` runs it. It is not part of `make test`: a browser has to be installed first.
"""

import argparse
import contextlib
import csv
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np
from playwright.sync_api import ConsoleMessage, Page, sync_playwright

from engine import display
from launch.common.reporting import write_report
from tests.support import large_runs

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LIMIT_MS = 120_000  # to open the page and prepare its tokens
_TRIES = 7
_SCRIPT = "<script>alert(1)</script>"
_HEADS = "#explorer-grid .slick-header-columns-right .slick-header-column"
_SEARCHES = (" love", "love", "e", "ба", "zzzz", "語")


class Watched:
    """What a page asked for and complained about.

    Attributes:
      requests: addresses that the page requested.
      errors: errors and warnings that it wrote to the console, and exceptions that it threw.
    """

    def __init__(self, page: Page):
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """A page of the installed Chromium, with a profile of its own."""
    names = (os.environ.get("CHROMIUM"), *_NAMES)
    program = next((path for name in names if name and (path := shutil.which(name))), None)
    if program is None:
        raise SystemExit("no Chromium found; set CHROMIUM to its path")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium.new_page()
        chromium.close()


def main() -> int:
    """Runs every check on the page that is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=pathlib.Path, nargs="?", help="made where not given")
    parser.add_argument("--shots", type=pathlib.Path, help="folder for screenshots")
    arguments = parser.parse_args()
    failed = 0
    with browser() as page, tempfile.TemporaryDirectory() as folder:
        path = arguments.page or made(pathlib.Path(folder))
        for name, found, good in checks(page, path.resolve()):
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'}  {name}: {found}", flush=True)
        if arguments.shots:
            shoot(page, arguments.shots)
    return 1 if failed else 0


def made(folder: pathlib.Path) -> pathlib.Path:
    """The page of a report on ten made-up models at the paper's size."""
    run = folder / "run"
    large_runs.paper_run(run, np.random.default_rng(0))
    return write_report([run], folder / "report")


def checks(page: Page, path: pathlib.Path) -> Iterator[tuple[str, object, bool]]:
    """Yields each check: its name, what was found, and whether it passed."""
    watched = Watched(page)
    page.set_viewport_size({"width": 1280, "height": 900})
    start = time.monotonic()
    page.goto(path.as_uri(), timeout=_LIMIT_MS)
    yield "size", f"{path.stat().st_size / 1e6:.1f} MB", True
    page.wait_for_selector("#explorer-app[data-ready=yes]", state="attached", timeout=_LIMIT_MS)
    yield "opened and ready", f"{time.monotonic() - start:.1f} s", True
    page.wait_for_selector("#explorer-app[data-loaded=yes]", state="attached", timeout=_LIMIT_MS)
    yield "everything unpacked", f"{time.monotonic() - start:.1f} s", True
    for query in _SEARCHES:
        took = min(_retyped(page, query) for _ in range(_TRIES))
        yield f"search {query!r}", f"{took:.0f} ms, {_status(page)}", took < 100
    yield "load of the machine", f"{os.getloadavg()[0]:.1f}", True
    search(page, " love")
    yield "first for ' love'", _cell(page), _cell(page) == "␣love"
    search(page, _SCRIPT)
    if page.evaluate(f"Data.tokens.includes({json.dumps(_SCRIPT)})"):
        yield "a script is text", _cell(page), _cell(page) == _SCRIPT
    yield from _sorting(page)
    yield from _picking(page)
    if page.evaluate("!document.getElementById('explorer-pair').hidden"):
        yield from _comparing(page)
    yield from _filtering(page)
    yield from _saving(page)
    yield from _restoring(page)
    yield from _with_keys(page)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        wide = page.evaluate("document.documentElement.scrollWidth")
        yield f"fits {width} px", f"{wide} px", wide <= width
    others = [u for u in watched.requests if not u.startswith(("file:", "data:", "about:"))]
    files = [u for u in watched.requests if u.startswith("file:")]
    yield "requests", f"{len(files)} file, {others} others", len(files) == 1 and not others
    yield "console", watched.errors or "silent", not watched.errors


def search(page: Page, query: str) -> float:
    """Types `query`; milliseconds until a frame with its rows has been drawn."""
    return page.evaluate(
        f"""new Promise((done) => {{
          const input = document.getElementById("explorer-query"), start = performance.now();
          input.value = {json.dumps(query)};
          input.dispatchEvent(new Event("input"));
          requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
        }})"""
    )


def _retyped(page: Page, query: str) -> float:
    search(page, "")
    return search(page, query)


def shoot(page: Page, folder: pathlib.Path) -> None:
    """Screenshots of the page from top to bottom at two widths."""
    folder.mkdir(parents=True, exist_ok=True)
    search(page, "love")
    for width, height in ((1280, 1400), (390, 1400)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("[...document.images].every((image) => image.complete)")
        total = page.evaluate("document.documentElement.scrollHeight")
        for at, top in enumerate(range(0, total, height - 60)):
            page.evaluate(f"window.scrollTo({{top: {top}, behavior: 'instant'}})")
            page.wait_for_timeout(200)
            page.screenshot(path=folder / f"{width}-{at:02d}.png")


def _sorting(page: Page) -> Iterator[tuple[str, object, bool]]:
    search(page, "")
    heads = f"[...document.querySelectorAll('{_HEADS}')]"
    # A model's column: those beyond the right edge are not drawn.
    at = page.evaluate(f"Math.min(3, {heads}.length - 1)")
    for order in ("falling", "rising"):
        page.evaluate("document.getElementById('explorer').scrollIntoView({behavior: 'instant'})")
        page.evaluate(f"{heads}[{at}].click()")
        numbers = _column(page, at)
        good = numbers == sorted(numbers, reverse=order == "falling") and len(numbers) > 5
        yield f"sorts {order}", numbers[:4], good
    before = _status(page)
    page.evaluate("document.getElementById('explorer-words').click()")
    yield "filters", f"{before} -> {_status(page)}", before != _status(page)
    page.evaluate("document.getElementById('explorer-words').click()")


def _column(page: Page, at: int) -> list[float]:
    """Numbers of a column of the rows in view, from top to bottom; the token's is not counted."""
    page.wait_for_timeout(300)
    rows = page.evaluate(
        f"""[...document.querySelectorAll("#explorer-grid .slick-row")]
          .map((row) => [row.getBoundingClientRect().top, row.children[{at}]?.textContent])"""
    )
    right = {}
    for top, text in rows:
        right[top] = text  # the frozen left half of a row comes first
    return [float(right[top].replace("−", "-")) for top in sorted(right)]


def _picking(page: Page) -> Iterator[tuple[str, object, bool]]:
    box = page.evaluate(
        """(() => { const canvas = document.getElementById("explorer-scatter");
          canvas.scrollIntoView({behavior: "instant", block: "center"});
          const box = canvas.getBoundingClientRect();
          return [box.left + box.width / 2, box.top + box.height / 2]; })()"""
    )
    page.mouse.click(*box)
    token = page.evaluate("document.querySelector('#explorer-detail h3').textContent")
    address = _address(page)
    yield "a point picks a token", f"{token} {address}", address.startswith("#token=")
    # A page of many rewards does not hold every token.
    token = page.evaluate("Data.tokens.includes(' hate') ? ' hate' : Data.tokens[9]")
    page.evaluate(f"location.hash = '#token=' + encodeURIComponent({json.dumps(token)})")
    opened = "document.querySelector('#explorer-detail h3').textContent"
    for _ in range(50):  # the page's policy forbids what `wait_for_function` does
        if page.evaluate(opened) == display.plain(token):
            break
        page.wait_for_timeout(100)
    found = page.evaluate(opened)
    yield "a link opens its token", found, found == display.plain(token)


def _comparing(page: Page) -> Iterator[tuple[str, object, bool]]:
    """The largest differences of A and B come first, and are those of the percentiles."""
    search(page, "")
    page.click("#explorer-apart")
    expected = page.evaluate(
        """(() => { const side = (id) => ["model", "prompt"].map(
              (part) => +document.getElementById(`explorer-${id}-${part}`).value);
          const percentile = (id) => (row) => Data.value(row, ...side(id), "percentile");
          const [a, b] = [percentile("a"), percentile("b")];
          const out = [];
          for (let row = 0; row < Data.meta.rows; row++) {
            const apart = 100 * (a(row) - b(row));
            if (apart === apart) out.push(Math.abs(apart)); }
          return out.sort((x, y) => y - x).slice(0, 5); })()"""
    )
    found = [abs(number) for number in _column(page, 0)[:5]]
    good = all(abs(a - b) < 0.06 for a, b in zip(found, expected, strict=True))
    yield "largest differences first", found, good


def _filtering(page: Page) -> Iterator[tuple[str, object, bool]]:
    """Each filter leaves as many tokens as it says."""
    page.select_option("#explorer-sort", "")
    page.select_option("#explorer-scope", "all")
    for at, label in enumerate(page.evaluate("Data.filters.map((one) => one.label)")):
        chosen = f"#explorer-set-{at}"
        said = page.evaluate(f"document.querySelector('{chosen}').options[1].textContent")
        page.select_option(chosen, index=1)
        size = said.rpartition("(")[2].rstrip(")")
        yield (
            f"filters by {label}",
            f"{said}: {_status(page)}",
            _status(page).startswith(f"{size} "),
        )
        page.select_option(chosen, "")


def _saving(page: Page) -> Iterator[tuple[str, object, bool]]:
    """The CSV has the rows that are shown, and no cell that a spreadsheet would run."""
    search(page, "=")
    with page.expect_download() as download:
        page.click("#explorer-csv")
    with open(download.value.path(), encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    shown = page.evaluate(
        "[document.getElementById('explorer-status').textContent.split(' ')[0], Data.meta.rows]"
    )
    good = len(rows) == int(shown[0].replace(",", "")) and len({len(r) for r in [head, *rows]}) == 1
    yield "CSV of the rows", f"{download.value.suggested_filename}: {len(rows)} rows", good
    risky = [row[0] for row in rows if row[0][:1] in set("=+-@\t\r\n")]
    yield "CSV runs nothing", risky or f"{rows[:1]}", not risky


def _restoring(page: Page) -> Iterator[tuple[str, object, bool]]:
    """A link to the view opens the same view in a page of its own."""
    search(page, "lov")
    page.select_option("#explorer-how", "starts")
    page.select_option("#explorer-measure", "rank")
    page.select_option("#explorer-prompt", index=page.evaluate("Data.meta.prompts.length") - 1)
    page.select_option("#explorer-set-0", index=1)
    page.select_option("#explorer-sort", index=2)
    page.check("#explorer-rising")
    address = _address(page)
    other = page.context.browser.new_page()
    other.goto(page.url.split("#")[0] + address)
    other.wait_for_selector("#explorer-app[data-ready=yes]", state="attached", timeout=_LIMIT_MS)
    views = [one.evaluate(_VIEW) for one in (page, other)]
    other.close()
    yield "a link restores the view", f"{address}: {views[1][-1]}", views[0] == views[1]


# Every control, the selected token, and the first rows.
_VIEW = """[...[...document.querySelectorAll("#explorer-app input, #explorer-app select")].map(
  (one) => `${one.id}=${one.type === "checkbox" ? one.checked : one.value}`),
  document.querySelector("#explorer-detail h3")?.textContent,
  document.getElementById("explorer-status").textContent]"""


def _with_keys(page: Page) -> Iterator[tuple[str, object, bool]]:
    """The search, the buttons and the rows can be reached and used without a pointer."""
    page.focus("#explorer-query")
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    wanted = {"explorer-prompt", "explorer-sort", "explorer-csv", "explorer-link"}
    yield "reached by Tab", sorted(wanted & reached), wanted <= reached


def _address(page: Page) -> str:
    """The fragment of the address, which follows what is chosen after a moment."""
    page.wait_for_timeout(400)
    return page.evaluate("location.hash")


def _cell(page: Page) -> str:
    return page.evaluate("document.querySelector('#explorer-grid .slick-row .token')?.textContent")


def _status(page: Page) -> str:
    return page.evaluate("document.getElementById('explorer-status').textContent")


if __name__ == "__main__":
    sys.exit(main())
