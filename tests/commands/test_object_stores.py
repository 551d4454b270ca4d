"""Runs, checkpoints and reports in an object store: a real S3 server, over HTTP."""

import fsspec
import pytest
from moto.server import ThreadedMotoServer

from engine.runs import storage
from engine.runs.result import Result
from tests.support import tiny
from tests.support.folders import files_of
from tests.support.killed import Killed, killed_after

pytestmark = pytest.mark.slow  # `make test` stays near five minutes
BUCKET = "assay-tests"
STORE = f"s3://{BUCKET}"
KEYS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",  # nothing but the keys above
}
SMALL = ("--config.step_size=12", "--config.part_size=48", "--config.prompts=greatest")
SEARCH = ("method=random", "length=1", "steps=2", "candidates=4", "every=1", "direction=max")
FAST = ("--config.options.permutations=99", "--config.options.bootstraps=99")


@pytest.fixture(scope="module")
def server():
    """The address of the server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def store(server, monkeypatch):
    """Its file system with an empty bucket, to which this process and those it starts talk."""
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": server}.items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    store = fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False)
    if store.exists(BUCKET):
        store.rm(BUCKET, recursive=True)
    store.mkdir(BUCKET)
    yield store
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def objects(store, folder: str) -> dict[str, bytes]:
    """Path below a folder -> bytes."""
    whole = f"{BUCKET}/{folder}/"
    return {path.removeprefix(whole): store.cat_file(path) for path in store.find(whole)}


def test_a_store_gets_the_bytes_that_a_disk_gets_also_after_a_kill(
    command, store, light, tmp_path, monkeypatch
):
    source = tiny.write_model(tmp_path / "hf")
    convert = ("convert", f"--source={source}")
    assert "s3://" in command(*convert, f"--checkpoint={STORE}/tiny").refusal()
    command(*convert, f"--checkpoint={tmp_path / 'tiny'}").fine()
    storage.upload(tmp_path / "tiny", storage.path_of(f"{STORE}/tiny"))
    for place in (str(tmp_path), STORE):
        checkpoint, run, report = (f"{place}/{name}" for name in ("tiny", "run", "report"))
        scored, finished = (f"--checkpoint={checkpoint}", f"--run={run}"), 0
        if place == STORE:
            finished = 3
            with monkeypatch.context() as patch, pytest.raises(Killed):
                killed_after(patch, Result, "write", finished)
                command("sweep", *scored, *SMALL)
        done = command("sweep", *scored, *SMALL).fine()
        new = 288 - 48 * finished
        assert done.out == [f"{run}/scores: 1 model × 1 prompt, {new} new rewards"]
        command("search", *scored, *(f"--config.{setting}" for setting in SEARCH)).fine()
        command("analyze", f"--run={run}", f"--report={report}", *FAST).fine()
        assert command("verify", f"--run={run}").fine().out[-1].endswith("all is well")
    command("analyze", f"--run={run}", f"--report={report}", *FAST).fine()  # over the older one
    for folder, same in (("run", ".parquet"), ("report", ".csv")):  # JSON has times
        of_store, of_disk = objects(store, folder), files_of(tmp_path / folder)
        assert set(of_store) == set(of_disk)
        assert all(of_store[path] == of_disk[path] for path in of_disk if path.endswith(same))


REFUSED = [
    ("s3://no-such-bucket/run", KEYS, "no such "),
    (f"{STORE}/run", {}, "the store refuses (Unable to locate credentials)"),
    ("gs://bucket/run", KEYS, "gs:// needs the package gcsfs"),  # which tests do not install
    ("ftp://host/run", KEYS, "not a path"),
]


@pytest.mark.parametrize(("run", "keys", "reason"), REFUSED)
def test_a_store_that_cannot_be_used_is_one_line(
    command, checkpoint, store, tmp_path, monkeypatch, run, keys, reason
):
    monkeypatch.setenv("HOME", str(tmp_path))  # where credentials may lie
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, keys[name]) if keys else monkeypatch.delenv(name)
    done = command("sweep", f"--checkpoint={checkpoint().path}", f"--run={run}", *SMALL)
    line = done.refusal()
    assert line.startswith(f"sweep: {run}") and f": {reason}" in line
    assert not store.find(BUCKET)
