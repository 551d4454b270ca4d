"""Signals that stop a command, while its main thread is in C, or imports."""

import signal
import subprocess
import sys
import time

import pytest

from launch.common import stopping
from tests.support.processes import ROOT

BUSY = """
import hashlib
from engine import processes
from launch.common import stopping
with stopping.on_signal(lambda name: processes.end(f"told by {name}", 143)):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # minutes, as a long compilation
"""


@pytest.mark.parametrize("number", stopping.SIGNALS)
def test_a_command_stops_in_the_middle_of_a_long_call(number):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", BUSY], cwd=ROOT, text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            began = time.monotonic()
            process.send_signal(number)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, err) == (143, f"told by {number.name}\n")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [
        (signal.SIGTERM, 143, "sweep: stopped by SIGTERM; run it again to go on"),
        (signal.SIGINT, 130, "sweep: interrupted; run it again to go on"),
    ],
)
def test_a_command_that_still_imports_stops_in_one_line(number, code, line):
    command = [sys.executable, "-X", "importtime", "-m", "launch", "sweep"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            for told in process.stderr:
                if told.endswith(" jax.version\n"):
                    break
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert " launch.sweep\n" not in err  # it was not imported yet
    own = [told for told in err.splitlines() if not told.startswith("import time:")]
    assert (process.returncode, out, own) == (code, "", [line])


def test_what_handled_a_signal_before_handles_it_again():
    before = [signal.getsignal(number) for number in stopping.SIGNALS]
    with stopping.on_signal(lambda name: None):
        assert [signal.getsignal(number) for number in stopping.SIGNALS] != before
    assert [signal.getsignal(number) for number in stopping.SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1
