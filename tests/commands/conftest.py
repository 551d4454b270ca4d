"""Commands called inside the test process, and a real S3 server behind a proxy that fails."""

import dataclasses
import importlib

import pytest

from tests.support import charts


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
    monkeypatch.setattr("analysis.report.drawing.draw", lambda *_: charts.Undrawn())


@pytest.fixture(scope="session")
def server():
    """An S3 server; its objects are those of the test that uses it."""
    from tests.support import object_store

    with object_store.serving() as store:
        yield store


@pytest.fixture
def proxy(server, monkeypatch):
    """The server, empty, behind a proxy that this process and those it starts talk to.

    A request is sent three times instead of six.
    """
    import fsspec

    import engine.runs.storage  # noqa: F401 - its settings come before those of the test
    from tests.support import object_store

    server.empty()
    retries = {"retries": {"mode": "standard", "total_max_attempts": 3}}
    monkeypatch.setitem(fsspec.config.conf["s3"], "config_kwargs", retries)
    with object_store.Proxy(server.url) as proxy:
        for name, value in {**object_store.KEYS, "AWS_ENDPOINT_URL": proxy.url}.items():
            monkeypatch.setenv(name, value)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield proxy
        fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture
def store(server, proxy):
    """The server's objects."""
    return server
