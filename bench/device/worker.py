"""A process that runs the sections of one job, and says what each found.

    python -m bench.device.worker <order as JSON>

Each job has a process of its own: its peak memory is its own, it leaves the device empty for the
next, and what ends it (no memory, a fault in a driver) ends nothing else. A line of its output that
begins with `MARK` is a message, as JSON. It ends when its standard input closes, which happens when
the process that started it is gone.
"""

import argparse
import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

MARK = "@bench.device "

# Section -> module and function; a module is imported by the job that needs it.
SECTIONS = {
    "memory": ("sweeps", "memory"),
    "ceiling": ("ceiling", "ceiling"),
    "sweep": ("sweeps", "sweep"),
    "vocabulary": ("sweeps", "vocabulary"),
    "prefill": ("sweeps", "prefill"),
    "search": ("searches", "search"),
    "kernels": ("trace", "kernels"),
    "replies": ("sweeps", "replies"),
    "agreement": ("agreement", "agreement"),
    "start": ("start", "start"),
    "transformers": ("peers", "transformers_peer"),
    "vllm": ("peers", "vllm_peer"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What a worker is to do.

    Attributes:
      model: of `models.MODELS`.
      sections: of `SECTIONS`, in order.
      until: Unix time at which they must have ended.
      toy: whether at toy sizes.
      step_sizes: candidates in a step, those that are measured.
    """

    model: str
    sections: list[str]
    until: float
    toy: bool
    step_sizes: list[int]


# Any: JSON values.
def tell(message: Mapping[str, Any]) -> None:
    """Writes one message."""
    print(MARK + json.dumps(message), flush=True)


def work(order: Order) -> None:
    """Runs the sections in order; one that fails does not stop the others."""
    from bench.device.bench import Bench
    from bench.device.models import named

    bench = Bench(
        model=named(order.model, toy=order.toy),
        toy=order.toy,
        until=order.until,
        step_sizes=order.step_sizes,
    )
    for section in order.sections:
        tell({"begins": section})
        began = time.perf_counter()
        outcome = _outcome(section, bench)
        tell({"section": section, "seconds": time.perf_counter() - began, **outcome})


# Any: JSON values.
def _outcome(section: str, bench: Any) -> dict[str, Any]:
    from bench.device.bench import Skipped

    if bench.left_s <= 0:
        return {"status": "skipped", "reason": "no time left"}
    try:
        found = _function(section)(bench)
    except Skipped as reason:
        return {"status": "skipped", "reason": str(reason)}
    except Exception as error:  # whatever it is, the other sections are worth having
        return {"status": "failed", "reason": one_line(error)}
    return {"status": "done", "text": found.text, "result": found.result}


def one_line(error: BaseException) -> str:
    """The kind and the first line of an error, at most 300 characters."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:300]


# Any: `Bench` -> `Outcome`, which would import jax.
def _function(section: str) -> Callable[[Any], Any]:
    import importlib

    module, name = SECTIONS[section]
    found: Callable[[Any], Any] = getattr(importlib.import_module(f"bench.device.{module}"), name)
    return found


def end_with_parent() -> None:
    """Ends this process as soon as its standard input closes, whatever it is doing."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Reads the order from the command line and carries it out."""
    parser = argparse.ArgumentParser(description="A process of bench.device.")
    parser.add_argument("order", type=json.loads, help="fields of Order, as JSON")
    order = Order(**parser.parse_args().order)
    end_with_parent()
    if not order.sections:
        tell({"device": described()})
        return
    if set(order.sections) <= {"start", "transformers", "vllm"}:
        work(order)  # the device is for the processes that they start, or for torch
        return
    from engine import compile_cache

    compile_cache.enable()
    work(order)


# Any: JSON values.
def described() -> dict[str, Any]:
    """The device, its memory, and the versions of what runs on it."""
    import jax

    from engine.runs.provenance import library_versions

    device = jax.devices()[0]
    return {
        "kind": device.device_kind,
        "platform": device.platform,
        "platform_version": device.client.platform_version.splitlines()[0],
        "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
        "devices_there": jax.device_count(),
        "versions": library_versions(),
    }


if __name__ == "__main__":
    main()
