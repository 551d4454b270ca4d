"""The lock of a run folder: whom it refuses, when it is free again, what it leaves."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from etils import epath

from engine.errors import AssayError
from engine.runs import lock

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import sys
from engine.runs import lock
with lock.hold(sys.argv[1], "sweep"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def process(folder):
    """A process that holds the lock until its input ends."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield process


def holder_of(folder):
    return lock.holder_of(epath.Path(folder))


def test_a_folder_in_which_nothing_was_written_is_removed(folder):
    with pytest.raises(AssayError), lock.hold(str(folder), "sweep"):
        raise AssayError("refused")
    assert not folder.exists()


def test_a_second_command_waits_and_makes_the_folder_that_went_with_the_first(
    folder, process, capfd
):
    threading.Timer(0.3, process.stdin.close).start()
    with lock.hold(str(folder), "score", wait=True):
        assert holder_of(folder).startswith("`assay score`")
    assert f"waiting for `assay sweep` on {os.uname().nodename}" in capfd.readouterr().err


def test_the_lock_of_a_killed_process_is_free_at_once(folder, process, capfd):
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (folder / lock.NAME).exists() and not holder_of(folder)
    with lock.hold(str(folder), "score"):
        assert holder_of(folder).startswith("`assay score`")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["~/run", "file:run"])
def test_a_path_is_taken_as_it_is_written(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with lock.hold(name, "sweep"):
        assert (tmp_path / name / lock.NAME).is_file()


def test_a_run_in_a_store_has_no_lock():
    with lock.hold("s3://no-bucket/run", "sweep"), lock.hold("s3://no-bucket/run", "score"):
        pass


@pytest.mark.skipif(
    not os.path.isdir("/proc/self"), reason="needs a file system that makes nothing"
)
def test_a_folder_that_cannot_be_made_is_refused():
    with pytest.raises(AssayError, match=r"^run /proc/run: "), lock.hold("/proc/run", "sweep"):
        pass
