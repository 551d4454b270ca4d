"""Fixtures of tests that use an object store: a real S3 server behind a proxy that fails."""

import pytest


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
