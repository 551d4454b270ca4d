"""Runs, checkpoints and reports in an object store: a real S3 server, over HTTP, that fails too."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import pytest

from analysis.report import folder
from engine.errors import AssayError
from engine.runs import storage
from launch import sweep
from tests.support import object_store, runs
from tests.support.folders import files_of
from tests.support.object_store import BUCKET

pytestmark = pytest.mark.slow  # `make test` stays near five minutes
ROOT = Path(__file__).resolve().parents[2]
RUN, CHECKPOINT = f"s3://{BUCKET}/out/run", f"s3://{BUCKET}/models/tiny"
SMALL = ("--config.step_size=64", "--config.part_size=100", "--config.prompts=greatest")
FAST = ["--config.options.permutations=99", "--config.options.bootstraps=99"]


@pytest.fixture
def model(checkpoint):
    return checkpoint().path


def same(run, other):
    """Checks that two runs (path -> bytes) are equal but for times and devices."""
    assert set(run) == set(other)
    for path, data in run.items():
        if path == "manifest.json":
            assert timeless(data) == timeless(other[path])
        else:
            assert data == other[path], path


def timeless(data):
    content = json.loads(data)
    del content["sha256"]
    for result in content["results"].values():
        del result["seconds"], result["environment"]
    return content


# What commands do


def test_every_command_writes_the_bytes_to_a_store_that_it_writes_to_a_disk(
    command, checkpoint, store, tmp_path
):
    reward, language = checkpoint().path, checkpoint("lm", head="lm").path
    (tmp_path / "words.txt").write_text("love\nwar\n")
    elo = tmp_path / "elo.csv"
    elo.write_text("elo_rank,elo_score,name,elo_matches,org/rm\n1,1500,love,7,0.5\n")
    local = tmp_path / "run"
    search = ("length=2", "steps=2", "candidates=8", "topk=8", "every=1", "ascii_only=False")
    for run in (local, RUN):
        models = (reward, language)
        if run == RUN:
            store.upload(reward, "models/tiny")
            store.upload(language, "models/lm")
            models = (CHECKPOINT, f"s3://{BUCKET}/models/lm")
        scored = (f"--checkpoint={models[0]}", f"--run={run}")
        assert command("sweep", *scored, *SMALL).code == 0
        assert command("score", *scored, f"--items={tmp_path}/words.txt", *SMALL).code == 0
        assert command("search", *scored, *(f"--config.{one}" for one in search)).code == 0
        done = command("logprobs", f"--checkpoint={models[1]}", f"--run={run}", *SMALL).fine()
        imported = (f"--source={elo}", "--layout=items", f"--run={run}", "--prompt=elo_greatest")
        assert command("import_scores", *imported).code == 0
        again = command("sweep", *scored, *SMALL)
        assert again.out == [f"{run}/scores: 1 model × 1 prompt, complete already"]
        done = command("verify", f"--run={run}")
        assert done.out[-1].endswith("all is well"), done.out
    same(store.objects("out/run"), files_of(local))


@pytest.fixture
def some_fail(proxy):
    """Each seventh request fails in passing, from the call on."""

    def start():
        proxy.faults = lambda r: object_store.Fault(503, "x") if r.number % 7 == 0 else None

    return start


def test_a_model_converted_into_a_store_is_the_one_converted_onto_a_disk(
    command, store, some_fail, tmp_path
):
    from tests.support import tiny

    source = tiny.write_model(tmp_path / "hf")
    some_fail()
    done = command("convert", f"--source={source}", f"--checkpoint={CHECKPOINT}").fine()
    assert done.out == [f"{CHECKPOINT}: hf, 3 layers, linear head, 320 tokens, float32"]
    assert command("convert", f"--source={source}", f"--checkpoint={tmp_path / 'c'}").code == 0
    remote, local = store.objects("models/tiny"), files_of(tmp_path / "c")
    assert set(remote) == set(local)
    timed = ("_CHECKPOINT_METADATA", "commit_success.txt")  # of orbax, with times
    for path in (path for path in local if not path.endswith(timed)):
        assert remote[path] == local[path], path


@pytest.mark.slow
def test_a_report_of_a_run_in_a_store_is_written_into_the_store(
    command, store, some_fail, tmp_path
):
    """In place of an older one, and though some requests fail."""
    local = runs.small_run(tmp_path / "run")
    store.upload(local, "out/run")
    report = f"s3://{BUCKET}/out/report"
    with folder.staged(storage.path_of(report), {}) as older:
        (older / "tables").mkdir()
        (older / "tables/old.csv").write_text("of an older report")
        (older / "index.html").write_text("an older report")
        (older / "verdict.json").write_text("of a comparison")
    assert "verdict.json" in store.objects("out/report")
    some_fail()
    done = command("analyze", f"--run={RUN}", f"--report={report}", *FAST).fine()
    assert done.out == [f"report: {report}/index.html"]
    assert command("analyze", f"--run={local}", f"--report={tmp_path / 'report'}", *FAST).code == 0
    remote, local = store.objects("out/report"), files_of(tmp_path / "report")
    assert set(remote) == set(local)
    tables = {path: data for path, data in local.items() if "tables" in path}
    assert {path: remote[path] for path in tables} == tables


# What fails in a store


@pytest.fixture(scope="module")
def swept(checkpoint, tmp_path_factory):
    """Flags of a sweep without its run, and the files of it on a disk."""
    flags, local = (f"--checkpoint={checkpoint().path}", *SMALL), tmp_path_factory.mktemp("local")
    assert sweep.main([*flags, f"--run={local / 'run'}"]) == 0
    return flags, files_of(local / "run")


PASSING = {
    "busy": lambda r: object_store.SLOW_DOWN if r.number % 3 == 0 else None,
    "connection lost": lambda r: object_store.CUT if r.number % 3 == 0 else None,
    "answer lost": lambda r: object_store.CUT_AFTER if r.number % 3 == 0 else None,
}


@pytest.mark.parametrize("fault", PASSING)
def test_requests_that_fail_in_passing_are_sent_again(command, swept, store, proxy, fault):
    flags, expected = swept
    proxy.faults = PASSING[fault]
    done = command("sweep", *flags, f"--run={RUN}").fine()
    assert done.out == [f"{RUN}/scores: 1 model × 1 prompt, 288 new rewards"]
    assert len(proxy.requests) > 30  # of which each third failed
    same(store.objects("out/run"), expected)


def after_parts(count, fault):
    """A fault of every request that comes after a number of parts were written.

    But of HEAD, whose answers have no body that names the fault: the lock's may come first.
    """
    written = []

    def decide(request):
        if len(written) >= count:
            return fault if request.method != "HEAD" else None
        if request.method == "PUT" and "part-" in request.path:
            written.append(request)
        return None

    return decide


LASTING = {
    "expired": (object_store.EXPIRED, "the store refuses (ExpiredToken); check credentials, "),
    "busy": (
        object_store.SLOW_DOWN,
        "the store failed (SlowDown); what is finished is kept: run again later",
    ),
    "no answer": (object_store.HANG, "the store failed (Read timeout"),
}


@pytest.mark.parametrize("fault", LASTING)
def test_a_fault_that_lasts_is_one_line_and_the_next_sweep_goes_on(
    command, swept, store, proxy, monkeypatch, fault
):
    once = {"retries": {"mode": "standard", "total_max_attempts": 1}, "read_timeout": 0.5}
    monkeypatch.setitem(fsspec.config.conf["s3"], "config_kwargs", once)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    flags, expected = swept
    lasting, message = LASTING[fault]
    proxy.faults = after_parts(1, lasting)
    done = command("sweep", *flags, f"--run={RUN}")
    assert done.code == 2
    [line] = [line for line in done.err if line.startswith("sweep:")]
    assert line.startswith(f"sweep: {RUN}/")
    assert f": {message}" in line
    assert "Traceback" not in "\n".join(done.err)

    proxy.faults = lambda request: None
    first = {path for path in store.objects("out/run") if "part-" in path}
    assert len(first) == 1
    done = command("sweep", *flags, f"--run={RUN}")
    assert done.out == [f"{RUN}/scores: 1 model × 1 prompt, 188 new rewards"]
    same(store.objects("out/run"), expected)


REFUSED: dict[str, tuple[str, dict[str, str | None], str]] = {
    "no bucket": (
        "s3://no-such-bucket/run",
        {},
        "s3://no-such-bucket/run/.lock: no such file, or no such bucket",
    ),
    "no credentials": (
        RUN,
        {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
        f"{RUN}: the store refuses (Unable to locate credentials); check credentials, ",
    ),
    "nobody there": (
        RUN,
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        f"{RUN}: the store failed (Could not connect to the endpoint URL: ",
    ),
    "no package": (
        "gs://bucket/run",  # the tests do not install gcsfs
        {},
        "gs://bucket/run: gs:// needs the package gcsfs; install it with `pip install 'assay[gcs]'",
    ),
    "another store": (
        "ftp://host/run",
        {},
        "ftp://host/run: not a path that Assay reads; allowed: a local path, s3://<bucket>/<path> "
        "or gs://<bucket>/<path>",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_store_that_cannot_be_used_is_one_line(
    command, model, store, tmp_path, monkeypatch, case
):
    run, variables, message = REFUSED[case]
    monkeypatch.setenv("HOME", str(tmp_path))  # where credentials may lie
    for name, value in variables.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    done = command("sweep", f"--checkpoint={model}", f"--run={run}", *SMALL)
    assert done.refusal().startswith(f"sweep: {message}")
    assert not store.keys()


def test_an_interrupted_conversion_is_no_checkpoint_and_is_replaced(
    command, store, proxy, tmp_path
):
    from tests.support import tiny

    source = tiny.write_model(tmp_path / "hf")
    convert = ("convert", f"--source={source}", f"--checkpoint={CHECKPOINT}")
    proxy.faults = lambda r: object_store.EXPIRED if "layers/001" in r.path else None
    said = f"convert: {CHECKPOINT}/params/layers/001: the store refuses (ExpiredToken); check "
    assert command(*convert).refusal().startswith(said)
    proxy.faults = lambda request: None
    assert not store.keys("models")  # removed, as soon as it failed

    store.write("models/tiny/params/layers/009/stale", b"of a conversion that was killed")
    refused = command("sweep", f"--checkpoint={CHECKPOINT}", f"--run={RUN}")
    assert "no checkpoint (model.json is missing)" in refused.err[0]
    assert command(*convert).code == 0
    assert not [key for key in store.keys("models") if "stale" in key]


def test_of_a_report_whose_upload_fails_the_older_page_is_seen(store, proxy, tmp_path):
    report = storage.path_of(f"s3://{BUCKET}/report")

    def write(text):
        with folder.staged(report, {}) as fresh:
            (fresh / "tables").mkdir()
            (fresh / "tables/one.csv").write_text(text)
            (fresh / "index.html").write_text(text)

    def page():
        return store.objects("report").get("index.html")

    proxy.faults = lambda r: object_store.DENIED if "one.csv" in r.path else None
    for attempt in ("first", "second"):
        with pytest.raises(AssayError, match="the store refuses"):
            write(attempt)
        assert page() is None
        folder.check_target(report, [])  # which may be written again
    proxy.faults = lambda request: None
    write("third")
    proxy.faults = lambda r: object_store.DENIED if "one.csv" in r.path else None
    with pytest.raises(AssayError, match="the store refuses"):
        write("fourth")
    assert page() == b"third"
    store.write("other/notes.txt", b"of somebody")
    with pytest.raises(folder.ReportError, match="not a report of ours"):
        folder.check_target(storage.path_of(f"s3://{BUCKET}/other"), [])


@pytest.mark.slow
def test_a_sweep_killed_in_the_middle_ends_in_the_bytes_of_an_uninterrupted_one(
    command, model, store, tmp_path
):
    flags = (
        f"--checkpoint={model}",
        "--config.prompts=greatest,worst",
        "--config.part_size=12",
        "--config.step_size=12",
    )
    assert command("sweep", *flags, f"--run={tmp_path / 'whole'}").code == 0

    def parts():
        return [key for key in store.keys("out/run") if "part-" in key]

    compiled = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled")}
    process = subprocess.Popen(
        [sys.executable, "-m", "launch.sweep", *flags, f"--run={RUN}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **compiled},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not parts() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    finished = len(parts())
    assert 0 < finished < 48

    done = command("sweep", *flags, f"--run={RUN}")
    assert done.out == [f"{RUN}/scores: 1 model × 2 prompts, {576 - 12 * finished} new rewards"]
    same(store.objects("out/run"), files_of(tmp_path / "whole"))
