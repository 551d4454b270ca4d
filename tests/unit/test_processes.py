"""What processes tell each other, how they end, and when they run a program that all compile."""

import socket
import subprocess
import sys

import pytest

from engine import processes
from tests.support.processes import LOST_LINE, ROOT, free_port

HOST = socket.gethostname()
START = """
import os, signal, sys, time
from engine import processes
port, count, index, timeout = map(int, sys.argv[1:])
processes.HEARTBEAT_S = 5
try:
    processes.join("test", f"127.0.0.1:{{port}}", count, index, timeout)
{body}
    processes.finish()
except Exception as error:  # any error of one process must end the others, as in a command
    processes.fail("test", str(error), 2)
print("done", index)
"""


@pytest.fixture
def start():
    """Lines of Python -> processes that run them; they are killed at the end."""
    started = []

    def run(body, count=2, *, indices=None, timeout=60):
        port = free_port()
        lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
        for index in range(count) if indices is None else indices:
            arguments = [str(value) for value in (port, count, index, timeout)]
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
    texts = [process.communicate(timeout=100) for process in started]
    return [(p.returncode, out, err) for p, (out, err) in zip(started, texts, strict=True)]


def test_one_process_decides_everything_itself():
    assert (processes.count(), processes.place(), processes.writes()) == (1, "", True)
    value = object()
    assert processes.from_first("value", lambda: value) is value
    processes.agree("values", value)  # not even read
    processes.finish()


TOLD = """
import socket
value = processes.from_first("value", lambda: print("computes", index) or {"index": index})
assert value == {"index": 0}, value
data = os.urandom(8_000_000)  # more than one message of gRPC holds by default
assert len(processes.bytes_from_first("data", lambda: data)) == len(data)
assert processes.bytes_from_first("no data", lambda: None) is None
processes.agree("values", value)
assert processes.place() == f"process {index} of 3 ({socket.gethostname()})"
"""


@pytest.mark.slow
def test_all_processes_learn_what_process_0_computes(start):
    for index, (code, out, err) in enumerate(ends(start(TOLD, 3))):
        assert (code, err) == (0, "")
        computed = [] if index else ["computes 0"]
        assert out.splitlines() == [*computed, f"done {index}"]


COLLECTIVE = "from jax.experimental import multihost_utils as m; m.sync_global_devices('all')"


def test_a_process_that_fails_is_named_by_all(start):
    body = f"if index: raise ValueError('no\\nroom')\n{COLLECTIVE}"
    line = f"test: process 1 of 2 ({HOST}): no room\n"
    assert ends(start(body)) == [(2, "", line)] * 2


@pytest.mark.slow
def test_a_process_that_hangs_ends_the_other_with_a_trace(start):
    body = """
processes.agree("beginnings", 1)
if index: os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(100)
"""
    [(code, out, err)] = ends([start(body)[0]])
    assert (code, out, err.splitlines()[-1]) == (3, "", f"test: {LOST_LINE}"), err


@pytest.mark.slow
def test_a_process_that_does_not_start_ends_the_others(start):
    for code, out, err in ends(start("pass", 3, indices=[1, 2], timeout=6)):
        assert (code, out, err.splitlines()[-1]) == (3, "", f"test: {LOST_LINE}"), err


LATE = """
import time
import numpy as np
from engine.programs import compiled_on_all
class Program:
    def lower(self, *arguments):
        return self
    def compile(self):
        time.sleep(3 * index)
        compiled.append(time.time())
        return lambda x: ran.append(time.time())
compiled, ran = [], []
program = compiled_on_all(Program())
for rows in (2, 2, 3):
    program(np.zeros(rows))
print(*compiled, *ran)
"""


@pytest.mark.slow
def test_no_process_runs_a_program_before_all_have_compiled_it(start):
    ended = ends(start(LATE.strip(), 2))
    assert [(code, err) for code, _, err in ended] == [(0, ""), (0, "")]
    times = [list(map(float, out.split("\n")[0].split())) for _, out, _ in ended]
    for own in times:
        ran = own[2:]  # after one compilation for each shape
        assert len(ran) == 3
        assert min(ran[:2]) >= max(other[0] for other in times)
        assert ran[2] >= max(other[1] for other in times)
