"""Seconds from the start of a process to its first scores, stage by stage.

    python -m bench.speed.start [--model=<slug>] [--rounds=3] [--against=<folder of another Assay>]

Each process imports the engine, loads one embedded model, and scores two replies, as a user's first
script does. `empty` starts without compiled programs, `kept` with those of an earlier process.
`--against` names another checkout, such as a worktree of an earlier commit; its processes take
turns with this one's, and ratios are computed within each round. Seconds of CPU time say more than
those of the wall clock where other jobs run. About 2 minutes on two cores with the defaults.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from absl import app, flags

from bench.support import embedded_files
from bench.support.table import aligned, machine, spread
from configs.prompts import PROMPTS
from demo.embedded_models import EMBEDDED

_MODEL = flags.DEFINE_enum("model", next(iter(EMBEDDED)), list(EMBEDDED), "Embedded model.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds; each starts every process.", lower_bound=1)
_AGAINST = flags.DEFINE_string("against", None, "Folder of another checkout of Assay.")

STAGES = ("python", "import engine", "imports", "load", "first scores", "again")
CACHES = ("empty", "kept")

# What a process does; it prints the wall clock and its CPU time at the end of each stage.
_CHILD = """
import json, sys, time
laps = [(time.time(), time.process_time())]
def lap():
    laps.append((time.time(), time.process_time()))
import engine
lap()
import engine.api
lap()
model = engine.load(sys.argv[1])
lap()
model.score(sys.argv[2], ["Love", "War"])
lap()
model.score(sys.argv[2], ["War", "Love"])
lap()
imported = [name for name in ("torch", "matplotlib", "tensorflow") if name in sys.modules]
print(json.dumps({"laps": laps, "imported": imported}))
"""

Seconds = dict[str, tuple[float, float]]  # stage -> seconds of wall clock and of CPU time


def started(checkout: Path, checkpoint: Path, cache: Path) -> tuple[Seconds, list[str]]:
    """Starts one process; returns its stages, and which heavy packages it imported."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "ASSAY_CACHE": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", _CHILD, str(checkpoint), PROMPTS["greatest"]]
    began = time.time()
    done = subprocess.run(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, check=True, text=True
    )
    told = json.loads(done.stdout)
    ends = [(began, 0.0), *told["laps"]]
    stages = {
        name: (after[0] - before[0], after[1] - before[1])
        for name, before, after in zip(STAGES, ends[:-1], ends[1:], strict=True)
    }
    return stages, told["imported"]


def table(measured: Mapping[str, list[Seconds]], clock: int) -> str:
    """Seconds of each stage for each way, with the range of their sum.

    Args:
      measured: way -> its processes.
      clock: 0 for the wall clock, 1 for CPU time.
    """
    rows = [("way", *STAGES[:-1], "first scores after", "min..max", STAGES[-1])]
    for way, processes in measured.items():
        each = np.array([[process[stage][clock] for stage in STAGES] for process in processes])
        medians = [f"{seconds:.2f}" for seconds in np.median(each, axis=0)]
        rows.append((way, *medians[:-1], *spread(each[:, :-1].sum(axis=1), "{:.2f}"), medians[-1]))
    return aligned(rows)


def ratios(measured: Mapping[str, list[Seconds]]) -> list[str]:
    """How much less this checkout takes than the other until its first scores, within rounds."""

    def sums(way: str, clock: int) -> np.ndarray:
        return np.array([sum(p[s][clock] for s in STAGES[:-1]) for p in measured[way]])

    lines = []
    for cache in CACHES:
        told = [
            f"{name} {' ('.join(spread(sums(f'against, {cache}', c) / own, '{:.2f}x'))})"
            for c, name in enumerate(("wall", "CPU"))
            for own in [sums(f"this, {cache}", c)]
        ]
        lines.append(f"against / this, {cache}: {', '.join(told)}")
    return lines


def run() -> None:
    """Starts all processes in turns and prints the tables."""
    _, checkpoint = embedded_files.files(_MODEL.value)
    checkouts = {"this": Path.cwd()}
    if _AGAINST.value:
        checkouts["against"] = Path(_AGAINST.value).absolute()
    ways = [f"{name}, {cache}" for name in checkouts for cache in CACHES]
    measured: dict[str, list[Seconds]] = {way: [] for way in ways}
    imported: dict[str, list[str]] = {}
    for _ in range(_ROUNDS.value):
        for name, checkout in checkouts.items():
            with tempfile.TemporaryDirectory() as cache:
                for kept in CACHES:
                    stages, imported[name] = started(
                        checkout, Path(checkpoint.path).absolute(), Path(cache)
                    )
                    measured[f"{name}, {kept}"].append(stages)
    for clock, title in enumerate(("wall clock", "CPU time")):
        print(f"\nseconds of {title}, medians of {_ROUNDS.value}\n{table(measured, clock)}")
    for name, packages in imported.items():
        print(f"heavy packages imported, {name}: {', '.join(packages) or 'none'}")
    if _AGAINST.value:
        print(*ratios(measured), sep="\n")


def main(_) -> None:
    """Runs the benchmark."""
    print(machine())
    run()


if __name__ == "__main__":
    app.run(main)
