"""The lock of a run folder: whom it refuses, when it is stale, what it leaves."""

import dataclasses
import json
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
from engine.runs import lock, patience, storage
from engine.runs.manifest import Manifest

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
    for name in ("BEAT_S", "STALE_S", "_SETTLE_S", "_POLL_S"):
        monkeypatch.setattr(lock, name, getattr(lock, name) / 1000)


def other_process(folder):
    """A process that holds the lock until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def end(process):
    process.stdin.close()
    process.stdout.close()
    assert process.wait() == 0


def written(folder, **changes):
    """Writes a lock as another command would have, and returns its holder."""
    holder = dataclasses.replace(lock.Holder.here("score", lock.STALE_S), **changes)
    folder.mkdir(exist_ok=True)
    (folder / lock.NAME).write_text(json.dumps({**dataclasses.asdict(holder), "beats": 0}))
    return holder


def test_a_lock_is_there_while_it_is_held_and_names_its_holder(folder):
    with lock.hold(str(folder), "sweep"):
        holder = lock.Holder.read((folder / lock.NAME).read_bytes())
        assert (holder.command, holder.pid) == ("sweep", os.getpid())
        assert not holder.is_gone
    assert not folder.exists()  # it was made for the lock


def test_a_folder_with_something_in_it_stays(folder):
    with lock.hold(str(folder), "sweep"):
        (folder / "manifest.json").write_text("{}")
    assert [path.name for path in folder.iterdir()] == ["manifest.json"]


def test_what_another_command_writes_while_the_folder_is_removed_stays(folder, monkeypatch):
    """The next command's lock may come as soon as ours is gone."""
    remove = lock.Lock.release

    def and_another_comes(own):
        remove(own)
        (folder / lock.NAME).write_text("another's")
        monkeypatch.setattr(type(own.path), "iterdir", lambda path: iter(()))  # looked before

    monkeypatch.setattr(lock.Lock, "release", and_another_comes)
    with lock.hold(str(folder), "sweep"):
        pass
    assert (folder / lock.NAME).read_text() == "another's"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_lock_is_released_whatever_ends_the_command(folder, error):
    with pytest.raises(error), lock.hold(str(folder), "sweep"):
        raise error
    assert not folder.exists()


def test_a_second_command_is_refused_in_one_line_that_names_the_first(folder):
    process = other_process(folder)
    try:
        message = rf"in use by `assay sweep` on \S+, process {process.pid}, since .*--wait"
        with pytest.raises(AssayError, match=message), lock.hold(str(folder), "score"):
            pass
    finally:
        end(process)
    with lock.hold(str(folder), "score"):
        pass


def test_a_second_command_that_waits_goes_on_when_the_first_has_ended(folder, quick, capfd):
    process = other_process(folder)
    threading.Timer(0.3, process.stdin.close).start()
    with lock.hold(str(folder), "score", wait=True):
        assert process.wait() == 0
    process.stdout.close()
    assert f"waiting for `assay sweep` on {os.uname().nodename}" in capfd.readouterr().err


def test_the_lock_of_a_killed_process_is_taken_over_at_once(folder, capfd):
    process = other_process(folder)
    process.send_signal(signal.SIGKILL)
    process.stdin.close()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    assert (folder / lock.NAME).exists()
    with lock.hold(str(folder), "score"):
        assert lock.holder_of(epath.Path(folder)).pid == os.getpid()
    assert capfd.readouterr().err == ""


def test_a_killed_process_that_nobody_waited_for_is_gone(folder):
    process = other_process(folder)
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert lock.holder_of(epath.Path(folder)) is None
    process.communicate()


def test_a_process_that_was_given_the_number_of_a_dead_one_is_not_the_holder(folder):
    holder = written(folder, process_began="1")
    assert holder.is_gone
    with lock.hold(str(folder), "sweep"):
        pass


@pytest.mark.parametrize("changes", [{"host": "elsewhere"}, {"machine": "another container"}])
def test_the_lock_of_another_host_is_stale_when_it_does_not_change(folder, quick, changes, capfd):
    written(folder, pid=1, **changes)
    with lock.hold(str(folder), "sweep"):
        assert lock.holder_of(epath.Path(folder)).command == "sweep"
    assert "to see if it runs: `assay score` on" in capfd.readouterr().err


def test_the_lock_of_another_host_that_changes_is_held(folder, monkeypatch):
    holder, polls = written(folder, host="elsewhere"), []

    def beat(_):
        polls.append(1)
        content = {**dataclasses.asdict(holder), "beats": len(polls)}
        (folder / lock.NAME).write_text(json.dumps(content))

    monkeypatch.setattr(time, "sleep", beat)
    with (
        pytest.raises(AssayError, match="in use by `assay score` on elsewhere"),
        lock.hold(str(folder), "sweep"),
    ):
        pass
    assert len(polls) == 1


def test_neither_the_time_of_the_lock_nor_the_time_in_it_matters(folder, quick):
    """As when the clock was set back, or those of two hosts differ."""
    written(folder, host="elsewhere", began="2099-01-01T00:00:00+00:00")
    os.utime(folder / lock.NAME, (4e9, 4e9))
    with lock.hold(str(folder), "sweep"):
        pass


def test_a_lock_that_cannot_be_read_is_stale_when_it_does_not_change(folder, quick, capfd):
    folder.mkdir()
    (folder / lock.NAME).write_bytes(b"{")
    with lock.hold(str(folder), "sweep"):
        pass
    assert "an unknown command" in capfd.readouterr().err


def test_a_lock_that_is_removed_between_two_looks_is_no_sign_of_life():
    watch = lock._Watch()
    assert not watch.is_stale(b"{}") and not watch.is_stale(b"")
    assert not watch.is_alive
    assert not watch.is_stale(b"[]") and watch.is_alive


def test_an_observer_counts_from_when_it_first_looked():
    now = [1e6]
    watch = lock._Watch(lambda: now[0])
    assert not watch.is_stale(b"a")
    looked_from = now[0]
    while now[0] < looked_from + lock.STALE_S - 1:
        now[0] += 1
        assert not watch.is_stale(b"a")
    now[0] += 1
    assert watch.is_stale(b"a")
    assert not watch.is_stale(b"b")
    assert watch.is_alive


def test_an_observer_that_could_not_look_for_a_while_counts_anew():
    """In an outage the holder could not rewrite its lock either."""
    now = [0.0]
    watch = lock._Watch(lambda: now[0])
    assert not watch.is_stale(b"a")
    now[0] += lock.STALE_S + 1
    assert not watch.is_stale(b"a")
    for _ in range(int(lock.STALE_S) - 1):
        now[0] += 1
        assert not watch.is_stale(b"a")
    now[0] += 1
    assert watch.is_stale(b"a")


def test_a_lock_says_itself_when_it_is_stale(folder):
    written(folder, host="elsewhere", stale_after_s=lock.STALE_S + 5)
    now, content = [0.0], (folder / lock.NAME).read_bytes()
    watch = lock._Watch(lambda: now[0])
    for now[0] in range(int(lock.STALE_S) + 5):
        assert not watch.is_stale(content)
    now[0] += 1
    assert watch.is_stale(content)


def test_a_lock_of_an_earlier_version_does_not_say_it():
    fields = dataclasses.asdict(lock.Holder.here("score", 99.0))
    del fields["stale_after_s"]
    assert lock.Holder.read(json.dumps(fields).encode()).stale_after_s == lock.STALE_S


def test_a_lock_in_a_store_is_stale_only_after_the_patience_of_its_holder(monkeypatch):
    monkeypatch.setenv(patience.VARIABLE, "600")
    assert lock._stale_after_s("s3://bucket/run") == lock.STALE_S + 600
    assert lock._stale_after_s("/tmp/run") == lock.STALE_S


def test_a_holder_asks_a_store_that_is_away_once_a_beat(folder, quick, monkeypatch, capfd):
    """It does not print, and leaves its patience to the command."""
    beats, read = [], storage.read_if_there

    def away():
        beats.append(1)
        raise TimeoutError

    def read_here(path):
        if threading.current_thread().name != "assay-lock":
            return read(path)
        with storage.reported(path):
            return patience.patiently(path, away)

    monkeypatch.setenv(patience.VARIABLE, "0.1")
    outage = patience._Outage()
    monkeypatch.setattr(patience, "_outage", outage)
    with lock.hold(str(folder), "sweep"), monkeypatch.context() as patch:
        patch.setattr(storage, "read_if_there", read_here)
        while len(beats) < 3:
            time.sleep(0.001)
    assert capfd.readouterr().err == ""
    assert outage._given_up == -float("inf")


def test_a_stale_lock_is_taken_over_by_a_single_attempt(folder, monkeypatch):
    """A write that arrived late might overwrite a lock that is not stale."""
    written(folder, process_began="1")
    single, write = [], storage.write_atomic

    def write_here(path, data):
        single.append(patience._here.once)
        write(path, data)

    monkeypatch.setattr(storage, "write_atomic", write_here)
    with lock.hold(str(folder), "sweep"):
        assert single == [True]


def test_a_holder_rewrites_its_lock(folder, quick):
    with lock.hold(str(folder), "sweep"):
        seen = {(folder / lock.NAME).read_bytes() for _ in range(2000)}
        while len(seen) < 3:
            seen.add((folder / lock.NAME).read_bytes())
    assert not folder.exists()


@pytest.mark.parametrize("taken", [True, False])
def test_a_command_whose_lock_was_taken_stops_at_the_next_save(folder, taken):
    with lock.hold(str(folder), "sweep"):
        manifest = Manifest.open(str(folder))
        manifest.save()
        if taken:
            written(folder, host="elsewhere")
        else:
            (folder / lock.NAME).unlink()
        how = "taken over by `assay score` on elsewhere" if taken else "removed"
        with pytest.raises(AssayError, match=f"the lock of this command was {how}.*; run it again"):
            manifest.save()
    assert (folder / lock.NAME).exists() == taken  # another's is left alone


def test_who_holds_no_lock_does_not_write_where_another_does(folder):
    process = other_process(folder)
    try:
        with pytest.raises(AssayError, match="in use by `assay sweep`"):
            Manifest.open(str(folder)).save()
    finally:
        end(process)
    Manifest.open(str(folder)).save()


def test_of_many_that_find_a_stale_lock_one_has_it(folder, monkeypatch):
    """Each in a thread of its own, at the same moment."""
    monkeypatch.setattr(lock, "_POLL_S", 0.01)
    written(folder, process_began="1")
    start, outcomes = threading.Barrier(8), []

    def attempt():
        mine = lock.Lock(epath.Path(folder / lock.NAME), lock.Holder.here("sweep", lock.STALE_S))
        start.wait()
        try:
            mine.take(False)
            outcomes.append(mine)
        except AssayError:
            outcomes.append(None)

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [mine for mine in outcomes if mine]
    winner.release()
    assert list(folder.iterdir()) == []


def test_a_file_is_no_run(folder):
    folder.write_text("")
    with (
        pytest.raises(AssayError, match="run: a file; allowed: a folder"),
        lock.hold(str(folder), "sweep"),
    ):
        pass
