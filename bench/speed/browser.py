"""Checks a report in headless Chromium, over the DevTools protocol on a pipe: no driver, no port.

    python -m bench.speed.browser [out/report/index.html] [--shots=out/shots]
    CHROMIUM=/path/to/chrome python -m bench.speed.browser …

Without a page it makes one: ten made-up models of bench/synthetic.py, 290,000 tokens, 35 MB (two
minutes). Prints each check; exits 1 where one fails. A search is timed from the keystroke until its
rows are drawn, the best of seven, as other jobs on the machine only ever add. `make browser-check`
runs it; it is no part of `make test`, for no package brings a browser.
"""

import argparse
import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench import synthetic
from launch.common.reporting import write_report

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
_TRIES = 7
_SCRIPT = "<script>alert(1)</script>"
_SEARCHES = (" love", "love", "e", "ба", "zzzz", "語")


class Browser:
    """One page of a headless Chromium.

    Attributes:
      requests: addresses that the page asked for.
      errors: what it wrote to the console as an error or warning, and what it threw.
    """

    def __init__(self, read: int, write: int):
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._write, self._last, self._buffer, self._session = write, 0, b"", None
        self._read = read
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters) -> dict[str, Any]:
        """Sends one command and waits for its answer, noting the events that come before it."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer.get("method"), answer.get("params", {}))

    def run(self, script: str) -> Any:
        """Value of a JavaScript expression; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script: str, limit_s: float = 60.0) -> None:
        """Waits until `script` is true."""
        end = time.monotonic() + limit_s
        while not self.run(script):
            if time.monotonic() > end:
                raise TimeoutError(script)
            time.sleep(0.1)

    def click(self, x: float, y: float) -> None:
        """A click at `x`, `y` in the window."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def size(self, width: int, height: int) -> None:
        """Sets the size of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def shoot(self, path: pathlib.Path, whole: bool = False) -> None:
        """Writes a picture of the window, or of the whole page, as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has gone")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, method: str | None, about: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
            self.errors.append(json.dumps(about["args"])[:500])


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A fresh Chromium with a profile of its own, ended on leaving."""
    names = (os.environ.get("CHROMIUM"), *_NAMES)
    program = next((path for name in names if name and (path := shutil.which(name))), None)
    if program is None:
        raise SystemExit("no Chromium found; set CHROMIUM to its path")
    to_read, to_write = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol's two pipes are descriptors 3 and 4 of the browser.
        shell = f'exec "$0" "$@" 3<&{to_read[0]} 4>&{to_write[1]}'
        command = ["sh", "-c", shell, program, *_FLAGS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            command, pass_fds=(to_read[0], to_write[1]), stderr=subprocess.DEVNULL
        )
        try:
            os.close(to_read[0])
            os.close(to_write[1])
            yield Browser(to_write[0], to_read[1])
        finally:
            process.terminate()
            process.wait()


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
    run.mkdir()
    synthetic.write_run(run, np.random.default_rng(0))
    return write_report([run], folder / "report")


def checks(page: Browser, path: pathlib.Path) -> Iterator[tuple[str, Any, bool]]:
    """What the page must do: name, what was found, whether that is good."""
    page.size(1280, 900)
    start = time.monotonic()
    page.call("Page.navigate", url=path.as_uri())
    page.until("document.readyState === 'complete'")
    yield "size", f"{path.stat().st_size / 1e6:.1f} MB", True
    page.until("document.getElementById('explorer-app')?.dataset.ready === 'yes'", 120)
    yield "opened and ready", f"{time.monotonic() - start:.1f} s", True
    for query in _SEARCHES:
        took = min(_retyped(page, query) for _ in range(_TRIES))
        yield f"search {query!r}", f"{took:.0f} ms, {_status(page)}", took < 100
    yield "load of the machine", f"{os.getloadavg()[0]:.1f}", True
    search(page, " love")
    yield "first for ' love'", _cell(page), _cell(page) == "␣love"
    search(page, _SCRIPT)
    if page.run(f"Data.tokens.includes({json.dumps(_SCRIPT)})"):
        yield "a script is text", _cell(page), _cell(page) == _SCRIPT
    yield from _sorting(page)
    yield from _picking(page)
    for width in (1280, 390):
        page.size(width, 900)
        wide = page.run("document.documentElement.scrollWidth")
        yield f"fits {width} px", f"{wide} px", wide <= width
    others = [u for u in page.requests if not u.startswith(("file:", "data:", "about:"))]
    files = [u for u in page.requests if u.startswith("file:")]
    yield "requests", f"{len(files)} file, {others} others", len(files) == 1 and not others
    yield "console", page.errors or "silent", not page.errors


def search(page: Browser, query: str) -> float:
    """Types `query`; milliseconds until a frame with its rows has been drawn."""
    return page.run(
        f"""new Promise((done) => {{
          const input = document.getElementById("explorer-query"), start = performance.now();
          input.value = {json.dumps(query)};
          input.dispatchEvent(new Event("input"));
          requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
        }})"""
    )


def _retyped(page: Browser, query: str) -> float:
    search(page, "")
    return search(page, query)


def shoot(page: Browser, folder: pathlib.Path) -> None:
    """Screenshots of the page from top to bottom at two widths."""
    folder.mkdir(parents=True, exist_ok=True)
    search(page, "love")
    for width, height in ((1280, 1400), (390, 1400)):
        page.size(width, height)
        page.until("[...document.images].every((image) => image.complete)")
        total = page.run("document.documentElement.scrollHeight")
        for at, top in enumerate(range(0, total, height - 60)):
            page.run(f"window.scrollTo({{top: {top}, behavior: 'instant'}})")
            time.sleep(0.2)
            page.shoot(folder / f"{width}-{at:02d}.png")


def _sorting(page: Browser) -> Iterator[tuple[str, Any, bool]]:
    search(page, "")
    head = "[...document.querySelectorAll('#explorer-grid .slick-header-column')].at(-1)"
    for order in ("falling", "rising"):
        page.run("document.getElementById('explorer').scrollIntoView({behavior: 'instant'})")
        page.run(f"{head}.click()")
        time.sleep(0.3)
        numbers = _column(page)
        good = numbers == sorted(numbers, reverse=order == "falling") and len(numbers) > 5
        yield f"sorts {order}", numbers[:4], good
    before = _status(page)
    page.run("document.getElementById('explorer-words').click()")
    yield "filters", f"{before} -> {_status(page)}", before != _status(page)
    page.run("document.getElementById('explorer-words').click()")


def _column(page: Browser) -> list[float]:
    """Numbers of the last column of the rows in view, from top to bottom."""
    rows = page.run(
        """[...document.querySelectorAll("#explorer-grid .slick-row")]
          .map((row) => [row.getBoundingClientRect().top, row.lastElementChild?.textContent])"""
    )
    right = {}
    for top, text in rows:
        right[top] = text  # The frozen half of a row comes first.
    return [float(right[top].replace("−", "-")) for top in sorted(right)]


def _picking(page: Browser) -> Iterator[tuple[str, Any, bool]]:
    box = page.run(
        """(() => { const canvas = document.getElementById("explorer-scatter");
          canvas.scrollIntoView({behavior: "instant", block: "center"});
          const box = canvas.getBoundingClientRect();
          return [box.left + box.width / 2, box.top + box.height / 2]; })()"""
    )
    page.click(*box)
    token = page.run("document.querySelector('#explorer-detail h3').textContent")
    address = page.run("location.hash")
    yield "a point picks a token", f"{token} {address}", address.startswith("#token=")
    page.run("location.hash = '#token=%20hate'")
    page.until("document.querySelector('#explorer-detail h3').textContent === '␣hate'", 5)
    yield "a link opens its token", "␣hate", True


def _cell(page: Browser) -> str:
    return page.run("document.querySelector('#explorer-grid .slick-row .token')?.textContent")


def _status(page: Browser) -> str:
    return page.run("document.getElementById('explorer-status').textContent")


if __name__ == "__main__":
    sys.exit(main())
