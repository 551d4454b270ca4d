"""Runs, checkpoints and reports in an object store: a real S3 server, over HTTP."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
from moto.server import ThreadedMotoServer

from engine.runs import storage
from tests.support import tiny
from tests.support.folders import files_of

pytestmark = pytest.mark.slow  # `make test` stays near five minutes
ROOT = Path(__file__).resolve().parents[2]
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


def timeless(files):
    """Path -> bytes of files, of those of JSON their content, without times and devices."""

    def without(value):
        if not isinstance(value, dict):
            return value
        return {k: without(v) for k, v in value.items() if k not in ("seconds", "environment")}

    parsed = {path: without(json.loads(files[path])) for path in files if path.endswith(".json")}
    for content in parsed.values():
        content.pop("sha256", None)  # of the record itself
    return {**files, **parsed}


# Kills itself behind its third part.
KILLED = """
import os, signal, sys
from engine.runs.result import Result
from launch import sweep
write = Result.write
def dies(result, *part):
    write(result, *part)
    if len(result.parts) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
Result.write = dies
sweep.main(sys.argv[1:])
"""


def test_a_store_gets_the_bytes_that_a_disk_gets_also_after_a_kill(command, store, light, tmp_path):
    source = tiny.write_model(tmp_path / "hf")
    convert = ("convert", f"--source={source}")
    assert "s3://" in command(*convert, f"--checkpoint={STORE}/tiny").refusal()
    command(*convert, f"--checkpoint={tmp_path / 'tiny'}").fine()
    storage.upload(tmp_path / "tiny", storage.path_of(f"{STORE}/tiny"))
    for place in (str(tmp_path), STORE):
        checkpoint, run, report = (f"{place}/{name}" for name in ("tiny", "run", "report"))
        scored, finished = (f"--checkpoint={checkpoint}", f"--run={run}"), 0
        if place == STORE:
            swept, finished = [sys.executable, "-c", KILLED, *scored, *SMALL], 3
            assert subprocess.run(swept, cwd=ROOT, stderr=-1).returncode == -signal.SIGKILL
        done = command("sweep", *scored, *SMALL).fine()
        new = 288 - 48 * finished
        assert done.out == [f"{run}/scores: 1 model × 1 prompt, {new} new rewards"]
        command("search", *scored, *(f"--config.{setting}" for setting in SEARCH)).fine()
        command("analyze", f"--run={run}", f"--report={report}", *FAST).fine()
        assert command("verify", f"--run={run}").fine().out[-1].endswith("all is well")
    command("analyze", f"--run={run}", f"--report={report}", *FAST).fine()  # over the older one
    assert timeless(objects(store, "run")) == timeless(files_of(tmp_path / "run"))
    of_store, of_disk = objects(store, "report"), files_of(tmp_path / "report")
    assert set(of_store) == set(of_disk)
    assert all(of_store[path] == of_disk[path] for path in of_disk if path.startswith("tables/"))


REFUSED: dict[str, tuple[str, dict[str, str | None], str]] = {
    "no bucket": ("s3://no-such-bucket/run", {}, "no such "),
    "no credentials": (
        f"{STORE}/run",
        {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
        "the store refuses (Unable to locate credentials)",
    ),
    "no package": (
        "gs://bucket/run",  # the tests do not install gcsfs
        {},
        "gs:// needs the package gcsfs",
    ),
    "another store": ("ftp://host/run", {}, "not a path"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_store_that_cannot_be_used_is_one_line(
    command, checkpoint, store, tmp_path, monkeypatch, case
):
    run, variables, reason = REFUSED[case]
    monkeypatch.setenv("HOME", str(tmp_path))  # where credentials may lie
    for name, value in variables.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    done = command("sweep", f"--checkpoint={checkpoint().path}", f"--run={run}", *SMALL)
    line = done.refusal()
    assert line.startswith(f"sweep: {run}") and f": {reason}" in line
    assert not store.find(BUCKET)
