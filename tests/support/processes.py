"""Commands started as several processes on this machine, connected over the loopback."""

import contextlib
import dataclasses
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOST = re.escape(socket.gethostname())
LOST_LINE = "a process was killed, hangs or did not start, or this one crashed: see above"
SMALL = ("--config.part_size=100", "--config.step_size=64", "--config.self_check=4")
_MAIN = """
import runpy
from engine import processes
processes.HEARTBEAT_S = {}
{}
runpy.run_module({!r}, run_name="__main__")
"""
# What process i compiles is read again by the next process i: never by two at the same time.
_COMPILED = tempfile.TemporaryDirectory(prefix="assay-compiled-processes-")


@dataclasses.dataclass(frozen=True)
class Ended:
    code: int
    out: list[str]
    err: list[str]
    seconds: float  # since `Processes.wait` was called


class Processes:
    """n processes that run."""

    def __init__(self, started: Sequence[subprocess.Popen]):
        self._started = started

    def send(self, index: int, number: signal.Signals) -> None:
        self._started[index].send_signal(number)

    def running(self) -> bool:
        return all(process.poll() is None for process in self._started)

    def wait(self, limit_s: float = 150.0) -> list[Ended]:
        """How every process ended; those that do not end are killed, and have code -9."""
        began, seconds = time.monotonic(), {}
        while len(seconds) < len(self._started) and time.monotonic() < began + limit_s:
            for index, process in enumerate(self._started):
                if index not in seconds and process.poll() is not None:
                    seconds[index] = time.monotonic() - began
            time.sleep(0.02)
        self.kill()
        ended = []
        for index, process in enumerate(self._started):
            out, err = (_lines(text, bars=index == 0) for text in process.communicate())
            ended.append(Ended(process.returncode, out, err, seconds.get(index, limit_s)))
        return ended

    def kill(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()


@contextlib.contextmanager
def running(
    module: str,
    count: int,
    *flags: object,
    devices: int = 1,
    heartbeat_s: int = 30,
    patch: str = "",
    place: Callable[[int, int, int], tuple[list[str], dict[str, str]]] | None = None,
    own: Callable[[int], list[str]] = lambda index: [],
    before: Callable[[int], list[str]] = lambda index: [],
) -> Iterator[Processes]:
    """Starts a command as `count` processes; they are killed at the end.

    Args:
      module: that is run with `python -m`.
      count: number of processes.
      *flags: of all processes.
      devices: virtual devices per process.
      heartbeat_s: seconds without a sign of life, after which a process counts as lost.
      patch: Python that runs before the command.
      place: port, number and index -> flags and environment that tell a process its place; by
        default `by_flags`.
      own: index -> further flags of one process.
      before: index -> command that runs the process, such as `unshare`.
    """
    port, started = free_port(), []
    for index in range(count):
        told, environment = (place or by_flags)(port, count, index) if count > 1 else ([], {})
        main = ["-c", _MAIN.format(heartbeat_s, patch, module)]
        command = [*before(index), sys.executable, *main, *told, *map(str, flags)]
        started.append(
            subprocess.Popen(
                [*command, *own(index)],
                cwd=ROOT,
                env=os.environ | _environment(index, devices) | environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
    processes = Processes(started)
    try:
        yield processes
    finally:
        processes.kill()
        for process in started:
            process.communicate()


def by_flags(port: int, count: int, index: int) -> tuple[list[str], dict[str, str]]:
    flags = [f"--coordinator=127.0.0.1:{port}", f"--processes={count}", f"--process={index}"]
    return flags, {}


def by_environment(port: int, count: int, index: int) -> tuple[list[str], dict[str, str]]:
    names = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    return ["--multihost"], dict(
        zip(names, (f"127.0.0.1:{port}", str(count), str(index)), strict=True)
    )


def by_slurm(port: int, count: int, index: int) -> tuple[list[str], dict[str, str]]:
    """What `srun` sets; the port follows from the job's number, unless it is given."""
    return ["--multihost"], {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_NTASKS": str(count),
        "SLURM_PROCID": str(index),
        "SLURM_LOCALID": "0",
        "JAX_COORDINATOR_PORT": str(port),
    }


def by_open_mpi(port: int, count: int, index: int) -> tuple[list[str], dict[str, str]]:
    """What `mpirun` of Open MPI 4 sets."""
    return ["--multihost"], {
        "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:34911",
        "OMPI_COMM_WORLD_SIZE": str(count),
        "OMPI_COMM_WORLD_RANK": str(index),
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "JAX_COORDINATOR_PORT": str(port),
    }


def free_port() -> int:
    """A port that is free, and that is not given to outgoing connections."""
    while True:
        port = random.randint(10_000, 29_999)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port


def _environment(index: int, devices: int) -> dict[str, str]:
    count = f"--xla_force_host_platform_device_count={devices}"
    return {
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {count}",
        "JAX_COMPILATION_CACHE_DIR": f"{_COMPILED.name}/{index}",
    }


def _lines(text: str, *, bars: bool) -> list[str]:
    """Lines that a process printed; `bars`: without progress bars, which process 0 alone draws."""
    lines = [line for line in text.replace("\r", "\n").splitlines() if line.strip()]
    return [line for line in lines if not bars or ("it/s" not in line and "%|" not in line)]


def run_to_the_end(module, count, *flags, **how):
    with running(f"launch.{module}", count, *flags, **how) as started:
        return started.wait()


def assert_quiet_but_for_the_first(ended):
    assert [e.code for e in ended] == [0] * len(ended), [e.err for e in ended]
    assert [len(e.out) for e in ended] == [1] + [0] * (len(ended) - 1)
    assert [e.err for e in ended[1:]] == [[]] * (len(ended) - 1)


def assert_one_line_each(ended, code, pattern):
    """Every process that was not killed ended with the code and the one line."""
    left = [e for e in ended if e.code != -signal.SIGKILL]
    assert [e.code for e in left] == [code] * len(left), [e.err for e in ended]
    for one in left:
        assert one.out == []
        assert len(one.err) == 1, one.err
        assert re.fullmatch(f"sweep: {pattern}", one.err[0]), one.err
