"""Commands called inside the test process, and the served page."""

import contextlib
import dataclasses
import importlib
import shutil
import threading

import pytest
from playwright.sync_api import sync_playwright

from tests.support import charts


@dataclasses.dataclass(frozen=True)
class Done:
    code: int
    out: list[str]
    err: list[str]

    def fine(self) -> "Done":
        """Itself, where the command ended well."""
        assert self.code == 0, self
        return self

    def refusal(self) -> str:
        """The line of a command that refused its input and did nothing else."""
        assert (self.code, self.out, len(self.err)) == (2, [], 1), self
        return self.err[0]


@pytest.fixture(scope="module")
def chromium():
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs chromium or google-chrome on PATH, and there is none")
    with sync_playwright() as playwright:  # root needs the flag
        yield playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])


@pytest.fixture
def command(capsys):
    """Name of a command and its flags -> exit status and the lines that it printed."""

    def run(name, *arguments) -> Done:
        main = importlib.import_module(f"launch.{name}").main
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Done(code, out.splitlines(), err.splitlines())

    return run


@pytest.fixture
def parsed(capsys):
    """Name of a command and its flags -> what its body is given: a wrong flag or value fails."""

    def parse(name, *arguments):
        found, command = [], importlib.import_module(f"launch.{name}").COMMAND

        def body(given):
            found.append(given)
            return ""

        assert dataclasses.replace(command, body=body).main(arguments) == 0, capsys.readouterr().err
        return found[0]

    return parse


@pytest.fixture
def source(tmp_path):
    """Text, and the name of a file -> the file that holds it."""

    def make(text, name="Some List.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return make


@pytest.fixture
def light(monkeypatch):
    """Leaves the figures of reports undrawn."""
    monkeypatch.setattr("analysis.report.drawing.draw", lambda *_: charts.Undrawn())


@pytest.fixture(scope="module")
def explorer(checkpoint, tmp_path_factory):
    """Two tiny models behind the page of `assay serve`; the second one's head has objectives."""
    from engine.mesh import build_mesh
    from launch.serving.explorer import Explorer, load_models
    from tests.support.sweeps import SETTINGS

    checkpoints = [checkpoint(), checkpoint("several", head="urm")]
    run = str(tmp_path_factory.mktemp("kept") / "run")
    return Explorer(load_models(checkpoints, SETTINGS, build_mesh(), run), SETTINGS, run)


@pytest.fixture(scope="module")
def server(explorer):
    """The page's server, in a thread."""
    from launch.serving.server import Server, bind

    with contextlib.closing(Server(explorer, bind("127.0.0.1", 0))) as running:
        yield running


@pytest.fixture
def held(explorer, monkeypatch):
    """Every ranking waits behind its first step until `go` is set."""
    go, between = threading.Event(), explorer.desk.between

    def wait(job):
        while not job._cancelled.is_set() and not go.wait(0.01):
            between(job)
        between(job)

    monkeypatch.setattr(explorer.desk, "between", wait)
    yield go
    go.set()
