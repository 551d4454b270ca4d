"""What a report's page costs its reader: height, bytes, nodes, time to ready, in Chromium.

    python -m bench.page <report>

The browser on PATH is driven over its debugging pipe. "Ready" is the end of the load event. The
explorer's time runs from scrolling to it until its first table. Times are medians of five loads.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from subprocess import DEVNULL, Popen
from typing import Any

_LINE = "{:<10}{:>9}{:>7}{:>9}{:>10}{:>13}{:>8}"
_HEADS = ("size", "screens", "wide", "nodes", "ready ms", "explorer ms", "errors")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
_PARTS = {
    "explorer's data": r'<script type="text/plain".*?</script>',
    "other data": r'<script type="application/json".*?</script>',
    "scripts and style": r"<script>.*?</script>|<style>.*?</style>",
    "images": r'"data:image/[^"]*"',
}
_LOADED = (
    "document.readyState == 'complete' || new Promise((ok) => (onload = () => setTimeout(ok)))"
)
_STATE = """({
  height: document.documentElement.scrollHeight, wide: document.documentElement.scrollWidth,
  nodes: document.getElementsByTagName("*").length,
  ready: performance.getEntriesByType("navigation")[0].loadEventEnd,
})"""
_EXPLORER = """new Promise((resolve) => {
  const app = document.getElementById("explorer-app"), start = performance.now();
  app?.scrollIntoView({ behavior: "instant" });
  const time = () => (app ? performance.now() - start : null);
  const look = () => (!app || app.dataset.ready ? resolve(time()) : setTimeout(look, 5));
  look();
})"""


def main(argv: Sequence[str] | None = None) -> None:
    """Prints bytes by part, then what Chromium says at each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=pathlib.Path, help="a report folder")
    index = parser.parse_args(argv).report / "index.html"
    for part, size in parts(index.read_text(encoding="utf-8")).items():
        print(f"{part:<18}{size / 1e6:8.2f} MB")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("bench.page: no chromium or google-chrome on PATH; bytes alone")
    print("\n" + _LINE.format(*_HEADS))
    with browser(program) as chromium:
        for size in (1280, 800), (390, 844):
            print(_LINE.format(*row(chromium, index, size)), flush=True)


def parts(html: str) -> dict[str, int]:
    """Bytes of the page by part, and in all."""
    by_part = {part: re.findall(pattern, html, re.DOTALL) for part, pattern in _PARTS.items()}
    sizes = {part: len("".join(texts).encode()) for part, texts in by_part.items()}
    rest = len(html.encode()) - sum(sizes.values())
    return {**sizes, "text and tables": rest, "page": rest + sum(sizes.values())}


def row(chromium: "Browser", index: pathlib.Path, size: tuple[int, int]) -> list[str]:
    """One line of the table: a few loads at one size."""
    loads = []
    for _ in range(5):
        chromium.open(index, *size)
        loads.append({**chromium.value(_STATE), "explorer": chromium.value(_EXPLORER)})
    known = {key: [load[key] for load in loads if load[key] is not None] for key in loads[0]}
    numbers = [f"{statistics.median(x):,.0f}" if x else "–" for x in known.values()]
    screens = f"{loads[-1]['height'] / size[1]:.1f}"
    return ["{}x{}".format(*size), screens, *numbers[1:], str(len(chromium.errors))]


@contextlib.contextmanager
def browser(program: str) -> Iterator["Browser"]:
    """A headless browser with one empty page, which ends with the context."""
    (theirs, ours), (mine, their) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        # The browser reads commands from descriptor 3 and answers on descriptor 4.
        command = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{their}', "bash", program, *_FLAGS]
        command += ["--remote-debugging-pipe", f"--user-data-dir={home}"]
        with Popen(command, pass_fds=(theirs, their), stderr=DEVNULL) as process:
            os.close(theirs)
            os.close(their)
            try:
                yield Browser(ours, mine)
            finally:
                process.terminate()


class Browser:
    """Commands of the Chrome DevTools protocol, as JSON that ends with a zero byte."""

    def __init__(self, commands: int, answers: int):
        self._commands, self._answers, self._rest, self._sent = commands, answers, b"", 0
        self._session: dict[str, str] = {}
        self.errors: list[Mapping[str, Any]] = []  # Any: JSON
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        self.call("Runtime.enable")
        self.call("Log.enable")

    def open(self, index: pathlib.Path, width: int, height: int) -> None:
        """Loads a page from disk in a window of that size."""
        size = {"width": width, "height": height}
        self.call("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=index.resolve().as_uri())
        self.value(_LOADED)

    def value(self, expression: str) -> Any:  # Any: JSON
        """What a JavaScript expression of the page gives, awaited."""
        how = {"awaitPromise": True, "returnByValue": True}
        return self.call("Runtime.evaluate", expression=expression, **how)["result"].get("value")

    def call(self, method: str, **params: Any) -> dict[str, Any]:  # Any: JSON
        """A command's result."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params, **self._session}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._sent:
            if answer["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.errors.append(answer["params"])
        if "error" in answer or "exceptionDetails" in answer["result"]:
            raise SystemExit(f"bench.page: {method}: {answer}")
        return answer["result"]

    def _message(self) -> dict[str, Any]:  # Any: JSON
        while b"\0" not in self._rest:
            ready = select.select([self._answers], [], [], 60)[0]
            if not ready or not (read := os.read(self._answers, 1 << 20)):
                raise SystemExit("bench.page: the browser does not answer")
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)


if __name__ == "__main__":
    main()
