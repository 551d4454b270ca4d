"""Commands as forked processes that send themselves a signal at a chosen moment.

The parent has imported everything and started no backend of jax and no pool of threads, so a child
is ready at once. A child counts the moments of a `Plan`'s phase as they pass, and sends the signal
at, or shortly after, the one that the plan names.
"""

import contextlib
import dataclasses
import mmap
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from tqdm import tqdm

from engine.scoring import batches, reward_passes
from engine.search import drivers

PHASES = ("restore", "compile", "step", "write", "rename", "manifest", "anytime")
_LIMIT_S = 900.0  # after which a process counts as hung
_NUMBER = struct.Struct("q")


@dataclasses.dataclass(frozen=True)
class Plan:
    """When a process sends itself which signal.

    Attributes:
      phase: one of `PHASES`.
      occurrence: which moment of the phase, from 1; of `anytime`: the process's start.
      delay_s: how long after that moment.
      number: of the signal.
    """

    phase: str
    occurrence: int
    delay_s: float
    number: signal.Signals


class Steps:
    """The number of device steps that all children have begun, in memory that they share.

    Each process of a command has a number of its own: of one number, a process that counts would
    overwrite what another has just counted.
    """

    def __init__(self, processes: int):
        self._memory = mmap.mmap(-1, _NUMBER.size * processes)

    def add(self, process: int) -> None:
        """Counts one step of a process."""
        place = _NUMBER.size * process
        (number,) = _NUMBER.unpack_from(self._memory, place)
        _NUMBER.pack_into(self._memory, place, number + 1)

    def count(self) -> int:
        """The number so far, of all processes."""
        return sum(number for (number,) in _NUMBER.iter_unpack(self._memory))


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended: its exit status (negative: the signal), its time and what it wrote."""

    status: int
    seconds: float
    log: str


def start(
    main: Callable[[Sequence[str]], int],
    argv: Sequence[str],
    log: Path,
    step: Callable[[], None] | None = None,
    plan: Plan | None = None,
) -> int:
    """Forks a command, its output in a file, and calls `step` in it at every device step.

    Returns:
      The number of the process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    status = 70
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
        getattr(tqdm, "_instances", set()).clear()  # the parent's bar is not drawn here
        _watch(step, plan)
        status = main(argv)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        with contextlib.suppress(Exception):  # the process ends in the next line
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def wait(processes: Sequence[int], logs: Sequence[Path]) -> list[Ended]:
    """Waits for processes; one that hangs is killed and has the status -9 and a note in its log."""
    began, ended = time.monotonic(), {}
    while len(ended) < len(processes):
        for process, log in zip(processes, logs, strict=True):
            if process in ended:
                continue
            seconds = time.monotonic() - began
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                text = log.read_text(errors="replace") if log.exists() else ""
                ended[process] = Ended(os.waitstatus_to_exitcode(status), seconds, text)
            elif seconds > _LIMIT_S:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                ended[process] = Ended(-9, seconds, f"hung for {_LIMIT_S:.0f} s")
        time.sleep(0.01)
    return [ended[process] for process in processes]


def _watch(step: Callable[[], None] | None, plan: Plan | None) -> None:
    """Tells `step` of device steps, and arms the plan, in this process."""
    passed = 0

    def moment(phase: str) -> None:
        nonlocal passed
        if plan is None or plan.phase != phase:
            return
        passed += 1
        if passed == plan.occurrence:
            _send(plan)

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:  # of any arguments
        def call(*arguments: Any) -> Any:
            if step is not None:
                step()
            moment("step")
            return original(*arguments)

        return call

    # What every step of scores, and every step of a search, calls once.
    vars(reward_passes)["take_rows"] = counted(batches.take_rows)
    drivers.StepDriver._checked_step = counted(drivers.StepDriver._checked_step)
    sys.addaudithook(lambda event, arguments: _files(event, arguments, moment))
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: moment("compile") if "jaxpr_to_mlir" in event else None
    )
    with contextlib.suppress(ImportError):
        _watch_store(moment)
    moment("anytime")


def _files(event: str, arguments: tuple[Any, ...], moment: Callable[[str], None]) -> None:
    """Tells which moment opening or renaming a file is."""
    if event == "open" and isinstance(arguments[0], str | os.PathLike):
        path = os.fspath(arguments[0])
        if "/params/" in path:
            moment("restore")
        elif "manifest.json" in path and path.endswith(".tmp"):
            moment("manifest")
        elif "part-" in path and path.endswith(".tmp"):
            moment("write")
    elif event == "os.rename":
        name = os.path.basename(os.fspath(arguments[1]))
        if name.startswith("part-"):
            moment("rename")
        elif name == "manifest.json":
            moment("manifest")


def _watch_store(moment: Callable[[str], None]) -> None:
    """The same moments on an object store, where a file is one request."""
    import s3fs

    call = s3fs.S3FileSystem._call_s3

    async def told(self: Any, method: str, *arguments: Any, **named: Any) -> Any:
        key = str(named.get("Key", ""))
        put = method in ("put_object", "complete_multipart_upload")
        name = key.rpartition("/")[2]
        phase = "write" if name.startswith("part-") else "manifest" if "manifest" in name else ""
        if put and phase:
            moment(phase)
        answer = await call(self, method, *arguments, **named)
        if put and phase == "write":
            moment("rename")  # the part is there, but nobody knows yet
        return answer

    s3fs.S3FileSystem._call_s3 = told


def _send(plan: Plan) -> None:
    """Sends the signal, at once or after the plan's delay."""

    def kill() -> None:
        time.sleep(plan.delay_s)
        os.kill(os.getpid(), plan.number)

    if plan.delay_s:
        threading.Thread(target=kill, daemon=True).start()
    else:
        kill()
