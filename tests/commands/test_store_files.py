"""Files, locks and writers in an object store: a real S3 server, over HTTP, that fails too."""

import json

import pytest

from engine.errors import AssayError
from engine.runs import lock, storage
from tests.support import object_store
from tests.support.object_store import BUCKET

pytestmark = pytest.mark.slow  # `make test` stays near five minutes
RUN = f"s3://{BUCKET}/out/run"


def test_of_many_writers_of_one_file_one_creates_it(store, proxy):
    from concurrent.futures import ThreadPoolExecutor

    path = storage.path_of(f"s3://{BUCKET}/lock")
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: storage.create(path, str(n).encode()), range(8)))
    assert won.count(True) == 1
    assert storage.read(path) == str(won.index(True)).encode()


def test_a_writer_whose_answer_was_lost_knows_that_it_created_the_file(store, proxy):
    path = storage.path_of(f"s3://{BUCKET}/lock")
    proxy.faults = lambda r: object_store.CUT_AFTER if r.number == 1 else None
    assert storage.create(path, b"mine")
    assert not storage.create(path, b"another's")
    assert [request.method for request in proxy.requests][:2] == ["PUT", "PUT"]


def test_a_lock_that_is_released_while_a_command_waits_for_it_is_taken(store, proxy, monkeypatch):
    monkeypatch.setattr(lock, "_POLL_S", 0.01)
    store.write("out/run/.lock", b"of another command")

    def release_before_the_first_look(request):
        if request.method == "GET" and request.path.endswith(".lock"):
            store.delete("out/run/.lock")

    proxy.faults = release_before_the_first_look
    with lock.hold(RUN, "sweep", wait=True):
        proxy.faults = lambda request: None
        held = json.loads(store.read("out/run/.lock"))
        assert held["command"] == "sweep"


def test_what_another_process_wrote_is_listed_and_read_at_once(store, proxy):
    folder = storage.path_of(f"s3://{BUCKET}/run/scores")
    assert storage.names(folder) == []
    assert not storage.exists(folder / "a")
    store.write("run/scores/a", b"1")
    assert storage.names(folder) == ["a"]
    assert storage.read(folder / "a") == b"1"
    store.write("run/scores/a", b"2")
    store.write("run/scores/b/c", b"3")
    assert storage.names(folder) == ["a", "b"]
    assert storage.read(folder / "a") == b"2"
    assert storage.is_folder(folder / "b") and not storage.is_file(folder / "b")
    assert storage.names(folder.parent) == ["scores"]
    store.write("run/scores/", b"")  # as a web console makes a folder
    store.write("run/scores/scores/d", b"4")
    assert storage.names(folder) == ["a", "b", "scores"]
    storage.remove_folder(folder / "scores")
    store.delete("run/scores/")
    storage.remove(folder / "a")
    storage.remove(folder / "a")
    storage.remove_folder(folder / "b")
    assert storage.names(folder) == []


def test_a_large_file_whose_upload_fails_is_not_seen_and_leaves_no_upload(store, proxy):
    path = storage.path_of(f"s3://{BUCKET}/large")
    data = bytes(101 << 20)
    proxy.faults = lambda r: object_store.DENIED if "partNumber=2" in r.path else None
    with pytest.raises(AssayError, match="the store refuses"):
        storage.write_atomic(path, data)
    assert not store.keys() and not store.uploads()
    proxy.faults = lambda request: None
    storage.write_atomic(path, data)
    assert storage.read(path) == data
