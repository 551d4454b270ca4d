"""Runs, checkpoints and reports in an object store: a real S3 server, over HTTP, that fails too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from tests.support import object_store, runs
from tests.support.object_store import BUCKET

ROOT = Path(__file__).resolve().parents[2]
RUN, CHECKPOINT = f"s3://{BUCKET}/out/run", f"s3://{BUCKET}/models/tiny"
SMALL = ("--config.step_size=64", "--config.part_size=100", "--config.prompts=greatest")
FAST = ["--config.options.permutations=99", "--config.options.bootstraps=99"]


@pytest.fixture(scope="module")
def server():
    with object_store.serving() as store:
        yield store


@pytest.fixture
def proxy(server, monkeypatch):
    """The server, empty, behind a proxy that this process and those it starts talk to."""
    server.empty()
    with object_store.Proxy(server.url) as proxy:
        for name, value in {**object_store.KEYS, "AWS_ENDPOINT_URL": proxy.url}.items():
            monkeypatch.setenv(name, value)
        # Three attempts instead of seven: a fault that lasts is told after a second.
        config = {"retries": {"mode": "standard", "total_max_attempts": 3}}
        monkeypatch.setitem(fsspec.config.conf["s3"], "config_kwargs", config)
        monkeypatch.setenv("FSSPEC_S3_CONFIG_KWARGS", json.dumps(config))
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield proxy
        fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture
def store(server, proxy):
    """The server's objects."""
    return server


@pytest.fixture
def model(checkpoint):
    return checkpoint().path


def start(folder, name, *flags):
    return subprocess.Popen(
        [sys.executable, "-m", f"launch.{name}", *map(str, flags)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        },
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def files(folder):
    """Path -> bytes of a local folder."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


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
    for result in content["results"].values():
        result["seconds"] = None
    return content


# What commands do


def test_every_command_writes_the_bytes_to_a_store_that_it_writes_to_a_disk(
    command, checkpoint, store, tmp_path
):
    reward, language = checkpoint().path, checkpoint("lm", head="lm").path
    (tmp_path / "words.txt").write_text("love\nwar\n")
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
        assert command("gcg", *scored, *(f"--config.{one}" for one in search)).code == 0
        done = command("logprobs", f"--checkpoint={models[1]}", f"--run={run}", *SMALL)
        assert done.code == 0, done.err
        again = command("sweep", *scored, *SMALL)
        assert again.out == [f"{run}/scores: 1 models × 1 prompts, complete already"]
    same(store.objects("out/run"), files(local))


def test_a_model_converted_into_a_store_is_the_one_converted_onto_a_disk(command, store, tmp_path):
    from tests.support import tiny

    source = tiny.write_model(tmp_path / "hf")
    done = command("convert", f"--source={source}", f"--checkpoint={CHECKPOINT}")
    assert done.code == 0, done.err
    assert done.out == [f"{CHECKPOINT}: hf, 3 layers, linear head, 320 tokens, float32"]
    assert command("convert", f"--source={source}", f"--checkpoint={tmp_path / 'c'}").code == 0
    remote, local = store.objects("models/tiny"), files(tmp_path / "c")
    assert set(remote) == set(local)
    timed = ("_CHECKPOINT_METADATA", "commit_success.txt")  # of orbax, with times
    for path in (path for path in local if not path.endswith(timed)):
        assert remote[path] == local[path], path
    again = command("convert", f"--source={source}", f"--checkpoint={CHECKPOINT}")
    assert again.err == [
        f"convert: checkpoint {CHECKPOINT}: exists; remove it or name another folder"
    ]


def test_a_report_of_a_run_in_a_store_is_written_into_the_store(command, store, tmp_path):
    local = runs.small_run(tmp_path / "run")
    store.upload(local, "out/run")
    report = f"s3://{BUCKET}/out/report"
    done = command("analyze", f"--run={RUN}", f"--report={report}", *FAST)
    assert done.code == 0, done.err
    assert done.out == [f"report: {report}/index.html"]
    assert command("analyze", f"--run={local}", f"--report={tmp_path / 'report'}", *FAST).code == 0
    remote = store.objects("out/report")
    assert set(remote) == set(files(tmp_path / "report"))
    tables = {path: data for path, data in files(tmp_path / "report").items() if "tables" in path}
    assert {path: remote[path] for path in tables} == tables

    store.write("out/report/tables/old.csv", b"of an older report")
    assert command("analyze", f"--run={RUN}", f"--report={report}", *FAST).code == 0
    assert set(store.objects("out/report")) == set(remote)


def test_scores_are_imported_into_a_store(command, store, tmp_path):
    source = tmp_path / "elo.csv"
    source.write_text("elo_rank,elo_score,name,elo_matches,org/rm\n1,1500,love,7,0.5\n")
    for run in (RUN, tmp_path / "run"):
        done = command("import_scores", f"--source={source}", "--layout=elo", f"--run={run}")
        assert done.code == 0, done.err
    same(store.objects("out/run"), files(tmp_path / "run"))
