"""Commands called inside the test process: what `python -m launch.<name>` does, less its start."""

import collections
import dataclasses
import importlib

import pytest

from analysis.report import drawing
from tests.support.store_fixtures import proxy, server, store

__all__ = ["proxy", "server", "store"]  # fixtures


@dataclasses.dataclass(frozen=True)
class Done:
    code: int
    out: list[str]
    err: list[str]


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
    monkeypatch.setattr(drawing, "draw", lambda *_: collections.defaultdict(str))
