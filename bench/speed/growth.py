"""How the cost of a report grows with models, prompts and tokens, chapter by chapter.

    python -m bench.speed.growth [--models=4,8,16] [--prompts=3,6,12] [--tokens=8192,16384,32768]
    python -m bench.speed.growth --models=30 --prompts=54 --tokens=49152 [--run=<dir>]

The runs are made up (tests/support/large_runs.py). The first value of each flag is the base; then
one of the three grows while the others stay. Every size is a process of its own, with its CPU time
(user and system, which other jobs change less than the wall's). An exponent is the slope of
log CPU on log size: 1 is linear, 2 quadratic. With one value for each flag, its stages are printed
with their peak memory, and then what the whole report took, in a process that measures no stage.
About four minutes on two cores for the default; the second command is the largest size that the
project promises (80 million rewards, 10 minutes, 8 GiB).
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import numpy as np

from bench.support.table import aligned
from tests.support import large_runs

_AXES = ("models", "prompts", "tokens")
_BASE = ("4,8,16", "3,6,12", "8192,16384,32768")
_SHOWN = 0.05  # CPU seconds at the largest size; stages below are left out.
_LEAST = 0.2  # CPU seconds at the largest size; below, an exponent says nothing.
_REPORT = """
import sys, pathlib, analysis
from analysis import report
from configs.analyze import get_config
from launch.common.reporting import settings_of
from tests.support import large_runs
infos, settings = large_runs.infos(int(sys.argv[3])), settings_of(get_config())
report.write_report(analysis.load(sys.argv[1]), sys.argv[2], infos, settings)
"""

Size = tuple[int, int, int]
Spent = dict[str, dict[str, float]]


def main() -> None:
    """Measures every size, and prints one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, values in zip(_AXES, _BASE, strict=True):
        text = f"sizes, the base first; {values} where not given"
        parser.add_argument(f"--{name}", type=_numbers, default=_numbers(values), help=text)
    for kept in ("run", "report"):
        parser.add_argument(f"--{kept}", type=pathlib.Path, help=f"{kept} of one size; kept")
    chosen = parser.parse_args()
    print(f"command   python -m bench.speed.growth {' '.join(sys.argv[1:])}".rstrip())
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"machine   {cores} cores, load {load:.1f} at the start\n", flush=True)
    axes: list[list[int]] = [getattr(chosen, name) for name in _AXES]
    with tempfile.TemporaryDirectory() as folder:
        if all(len(values) == 1 for values in axes):
            size: Size = (axes[0][0], axes[1][0], axes[2][0])
            _one_size(size, pathlib.Path(folder), chosen.run, chosen.report)
        else:
            print(aligned(_growth(axes, pathlib.Path(folder))))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _growth(axes: Sequence[Sequence[int]], folder: pathlib.Path) -> list[list[str]]:
    """Rows of the table: stage, CPU seconds at the base and at its largest, an exponent an axis."""
    sizes = {tuple(values[0] for values in axes)}
    for at, values in enumerate(axes):
        sizes |= {tuple(v if i == at else axes[i][0] for i in range(3)) for v in values}
    spent: dict[Size, Spent] = {}
    for size in sorted(sizes):
        spent[size] = _stages(size, _made(size, folder / "run"), folder / "report")
        print(f"measured  {size[0]} x {size[1]} x {size[2]:,}", file=sys.stderr, flush=True)
    base = min(sizes)
    ends = [f"{values[-1]:,} {name}" for name, values in zip(_AXES, axes, strict=True)]
    rows = [["stage, CPU s", "base", *ends, *(f"~ {name}" for name in _AXES)]]
    for stage in [*spent[max(sizes)], "in all"]:
        highest, slopes = [], []
        for at, values in enumerate(axes):
            line = [(*base[:at], value, *base[at + 1 :]) for value in values]
            cost = [_cpu(spent[size], stage) for size in line]
            highest.append(f"{cost[-1]:.2f}")
            slopes.append(_slope(values, cost))
        if max(map(float, highest)) >= _SHOWN:
            rows.append([stage, f"{_cpu(spent[base], stage):.2f}", *highest, *slopes])
    return rows


def _cpu(spent: Spent, stage: str) -> float:
    if stage == "in all":
        return sum(each["cpu_s"] for each in spent.values())
    return spent.get(stage, {}).get("cpu_s", 0.0)


def _slope(sizes: Sequence[int], cost: Sequence[float]) -> str:
    if len(sizes) < 2 or cost[-1] < _LEAST or min(cost) <= 0:
        return "-"
    return f"{np.polyfit(np.log(sizes), np.log(cost), 1)[0]:.1f}"


def _one_size(
    size: Size, folder: pathlib.Path, run: pathlib.Path | None, report: pathlib.Path | None
) -> None:
    """Prints the stages of one size, and what its whole report took."""
    run, report = run or folder / "run", report or folder / "report"
    if not run.exists():
        _made(size, run)
    rows = [["stage", "wall s", "CPU s", "peak MiB", "count"]]
    for stage, spent in _stages(size, run, folder / "stages").items():
        if spent["cpu_s"] < _SHOWN:
            continue
        cells = (f"{spent[key]:,.1f}" for key in ("wall_s", "cpu_s"))
        rows.append([stage, *cells, f"{spent['peak_mib']:,.0f}", f"{spent['count']:,.0f}"])
    print(aligned(rows), flush=True)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _python("-c", _REPORT, str(run), str(report), str(size[0]))
    used, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    busy = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    page = (report / "index.html").stat().st_size / 1e6
    print(f"\nreport    {wall:.1f} s, {busy:.1f} s of CPU time; page {page:.1f} MB")
    print(f"memory    {used.ru_maxrss / 1024:,.0f} MiB at the peak, the stages' process included")


def _made(size: Size, run: pathlib.Path) -> pathlib.Path:
    """A run of one size, in place of the one before."""
    shutil.rmtree(run, ignore_errors=True)
    models, prompts, tokens = size
    rng = np.random.default_rng(0)
    return large_runs.large_run(run, rng, models=models, prompts=prompts, tokens=tokens)


def _stages(size: Size, run: pathlib.Path, report: pathlib.Path) -> Spent:
    """The stages of one report, from a process of its own."""
    named = (f"--run={run}", f"--models={size[0]}", f"--report={report}")
    spent: Spent = json.loads(_python("-m", "bench.support.stages", *named))
    return spent


def _python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


if __name__ == "__main__":
    main()
