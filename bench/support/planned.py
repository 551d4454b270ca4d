"""What one process holds and how long its steps take; `bench.planner` starts it afresh.

Prints one line of JSON: name -> [predicted, measured], memory in MiB and CPU time in ms per step.
"""

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from configs.prompts import PROMPTS
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.mesh import build_mesh
from engine.planning import flops, machines, plans
from engine.planning.admission import subject_of
from engine.planning.work import SearchWork, SweepWork
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import PREFIX_MULTIPLE, RewardScorer, dtype_named
from engine.search.run_folder import search_sequences
from engine.settings import SearchSettings, SweepSettings
from engine.sweep.rewards import sweep_replies

PROMPT = {"greatest": PROMPTS["greatest"]}
STEP = plans.STEPS["cpu"]
MIB = 2**20


def resident(name: str) -> int:
    """`VmRSS` or `VmHWM` of this process, in bytes."""
    text = Path("/proc/self/status").read_text()
    (kilobytes,) = re.findall(rf"^{name}:\s+(\d+) kB$", text, re.M)
    return 1024 * int(kilobytes)


def peak_of(call: Callable[[], object]) -> int:
    """Bytes that a call adds to what the process holds, at its peak."""
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
    call()
    return resident("VmHWM") - before


def sweep_of(checkpoint: Checkpoint) -> SweepWork:
    """A sweep of the prompt."""
    prompt = checkpoint.template.split(PROMPT["greatest"])
    padded = -(-len(prompt.prefix) // PREFIX_MULTIPLE) * PREFIX_MULTIPLE
    return SweepWork(prefix=padded, own=1 + len(prompt.suffix), step_size=STEP)


def search_of(checkpoint: Checkpoint) -> SearchWork:
    """The default search of the prompt, in both directions."""
    prompt = checkpoint.template.split(PROMPT["greatest"])
    return SearchWork(
        prefix=len(prompt.prefix),
        suffix=len(prompt.suffix),
        length=SearchSettings.length,
        candidates=SearchSettings.candidates,
        attempts=2,
        merged=SearchSettings.merge - 1,
    )


def sweep_memory(path: str, dtype: str, run: str) -> tuple[float, float]:
    """Predicted and measured MiB of scoring a list of two full steps."""
    settings = SweepSettings(
        mode="ids",
        pooling="last",
        dtype=dtype,
        step_size=STEP,
        part_size=STEP,
        self_check=16,
        seed=0,
        objectives="none",
    )

    def score() -> None:
        checkpoint = Checkpoint.open(path)
        texts = [checkpoint.tokens[i] for i in range(1000, 1000 + 2 * STEP)]
        sweep_replies([checkpoint], PROMPT, "list", texts, run, settings, build_mesh())

    measured = peak_of(score)
    checkpoint = Checkpoint.open(path)
    model = subject_of([checkpoint]).on("cpu", dtype)
    predicted = plans.sweep_account(model, sweep_of(checkpoint)).total
    return predicted / MIB, measured / MIB


def search_memory(path: str, dtype: str, run: str) -> tuple[float, float]:
    """Predicted and measured MiB of two steps of the default search."""
    settings = SearchSettings(steps=2, round_trip=False, direction="both", dtype=dtype)
    measured = peak_of(
        lambda: search_sequences([Checkpoint.open(path)], PROMPT, run, settings, build_mesh())
    )
    checkpoint = Checkpoint.open(path)
    model = subject_of([checkpoint]).on("cpu", dtype)
    return plans.search_account(model, search_of(checkpoint)).total / MIB, measured / MIB


def step_time(path: str, dtype: str, rounds: int) -> tuple[float, float]:
    """Predicted and measured ms of CPU time of a step.

    float32 matmuls of its shapes and steps take turns. CPU time is what other load on the machine
    disturbs least; with nothing else running, wall time is the same divided by the cores.
    """
    checkpoint = Checkpoint.open(path)
    work, mesh, config = sweep_of(checkpoint), build_mesh(), checkpoint.card.decoder
    restored = restore([checkpoint], mesh, dtype_named(dtype))
    scorer = RewardScorer.build(*restored, mesh, step_size=STEP)
    prompt = checkpoint.template.split(PROMPT["greatest"])
    prefix, rows = scorer.prefill(prompt), token_candidates(prompt, np.arange(STEP))
    shapes = flops.projections(config, STEP * work.own, STEP)
    products = {shape: _matmul(*shape) for shape in shapes}
    rates, times = [], []
    for _ in range(rounds + 1):  # the first one compiles
        spent = sum(count * _cpu_s(products[shape]) for shape, count in shapes.items())
        rates.append(sum(2 * m * k * n * c for (m, k, n), c in shapes.items()) / spent)
        times.append(_cpu_s(lambda: list(scorer.rewards(prefix, rows))))
    kind = machines.cpu(0, statistics.median(rates[1:]), "measured")
    model = subject_of([checkpoint]).on("cpu", dtype)
    predicted = plans.step_seconds(model, kind, work, STEP)
    return 1e3 * predicted, 1e3 * statistics.median(times[1:])


def _matmul(m: int, k: int, n: int) -> Callable[[], object]:
    left, right = jnp.ones((m, k)), jnp.ones((k, n))
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))
    return lambda: product(left, right).block_until_ready()


def _cpu_s(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def main() -> None:
    """Measures memory first, since nothing is loaded yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("dtype")
    parser.add_argument("rounds", type=int, help="of steps and matmuls; 0: time is not measured")
    parser.add_argument("what", choices=("sweep", "search"))
    parser.add_argument("folder", help="in which a run is written")
    asked = parser.parse_args()
    jax.devices()
    measure = search_memory if asked.what == "search" else sweep_memory
    found = {f"{asked.what}, MiB": measure(asked.checkpoint, asked.dtype, f"{asked.folder}/run")}
    if asked.rounds:
        found["step, ms of CPU time"] = step_time(asked.checkpoint, asked.dtype, asked.rounds)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
