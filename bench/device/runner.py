"""Runs jobs in worker processes within a time budget, and keeps what each section found.

The file of results is written again after every section, whole or not at all, so that whatever ends
the run loses one section.
"""

import dataclasses
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from bench.device.worker import MARK, Order

GRACE_S = 5.0  # after its time is up, until a worker is killed
_LEAST_S = 2.0  # with less time left, no job is begun

# Any: JSON values.
Message = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Sections of one model that share a process.

    Attributes:
      model: of `models.MODELS`.
      sections: of `worker.SECTIONS`, in order.
      limit_s: seconds that it may take.
    """

    model: str
    sections: tuple[str, ...]
    limit_s: float


@dataclasses.dataclass
class Results:
    """What is known so far.

    Attributes:
      file: where it is kept, as JSON; None keeps no file.
      header: the command, the device and the settings.
      sections: one entry for each section that ended: section, model, status (`done`, `failed` or
        `skipped`), seconds, and its result or the reason why there is none.
    """

    file: Path | None
    header: Message
    sections: list[Message] = dataclasses.field(default_factory=list)

    def add(self, entry: Message) -> None:
        """Prints a section, and writes the file again."""
        self.sections.append({k: v for k, v in entry.items() if k != "text"})
        said = entry.get("text") or f"{entry['status']}: {entry['reason']}"
        seconds = f" ({entry['seconds']:.1f} s)" if "seconds" in entry else ""
        print(f"\n== {entry['model']}: {entry['section']}{seconds}\n{said}", flush=True)
        self.save()

    def skip(self, model: str, sections: Sequence[str], reason: str) -> None:
        """Notes that sections were not begun, in one line."""
        self.sections += [
            {"section": section, "model": model, "status": "skipped", "reason": reason}
            for section in sections
        ]
        print(f"\n== {model}: {', '.join(sections)}\nskipped: {reason}", flush=True)
        self.save()

    def save(self) -> None:
        """Writes the file, whole or not at all."""
        if self.file is None:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({**self.header, "sections": self.sections}, indent=1) + "\n"
        unfinished = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        unfinished.write_text(content, encoding="utf-8")
        unfinished.replace(self.file)

    def found(self, model: str, section: str) -> Mapping[str, Any] | None:
        """The result of a section; None if it has none."""
        for entry in self.sections:
            if (entry["model"], entry["section"], entry["status"]) == (model, section, "done"):
                return entry["result"]
        return None

    @property
    def failed(self) -> list[str]:
        """`model: section` of those that failed."""
        entries = (e for e in self.sections if e["status"] == "failed")
        return [f"{e['model']}: {e['section']}" for e in entries]


def run_jobs(
    jobs: Sequence[Job],
    results: Results,
    until: float,
    *,
    toy: bool,
    step_sizes: list[int],
    module: str = "bench.device.worker",
) -> None:
    """Runs jobs one after the other.

    Args:
      jobs: the most important first.
      results: takes an entry for every section of every job.
      until: Unix time at which the whole run ends.
      toy: whether at toy sizes.
      step_sizes: candidates in a step, those that are measured.
      module: of the worker.
    """
    for job in jobs:
        ends, left = min(until, time.time() + job.limit_s), job.sections
        while left and ends - time.time() > _LEAST_S:
            order = Order(
                model=job.model, sections=list(left), until=ends, toy=toy, step_sizes=step_sizes
            )
            left = _run_worker(order, results, module)
        if left:
            results.skip(job.model, left, "no time left")


def _run_worker(order: Order, results: Results, module: str) -> tuple[str, ...]:
    """Runs one process; returns the sections that another process must do."""
    ended, begun = 0, False
    with _Worker(order, module) as worker:
        for message in worker.messages(order.until + GRACE_S):
            begun = begun or "begins" in message
            if "section" in message:
                results.add({"model": order.model, **message})
                ended += 1
    left = tuple(order.sections[ended:])
    if not left:
        return ()
    # What did not begin once would not begin again; what was late has no time left either way.
    lost = left[:1] if begun or worker.late else left
    for section in lost:
        entry = {"status": "failed", "reason": worker.reason}
        results.add({"section": section, "model": order.model, **entry})
    return left[len(lost) :]


def describe(module: str = "bench.device.worker") -> Message:
    """The device and the versions, from a process of their own.

    Raises:
      RuntimeError: JAX or the engine does not start; the message says why.
    """
    nothing = Order(model="", sections=[], until=time.time() + 120, toy=True, step_sizes=[])
    with _Worker(nothing, module) as worker:
        for message in worker.messages(nothing.until):
            if "device" in message:
                return message["device"]
    raise RuntimeError(worker.reason)


class _Worker:
    """Context manager of a worker process; it is killed when the context ends.

    Attributes:
      reason: why the process ended early.
      late: whether it was still at work when its time was up.
    """

    def __init__(self, order: Order, module: str):
        self._command = [sys.executable, "-m", module, json.dumps(dataclasses.asdict(order))]
        self.reason, self.late = "", False

    def __enter__(self) -> "_Worker":
        # What JAX takes of a GPU's memory at once; by default three quarters of it.
        environment = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92", **os.environ}
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            self._command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def messages(self, until: float) -> Iterator[Message]:
        """Its messages, until it ends or Unix time `until`; sets `reason`."""
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(
            target=_forward, args=(self._process.stdout, lines.put), daemon=True
        ).start()
        try:
            while (line := lines.get(timeout=max(0.0, until - time.time()))) is not None:
                if line.startswith(MARK):
                    yield json.loads(line.removeprefix(MARK))
        except queue.Empty:
            self.reason, self.late = "stopped: it was not done when the time was up", True
            return
        status = self._process.wait()
        self._errors.seek(0)
        said = [line.strip() for line in self._errors if line.strip()]
        self.reason = (
            f"its process ended with status {status}: {(said or ['no message'])[-1][:200]}"
        )


def _forward(lines: IO[str], put: Callable[[str | None], object]) -> None:
    for line in lines:
        put(line)
    put(None)
