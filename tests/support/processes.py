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
from collections.abc import Callable
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


def run_to_the_end(
    module: str,
    count: int,
    *flags: object,
    heartbeat_s: int = 30,
    patch: str = "",
    place: Callable[[int, int, int], tuple[list[str], dict[str, str]]] | None = None,
    own: Callable[[int], list[str]] = lambda index: [],
    before: Callable[[int], list[str]] = lambda index: [],
) -> list[Ended]:
    """Starts a command as `count` processes; those that do not end in 150 s have code -9.

    Args:
      module: of `launch`, that is run with `python -m`.
      count: number of processes.
      *flags: of all processes.
      heartbeat_s: seconds without a sign of life, after which a process counts as lost.
      patch: Python that runs before the command.
      place: port, number and index -> flags and environment that tell a process its place; by
        default `by_flags`.
      own: index -> further flags of one process.
      before: index -> command that runs the process, such as `env`.
    """
    port, started, until = free_port(), [], time.monotonic() + 150
    main = _MAIN.format(heartbeat_s, patch, f"launch.{module}")
    for index in range(count):
        told, environment = (place or by_flags)(port, count, index)
        command = [*before(index), sys.executable, "-c", main, *told, *map(str, flags)]
        started.append(
            subprocess.Popen(
                [*command, *own(index)],
                cwd=ROOT,
                env=os.environ | _environment(index) | environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
    ended = []
    for index, process in enumerate(started):
        try:
            texts = process.communicate(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            texts = process.communicate()
        out, err = (_lines(text, bars=index == 0) for text in texts)
        ended.append(Ended(process.returncode, out, err))
    return ended


def by_flags(port: int, count: int, index: int) -> tuple[list[str], dict[str, str]]:
    flags = [f"--coordinator=127.0.0.1:{port}", f"--processes={count}", f"--process={index}"]
    return flags, {}


def by_environment(port: int, count: int, index: int) -> tuple[list[str], dict[str, str]]:
    address = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}"}
    place = {"JAX_NUM_PROCESSES": str(count), "JAX_PROCESS_ID": str(index)}
    return ["--multihost"], address | place


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


def _environment(index: int) -> dict[str, str]:
    count = "--xla_force_host_platform_device_count=1"
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


def assert_quiet_but_for_the_first(ended):
    assert [e.code for e in ended] == [0] * len(ended), [e.err for e in ended]
    assert [len(e.out) for e in ended] == [1] + [0] * (len(ended) - 1)
    assert [e.err for e in ended[1:]] == [[]] * (len(ended) - 1)


def assert_one_line_each(ended, code, pattern):
    """Every process that was not killed ended with the code and the one line."""
    left = [e for e in ended if e.code != -signal.SIGKILL]
    assert [e.code for e in left] == [code] * len(left), [e.err for e in ended]
    for process in left:
        assert process.out == []
        assert len(process.err) == 1, process.err
        assert re.fullmatch(f"sweep: {pattern}", process.err[0]), process.err
