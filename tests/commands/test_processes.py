"""Commands beside another one, in folders that cannot be written, and into a closed pipe."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.runs import lock
from tests.support import runs

ROOT = Path(__file__).resolve().parents[2]


def test_of_two_commands_on_one_run_the_second_is_refused_or_waits(command, checkpoint, tmp_path):
    run = tmp_path / "run"
    flags = (f"--checkpoint={checkpoint().path}", f"--run={run}", "--config.prompts=greatest")
    with contextlib.ExitStack() as first:
        first.enter_context(lock.hold(str(run), "score"))
        refused = command("sweep", *flags)
        assert (refused.code, refused.out, len(refused.err)) == (2, [], 1)
        assert refused.err[0].startswith(f"sweep: run {run}: in use by `assay score` on ")
        assert f", process {os.getpid()}, since " in refused.err[0]
        threading.Timer(0.5, first.close).start()
        waited = command("sweep", *flags, "--wait")
    assert waited.code == 0 and waited.out[-1].endswith("288 new rewards")
    assert waited.err[0].startswith(f"run {run} is locked; waiting for `assay score` on ")
    assert not (run / ".lock").exists()


COMMANDS = """
import sys
from launch import analyze, convert, sweep
folder, checkpoint, source, run = sys.argv[1:]
assert sweep.main([f"--checkpoint={checkpoint}", f"--run={folder}/run"]) == 2
assert convert.main([f"--source={source}", f"--checkpoint={folder}/checkpoint"]) == 2
assert analyze.main([f"--run={run}", f"--report={folder}/report"]) == 2
"""


@pytest.mark.slow
def test_folders_that_cannot_be_written_are_one_line_each(checkpoint, tmp_path):
    """On a file system that is mounted read-only: root may write into any other folder."""
    folder, model = tmp_path / "disk", checkpoint().path
    folder.mkdir()
    inputs = [model, model.parent / "hf", runs.small_run(tmp_path / "run")]
    mounted = f'mount -t tmpfs -o ro none {folder} && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", mounted, "sh", sys.executable, "-c", COMMANDS]
    done = subprocess.run([*command, folder, *inputs], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert [line for line in done.stderr.splitlines() if "Read-only" in line] == [
        f"sweep: run {folder}/run: Read-only file system",
        f"convert: checkpoint {folder}/checkpoint: Read-only file system",
        f"analyze: {folder}/report: Read-only file system; choose another folder",
    ]
    assert "Traceback" not in done.stderr


def test_a_reader_that_stops_early_is_no_error():
    """As `python -m launch.models | head -1` is one."""
    command = [sys.executable, "-m", "launch.models"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 0)
