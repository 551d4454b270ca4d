"""The connections between processes, without jax: each process is a few lines of Python."""

import socket
import subprocess
import sys
import time

import pytest

from engine import processes
from tests.support.processes import ROOT, free_port

HOST = socket.gethostname()
START = """
import sys, time
from engine import processes
port, count, index, timeout = map(int, sys.argv[1:])
try:
    processes.join("127.0.0.1", port, count, index, timeout, "test")
{body}
    processes.finish()
except Exception as error:  # any error of one process must end the others, as in a command
    processes.fail("test", error, str(error), 2)
print("done", index)
"""


@pytest.fixture
def start():
    """Lines of Python -> processes that run them; they are killed at the end."""
    started = []

    def run(body, count=3, *, indices=None, counts=None, timeout=20, port=None):
        port = port or free_port()
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        for index in range(count) if indices is None else indices:
            of = (counts or {}).get(index, count)
            arguments = [str(value) for value in (port, of, index, timeout)]
            command = [sys.executable, "-c", START.format(body=lines), *arguments]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            started.append(subprocess.Popen(command, cwd=ROOT, text=True, **pipes))
        return started

    yield run
    for process in started:
        process.kill()
        process.communicate()


def ends(started):
    """Exit code, output and errors of each process."""
    texts = [process.communicate(timeout=60) for process in started]
    return [(p.returncode, out, err) for p, (out, err) in zip(started, texts, strict=True)]


def test_one_process_decides_everything_itself():
    assert (processes.count(), processes.index(), processes.writes()) == (1, 0, True)
    value = object()
    assert processes.from_first("value", lambda: value) is value
    processes.agree("values", value)  # not even read
    assert processes.first_failure("trial", "damaged") == "damaged"
    processes.finish()


def test_all_processes_have_the_value_of_process_0_which_alone_computes_it(start):
    body = """
value = processes.from_first("value", lambda: print("computes", index) or {"index": index})
assert value == {"index": 0}, value
processes.agree("values", value)
assert processes.place() == f"process {index} of 3 ({socket.gethostname()})"
""".replace("value = ", "import socket\nvalue = ", 1)
    expected = [(0, f"{'computes 0' if i == 0 else ''}\ndone {i}\n".lstrip(), "") for i in range(3)]
    assert ends(start(body)) == expected


def test_the_first_process_that_differs_is_named_by_all(start):
    line = f"test: process 1 of 4 ({HOST}): its colours differ from those of process 0 ({HOST})\n"
    body = 'processes.agree("shapes", 1)\nprocesses.agree("colours", {"red": index > 0})'
    assert ends(start(body, 4)) == [(2, "", line)] * 4


def test_processes_that_take_other_ways_are_told_apart(start):
    line = f"test: process 1 of 2 ({HOST}): compares 'that', but process 0 compares 'this'\n"
    body = 'processes.agree("that" if index else "this", 1)'
    assert ends(start(body, 2)) == [(2, "", line)] * 2


@pytest.mark.parametrize("index", [0, 2])
def test_an_error_of_one_process_ends_all_wherever_they_are(start, index):
    body = f"if index == {index}: raise ValueError('no\\nroom')\ntime.sleep(100)"
    line = f"test: process {index} of 3 ({HOST}): no room\n"
    assert ends(start(body)) == [(2, "", line)] * 3


@pytest.mark.parametrize("index", [0, 2])
def test_a_process_that_is_gone_is_named_by_the_others(start, index):
    body = f"import os, signal\nif index == {index}: os.kill(os.getpid(), 9)\ntime.sleep(100)"
    line = f"test: process {index} of 3 ({HOST}): ended without a word: killed, or crashed\n"
    ended = ends(start(body))
    assert ended.pop(index)[0] == -9
    assert ended == [(3, "", line)] * 2


def test_nobody_is_done_while_another_may_fail(start):
    body = "time.sleep(index)\nif index == 2: raise ValueError('late')"
    assert ends(start(body)) == [(2, "", f"test: process 2 of 3 ({HOST}): late\n")] * 3


def test_what_must_be_undone_is_undone_when_another_process_fails(start):
    body = """
processes.at_exit(lambda: print("forgotten", index))()
processes.at_exit(lambda: print("first", index))
processes.at_exit(lambda: 1 / 0)
processes.at_exit(lambda: print("last", index))
processes.agree("beginnings", 1)
if index: raise ValueError("ill")
time.sleep(100)
"""
    line = f"test: process 1 of 2 ({HOST}): ill\n"
    assert ends(start(body, 2)) == [(2, f"last {i}\nfirst {i}\n", line) for i in range(2)]


def test_the_line_of_a_failure_stands_alone_while_bars_are_drawn():
    lines = """
import threading, time
from engine import processes
from engine.progress import progress
threading.Timer(0.05, processes.end, ("test: it failed", 2)).start()
while True:
    with progress(10) as bar:
        bar.update(1)
"""
    for _ in range(5):
        command = [sys.executable, "-c", lines]
        ended = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=60)
        assert ended.returncode == 2
        assert ended.stderr.replace("\r", "\n").splitlines()[-1] == "test: it failed"


def test_a_forked_process_that_ends_leaves_the_bars_of_its_parent_alone():
    lines = """
import os
from engine import processes
from engine.progress import progress
if os.fork() == 0:
    processes.end("test: it failed", 2)
os.wait()
progress(10).close()
"""
    command = [sys.executable, "-c", lines]
    ended = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=60)
    assert ended.returncode == 0 and ended.stderr.startswith("test: it failed\n")


def test_the_first_process_leaves_its_line_before_the_others_are_gone(start, tmp_path):
    """Below jax, libraries may abort process 0 as soon as another process is gone."""
    body = f"""
import os, pathlib, threading
other = pathlib.Path({str(tmp_path / "pid")!r})
if index: other.write_text(str(os.getpid()))
processes.agree("beginnings", 1)
def abort_when_it_is_gone(stat):
    while stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
        time.sleep(0.001)
    os.abort()
if index == 0:
    stat = pathlib.Path("/proc") / other.read_text() / "stat"
    threading.Thread(target=abort_when_it_is_gone, args=[stat], daemon=True).start()
    processes.at_exit(lambda: time.sleep(1))
    time.sleep(100)
raise ValueError("ill")
"""
    assert ends(start(body, 2)) == [(2, "", f"test: process 1 of 2 ({HOST}): ill\n")] * 2


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ('""', ""),
        ('"damaged"', "damaged"),
        ('"damaged" if index == 1 else ""', f"process 1 of 3 ({HOST}): damaged"),
        ('f"damaged {index}" if index else ""', f"process 1 of 3 ({HOST}): damaged 1"),
        ('"" if index else "full"', f"process 0 of 3 ({HOST}): full"),
    ],
)
def test_all_learn_what_failed_on_any_process_and_go_on(start, own, told):
    body = f"""
print(repr(processes.first_failure("trial", {own})))
print(processes.from_first("value", lambda: 7))
"""
    assert ends(start(body)) == [(0, f"{told!r}\n7\ndone {i}\n", "") for i in range(3)]


@pytest.mark.parametrize(("index", "others"), [(1, '""'), (1, '"full"'), (0, '""')])
def test_where_reasons_must_be_alike_one_that_differs_ends_all(start, index, others):
    body = f"""
processes.first_failure("trial", "damaged" if index == {index} else {others}, alike=True)
"""
    first = 0 if others != '""' else index
    reason = "damaged" if first == index else "full"
    line = f"test: process {first} of 2 ({HOST}): {reason}\n"
    assert ends(start(body, 2)) == [(2, "", line)] * 2


def test_where_reasons_must_be_alike_and_are_all_go_on(start):
    body = 'print(processes.first_failure("trial", "damaged", alike=True))'
    assert ends(start(body, 2)) == [(0, f"damaged\ndone {i}\n", "") for i in range(2)]


def test_a_process_that_tries_something_else_is_named(start):
    line = f"test: process 1 of 2 ({HOST}): does 'that', but process 0 does 'this'\n"
    body = 'processes.first_failure("that" if index else "this", "")'
    assert ends(start(body, 2)) == [(2, "", line)] * 2


def test_a_process_of_another_number_is_refused(start):
    ended = ends(start("pass", 2, counts={1: 5}))
    reason = "was started as one of 5 processes, process 0 as one of 2"
    assert ended == [(2, "", f"test: process 1 of 2 ({HOST}): {reason}\n")] * 2


def test_a_process_that_was_started_twice_is_refused(start):
    ended = ends(start("pass", 3, indices=[0, 1, 1]))
    assert ended == [(2, "", f"test: process 1 of 3 ({HOST}): was started twice\n")] * 3


def test_processes_that_do_not_come_are_named(start):
    ended = ends(start("pass", 4, indices=[0, 2], timeout=2))
    line = "test: process 1 of 4: did not come within 2 s, nor did 3\n"
    assert ended == [(3, "", line)] * 2


def test_a_stranger_on_the_port_is_sent_away(start):
    port = free_port()
    started = start("pass", 2, indices=[0], port=port)
    for _ in range(200):
        try:
            stranger = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            time.sleep(0.05)
    with stranger:
        stranger.sendall(b"GET / HTTP/1.1\n\n")
        assert stranger.recv(100) == b""
    assert ends(start("pass", 2, indices=[1], port=port)) == [
        (0, f"done {i}\n", "") for i in (0, 1)
    ]
    assert len(started) == 2


def test_a_port_that_is_taken_is_one_line(start):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        [(code, out, err)] = ends(start("pass", 2, indices=[0], port=port))
    assert (code, out) == (2, "")
    assert err.startswith(f"test: port {port}, 10,000 from the coordinator's: ")
    assert err.endswith("; allowed: a coordinator whose two ports are free\n")
