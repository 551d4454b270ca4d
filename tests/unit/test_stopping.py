"""Signals that stop a command, while its main thread is in C, or imports."""

import contextlib
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


@contextlib.contextmanager
def started(*command, **pipes):
    """A process, which is killed at the end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_command_stops_in_the_middle_of_a_long_call():
    number = signal.SIGUSR1  # SIGTERM and SIGHUP: below
    assert number in processes.SIGNALS
    with started(sys.executable, "-c", BUSY) as process:
        assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (143, f"told by {number.name}\n")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [
        (signal.SIGTERM, 143, "sweep: stopped by SIGTERM"),
        (signal.SIGINT, 130, "serve: interrupted"),
    ],
)
def test_a_command_that_still_imports_stops_in_one_line(number, code, line):
    name = line.partition(":")[0]
    with started(sys.executable, "-X", "importtime", "-m", "launch", name) as process:
        for told in process.stderr:
            if told.endswith(" jax.version\n"):
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert f" launch.{name}\n" not in err  # it was not imported yet
    own = [told for told in err.splitlines() if not told.startswith("import time:")]
    assert (process.returncode, out, len(own)) == (code, "", 1) and own[0].startswith(line)


def test_a_command_whose_terminal_is_gone_ends_as_after_a_signal():
    ours, its = os.openpty()
    takes = f"import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{BUSY}"
    place = {"stdin": its, "stderr": its, "start_new_session": True}
    with started(sys.executable, "-c", takes, **place) as process:
        assert process.stdout.readline() == "ready\n"
        os.close(its)
        os.close(ours)  # as when the connection of ssh is lost
        assert process.wait(timeout=30) == 143


def test_a_command_under_nohup_outlives_its_terminal():
    hangs_up = BUSY.replace("    print", "    os.kill(os.getpid(), 1)\n    print")
    with started("nohup", sys.executable, "-c", f"import os\n{hangs_up}") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 143
    assert err.splitlines()[-1] == "told by SIGTERM"
