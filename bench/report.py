"""The full report at the paper's size, and its agreement tables against recomputing every pair.

    python -m bench.report [--run=<dir>] [--large] [--alone] [--pairs=15]

Ten made-up models (six of 128,256 tokens, four of 256,000) under three prompts, from
tests/support/large_runs.py; with `--large` 30 models of 49,152 tokens under 54 prompts. The report
runs as a process of its own, as `launch.analyze` does; its peak memory and its CPU time (user and
system, which other jobs change less than the wall's) are that process's. The comparison is how a
notebook does it: for each pair of models, drop the ambiguous strings, join on the string, and call
scipy on the two columns; `--pairs` of the 135 pairs are timed and scaled up. Both must give the
same numbers. About two minutes on two cores.
"""

import argparse
import itertools
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import scipy.stats

import analysis
from bench.common import machine
from tests.support import large_runs

_REPORT = """
import sys
from pathlib import Path
from analysis import AnalyzeSettings, load, report
from launch.common.reporting import metadata
from tests.support.large_runs import infos
known = metadata() | infos(30)
report.write_report(load(sys.argv[1]), Path(sys.argv[2]), known, AnalyzeSettings())
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Writes a run where none is named, times everything, prints one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=pathlib.Path, help="a run folder; made where not given")
    parser.add_argument("--large", action="store_true", help="30 models under 54 prompts")
    parser.add_argument("--alone", action="store_true", help="the report, and nothing beside it")
    parser.add_argument("--pairs", type=int, default=15, help="pairs that the comparison times")
    chosen = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        run = chosen.run or pathlib.Path(folder) / "run"
        if chosen.run is None and chosen.large:
            rng = np.random.default_rng(0)
            large_runs.large_run(run, rng, models=30, prompts=54, tokens=49_152)
        elif chosen.run is None:
            large_runs.paper_run(run, np.random.default_rng(0))
        print(machine() + "\n")
        rows = measure(run, pathlib.Path(folder) / "report", chosen.pairs)
        for row in itertools.islice(rows, 2 if chosen.alone else None):
            print("{:<58}{:>10}{:>10}{:>12}".format(*row), flush=True)


def measure(run: pathlib.Path, report: pathlib.Path, pairs: int):
    """Yields the rows of the table: what, seconds by the clock and of CPU, peak memory."""
    yield "what", "wall s", "CPU s", "peak MiB"
    seconds, busy, peak = report_alone(run, report)
    size = (report / "index.html").stat().st_size
    yield (
        f"full report (a page of {size / 1e6:.1f} MB)",
        f"{seconds:.1f}",
        f"{busy:.1f}",
        f"{peak:,.0f}",
    )
    loaded, *spent = timed(lambda: analysis.load(run))
    yield "  of it: load and check every score", *map("{:.1f}".format, spent), ""
    settings = analysis.AnalyzeSettings()
    _, *spent = timed(lambda: analysis.compute(loaded, {}, settings, analysis.CHAPTERS))
    yield "  of it: all tables", *map("{:.1f}".format, spent), ""
    matrices, *ours = timed(lambda: agreement(loaded))
    yield "Kendall and Spearman, all pairs and prompts, ours", *map("{:.1f}".format, ours), ""
    (share, checked), *spent = timed(lambda: pairwise(loaded, matrices, pairs))
    theirs = [seconds / share for seconds in spent]
    yield (
        f"  per-pair join and scipy, scaled from {checked} pairs",
        *map("{:.1f}".format, theirs),
        "",
    )
    yield "  ratio", *(f"{a / b:.1f}" for a, b in zip(theirs, ours, strict=True)), ""


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What `work` returns, the seconds it took by the clock, and the CPU seconds."""
    wall, busy = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - busy


def report_alone(run: pathlib.Path, report: pathlib.Path) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak MiB of a report in another process."""
    start = time.perf_counter()
    command = [sys.executable, "-c", _REPORT, str(run), str(report)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # no other child was waited for
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def agreement(run: analysis.Run) -> dict[str, tuple[pl.DataFrame, pl.DataFrame]]:
    """Prompt -> Kendall's and Spearman's matrix, from the scores on disk."""
    shared = analysis.shared_vocabulary(run)
    rewards = {prompt: analysis.shared_rewards(run, shared, prompt) for prompt in run.prompts}
    return {
        prompt: (analysis.kendall_matrix(table), analysis.spearman_matrix(table))
        for prompt, table in rewards.items()
    }


def pairwise(run: analysis.Run, matrices: dict, pairs: int) -> tuple[float, int]:
    """Computes `pairs` of all pairs, each by itself; which share of all that is, and how many.

    Raises:
      SystemExit: a number differs from ours. Pairs of one vocabulary share more strings than all
        models do, so the strings that all share are what is compared.
    """
    shared = analysis.shared_vocabulary(run).select("token")
    all_pairs = [(p, *two) for p in run.prompts for two in itertools.combinations(run.models, 2)]
    step = max(len(all_pairs) // pairs, 1)
    for prompt, a, b in all_pairs[::step]:
        sides = [scores(run, model, prompt) for model in (a, b)]
        joined = sides[0].join(sides[1], on="token").join(shared, on="token")
        x, y = joined["reward"].to_numpy(), joined["reward_right"].to_numpy()
        values = (scipy.stats.kendalltau(x, y).statistic, scipy.stats.spearmanr(x, y).statistic)
        for value, matrix in zip(values, matrices[prompt], strict=True):
            ours = matrix.filter(model=a)[b].item()
            if abs(ours - value) > 1e-9:
                sys.exit(f"bench.report: {a} and {b} under {prompt}: {ours} and {value}")
    count = len(all_pairs[::step])
    return count / len(all_pairs), count


def scores(run: analysis.Run, model: str, prompt: str) -> pl.DataFrame:
    """token, reward of the strings that one token of `model` alone decodes to."""
    frame = run.scores(models=[model], prompts=[prompt]).collect()
    return frame.filter(~pl.col("token").is_duplicated()).select("token", "reward")


if __name__ == "__main__":
    main()
