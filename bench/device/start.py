"""Section on the time from the start of a process to its first score, in processes of their own."""

import json
import os
import subprocess
import sys
import tempfile
import time

from bench.device.bench import Bench, Outcome
from bench.support.table import aligned

_STAGES = {
    "interpreter_s": "interpreter",
    "imports_s": "imports",
    "device_s": "device",
    "weights_s": "weights, made there",
    "first_score_s": "first score",
}


def start(bench: Bench) -> Outcome:
    """Seconds to the first score with an empty cache of compiled programs, then with a full one.

    Weights are made on the device, not read.
    """
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("empty cache", "full cache"):
            if found and bench.left_s < found["empty cache"]["first_score_s"]:
                break
            found[name] = _stages(bench, cache)
    rows = [("until the end of", *found)]
    rows += [
        (label, *(f"{f[key]:.1f} s" for f in found.values())) for key, label in _STAGES.items()
    ]
    missing = "" if len(found) == 2 else "\nno time left for a second start"
    return Outcome(text=aligned(rows) + missing, result={**found})


def _stages(bench: Bench, cache: str) -> dict[str, float]:
    """Seconds since the start at the end of each stage of one process."""
    environment = {**os.environ, "ASSAY_CACHE": cache}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-m", "bench.device.first_score", f"--model={bench.model.name}"]
    arguments = [f"--began={time.time()!r}", *(["--toy"] if bench.toy else [])]
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        with subprocess.Popen(
            [*command, *arguments],
            env=environment,
            stdin=subprocess.PIPE,  # it ends when this closes
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process:
            for line in process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        errors.seek(0)
        said = errors.read().strip().splitlines() or ["no message"]
    raise RuntimeError(f"the process ended with status {process.returncode}: {said[-1]}")
