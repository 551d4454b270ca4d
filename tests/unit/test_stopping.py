"""Signals that stop a command, while its main thread is in C, or imports."""

import os
import signal
import subprocess
import sys
import time

import pytest

from engine import processes
from tests.support.processes import ROOT

pytestmark = pytest.mark.usefixtures("hanging_up_is_not_ignored")

BUSY = """
import hashlib
from engine import processes
with processes.on_signal(lambda name: processes.end(f"told by {name}", 143)):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # minutes, as a long compilation
"""


def test_a_command_stops_in_the_middle_of_a_long_call():
    number = signal.SIGUSR1  # SIGTERM and SIGHUP: below
    assert number in processes.SIGNALS
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


def test_a_command_whose_terminal_is_gone_ends_as_after_a_signal():
    ours, its = os.openpty()
    pipes = {"stdin": its, "stdout": subprocess.PIPE, "stderr": its}
    takes = f"import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{BUSY}"
    command = [sys.executable, "-c", takes]
    with subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            os.close(its)
            os.close(ours)  # as when the connection of ssh is lost
            assert process.wait(timeout=30) == 143
        finally:
            process.kill()


def test_a_command_under_nohup_outlives_its_terminal():
    hangs_up = BUSY.replace("    print", "    os.kill(os.getpid(), 1)\n    print")
    command = ["nohup", sys.executable, "-c", f"import os\n{hangs_up}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 143
    assert err.splitlines()[-1] == "told by SIGTERM"
