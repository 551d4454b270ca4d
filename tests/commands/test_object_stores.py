"""Runs, checkpoints and reports in an object store: a real S3 server, over HTTP."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import tiny
from tests.support.folders import files_of
from tests.support.object_store import BUCKET

pytestmark = pytest.mark.slow  # `make test` stays near five minutes
ROOT = Path(__file__).resolve().parents[2]
STORE = f"s3://{BUCKET}"
SMALL = ("--config.step_size=12", "--config.part_size=12", "--config.prompts=greatest,worst")
SEARCH = ("length=2", "steps=2", "candidates=8", "topk=8", "every=1", "ascii_only=False")
FAST = ("--config.options.permutations=99", "--config.options.bootstraps=99")


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


@pytest.fixture
def killed_sweep(store, tmp_path):
    """Kills a sweep into a store after its first part; returns the number of parts it wrote."""

    def parts(run):
        return [key for key in store.keys(run) if "part-" in key]

    def kill(checkpoint, run):
        compiled = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled")}
        flags = (f"--checkpoint={checkpoint}", f"--run={STORE}/{run}", *SMALL)
        process = subprocess.Popen(
            [sys.executable, "-m", "launch.sweep", *flags],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **compiled},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not parts(run) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        return len(parts(run))

    return kill


def test_a_store_gets_the_bytes_that_a_disk_gets_also_after_a_kill(
    command, store, killed_sweep, light, tmp_path
):
    source = tiny.write_model(tmp_path / "hf")
    for place in (str(tmp_path), STORE):
        checkpoint, run, report = (f"{place}/{name}" for name in ("tiny", "run", "report"))
        command("convert", f"--source={source}", f"--checkpoint={checkpoint}").fine()
        finished = killed_sweep(checkpoint, "run") if place == STORE else 0
        scored = (f"--checkpoint={checkpoint}", f"--run={run}")
        done = command("sweep", *scored, *SMALL).fine()
        new = 576 - 12 * finished
        assert done.out == [f"{run}/scores: 1 model × 2 prompts, {new} new rewards"]
        command("search", *scored, *(f"--config.{one}" for one in SEARCH)).fine()
        command("analyze", f"--run={run}", f"--report={report}", *FAST).fine()
        assert command("verify", f"--run={run}").fine().out[-1].endswith("all is well")
    assert 0 < finished < 48
    command("analyze", f"--run={run}", f"--report={report}", *FAST).fine()  # over the older one
    assert timeless(store.objects("run")) == timeless(files_of(tmp_path / "run"))
    of_store, of_disk = store.objects("report"), files_of(tmp_path / "report")
    assert set(of_store) == set(of_disk)
    assert all(of_store[path] == of_disk[path] for path in of_disk if path.startswith("tables/"))


REFUSED: dict[str, tuple[str, dict[str, str | None], str]] = {
    "no bucket": ("s3://no-such-bucket/run", {}, "no such file, or no such bucket"),
    "no credentials": (
        f"{STORE}/run",
        {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
        "the store refuses (Unable to locate credentials); check credentials, permissions and ",
    ),
    "nobody there": (
        f"{STORE}/run",
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        "the store failed (Could not connect to the endpoint URL: ",
    ),
    "no package": (
        "gs://bucket/run",  # the tests do not install gcsfs
        {},
        "gs:// needs the package gcsfs; install it with `pip install 'assay-rewards[stores]'",
    ),
    "another store": (
        "ftp://host/run",
        {},
        "not a path that Assay reads; allowed: a local path, s3://<bucket>/<path> or gs://<bucket>/",
    ),
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
    assert not store.keys()
