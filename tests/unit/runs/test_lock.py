"""The lock of a run folder: whom it refuses, when it is stale, what it leaves."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from etils import epath

from engine.errors import AssayError
from engine.runs import lock, storage
from engine.runs.folder import RunFolder

ELSEWHERE = {"host": "elsewhere", "machine": "another boot"}
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
def quick(monkeypatch):
    """Seconds of waiting as thousandths."""
    for name in ("BEAT_S", "STALE_S", "_POLL_S"):
        monkeypatch.setattr(lock, name, getattr(lock, name) / 1000)


@pytest.fixture
def process(folder):
    """A process that holds the lock until its input ends."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield process


def written(folder, **changes):
    """Writes a lock as another command would have, and returns its holder."""
    holder = lock.Holder(command="score", **changes)
    folder.mkdir(exist_ok=True)
    (folder / lock.NAME).write_bytes(holder.content)
    return holder


def holder_of(folder):
    return lock.holder_of(epath.Path(folder))


def test_a_lock_is_there_while_it_is_held_and_names_its_holder(folder):
    with lock.hold(str(folder), "sweep"):
        holder = holder_of(folder)
        assert (holder.command, holder.pid) == ("sweep", os.getpid())
    assert not folder.exists()  # it was made for the lock
    with lock.hold(str(folder), "sweep"):
        (folder / "run.json").write_text("{}")
    assert [path.name for path in folder.iterdir()] == ["run.json"]


def test_a_second_command_is_refused_in_one_line_that_names_the_first(folder, process):
    message = rf"in use by `assay sweep` on \S+, process {process.pid}, since .*--wait"
    with pytest.raises(AssayError, match=message), lock.hold(str(folder), "score"):
        pass
    with pytest.raises(AssayError, match="in use by `assay sweep`"):
        RunFolder.open(str(folder)).save({})  # of a command that takes no lock
    process.communicate()
    RunFolder.open(str(folder)).save({})


def test_a_second_command_waits_and_makes_the_folder_that_went_with_the_first(
    folder, process, quick, capfd
):
    threading.Timer(0.3, folder.rename, [folder.with_name("gone")]).start()
    with lock.hold(str(folder), "score", wait=True):
        assert holder_of(folder).command == "score"
    assert f"waiting for `assay sweep` on {os.uname().nodename}" in capfd.readouterr().err


def test_the_lock_of_a_killed_process_is_taken_over_at_once(folder, process, capfd):
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert (folder / lock.NAME).exists() and holder_of(folder) is None
    process.wait()
    with lock.hold(str(folder), "score"):
        assert holder_of(folder).pid == os.getpid()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["~/run", "file:run"])
def test_a_path_is_taken_as_it_is_written(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with lock.hold(name, "sweep"):
        lock.confirm(epath.Path(name))
        assert (tmp_path / name / lock.NAME).is_file()


def test_a_process_that_was_given_the_number_of_a_dead_one_is_not_the_holder(folder):
    written(folder, pid=os.getppid(), started="1")
    with lock.hold(str(folder), "sweep"):
        assert holder_of(folder).command == "sweep"


def test_a_process_of_which_the_system_says_nothing_holds_its_lock(folder, process, monkeypatch):
    """As of another user's where /proc is hidden, or where no further file can be opened."""
    monkeypatch.setattr(lock, "_started", lambda pid: "")
    assert not holder_of(folder).is_gone
    with pytest.raises(lock.LockError), lock.hold(str(folder), "score"):
        pass


def test_the_lock_of_another_host_is_stale_when_it_does_not_change(folder, quick, capfd):
    """Whatever its times say: clocks of two hosts differ; a container may share a host's name."""
    written(folder, pid=1, began="2099-01-01T00:00:00+00:00", machine="another container")
    os.utime(folder / lock.NAME, (4e9, 4e9))
    with lock.hold(str(folder), "sweep"):
        assert holder_of(folder).command == "sweep"
    assert "to see if it runs: `assay score` on" in capfd.readouterr().err


def test_a_lock_that_cannot_be_read_is_stale_when_it_does_not_change(folder, quick, capfd):
    folder.mkdir()
    (folder / lock.NAME).write_bytes(b"{")
    with lock.hold(str(folder), "sweep"):
        pass
    assert "an unknown command" in capfd.readouterr().err


def polled(monkeypatch, look):
    """Takes a lock's folder while a clock advances by a second with each poll, after `look`."""
    now = [1e6]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def sleep(seconds):
        if seconds == lock._POLL_S:
            look(now[0] - 1e6)
            now[0] += 1.0

    monkeypatch.setattr(time, "sleep", sleep)
    return lambda: now[0] - 1e6


def test_the_lock_of_another_host_that_changes_is_held(folder, monkeypatch):
    holder, polls = written(folder, **ELSEWHERE), []

    def beat(_):
        polls.append(1)
        (folder / lock.NAME).write_bytes(dataclasses.replace(holder, beats=len(polls)).content)

    polled(monkeypatch, beat)
    held = pytest.raises(AssayError, match="in use by `assay score` on elsewhere")
    with held, lock.hold(str(folder), "sweep"):
        pass
    assert len(polls) == 1


def test_after_a_minute_without_a_change_a_lock_is_stale(folder, monkeypatch):
    written(folder, **ELSEWHERE)
    waited = polled(monkeypatch, lambda _: None)
    with lock.hold(str(folder), "sweep"):
        assert waited() == lock.STALE_S


def test_a_holder_rewrites_its_lock_also_after_a_failure(folder, quick, monkeypatch, capfd):
    seen, failures, read = set(), [], storage.read_if_there

    def read_here(path):
        if threading.current_thread() is not threading.main_thread() and not failures:
            failures.append(path)
            raise AssayError("the store failed")
        return read(path)

    monkeypatch.setattr(storage, "read_if_there", read_here)
    with lock.hold(str(folder), "sweep"):
        while len(seen) < 3 or not failures:
            seen.add((folder / lock.NAME).read_bytes())
    assert capfd.readouterr().err == ""
    assert not folder.exists()


@pytest.mark.parametrize("taken", [True, False])
def test_a_command_whose_lock_was_taken_stops_at_the_next_save(folder, taken):
    with lock.hold(str(folder), "sweep"):
        run = RunFolder.open(str(folder))
        run.save({})
        if taken:
            written(folder, **ELSEWHERE)
        else:
            (folder / lock.NAME).unlink()
        how = "taken over by `assay score` on elsewhere" if taken else "removed"
        with pytest.raises(AssayError, match=f"the lock of this command was {how}.*; run it again"):
            run.save({})
    assert (folder / lock.NAME).exists() == taken  # another's is left alone
