"""How close Assay comes to the limit of one accelerator; no network and no checkpoint is needed.

    python -m bench.device [--model=llama-3.1-8b] [--step_sizes=1024,4096,8192] [--[no]toy]

A model of a published shape with random bfloat16 weights, made on the device. The table has

    products    the matrix products of a step with weights, alone, and a large one: the ceiling
    sweep       candidates/s through the engine's host loop, and their share of the ceiling
    vocabulary  seconds of every token, at the fastest step size
    search      a GCG step of 512 candidates of 20 tokens
    torch       transformers with its K/V cache on the same device, where torch sees one

Without an accelerator the shapes are toys, which show that the command works and nothing else.
About five minutes.
"""

import argparse
import concurrent.futures
import functools
import importlib.util
import multiprocessing
import os
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh

from bench.common import (
    best_s,
    gcg_settings,
    machine,
    matmul_rate,
    product_s,
    random_array,
    seconds_of,
)
from bench.random_model import MODELS, published, random_model, random_objective
from engine.convert.hf_config import decoder_config
from engine.models import flops
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer
from engine.search import gcg

# By `toy`: candidates of a step; tokens of a searched reply and its candidates; rows and columns of
# a large product; numbers that are copied; batches of torch.
_STEP_SIZES = {True: "16,64", False: "1024,4096,8192"}
_SEARCHED = {True: (2, 16), False: (20, 512)}
_SQUARE = {True: 256, False: 8192}
_COPIED = {True: 2**21, False: 2**29}
_BATCHES = {True: (32,), False: (256, 1024, 2048)}
Rows = list[tuple[str, str, str]]


class Bench:
    """One model on the first device.

    Args:
      name: of `MODELS`.
      step_sizes: candidates of a step, those that are measured.
      toy: whether sizes are toys.
    """

    def __init__(self, name: str, step_sizes: Sequence[int], toy: bool):
        self.hf, self.prompt = published(name, toy)
        self.decoder, self.step_sizes, self.toy = decoder_config(self.hf), step_sizes, toy
        self.ceiling: dict[int, float] = {}
        self.fastest = step_sizes[0]

    def token_flops(self) -> float:
        """FLOPs of scoring one token."""
        return flops.response(self.decoder, 1 + len(self.prompt.suffix), len(self.prompt.prefix))

    @functools.cached_property
    def weights(self) -> tuple[Any, Any, Mesh]:
        """Graph, random parameters and a mesh of the first device."""
        auto = (AxisType.Auto, AxisType.Auto)
        first = jax.devices()[:1]
        mesh = jax.make_mesh((1, 1), ("data", "model"), axis_types=auto, devices=first)
        return *random_model(self.decoder, mesh), mesh

    def scorer(self, step_size: int) -> RewardScorer:
        """The engine's scorer."""
        graph, params, mesh = self.weights
        return RewardScorer.build(graph, params, mesh, step_size=step_size)

    def products(self) -> Rows:
        """FLOP/s of each step's products, of a large one, and bytes/s of a copy."""
        positions, side = 1 + len(self.prompt.suffix), _SQUARE[self.toy]
        self.ceiling = {
            size: matmul_rate(self.decoder, size, positions, "bfloat16") for size in self.step_sizes
        }
        square = 2 * side**3 / product_s((side, side, side), "bfloat16")
        source = random_array((_COPIED[self.toy],), "bfloat16", 0)
        negate = jax.jit(jnp.negative)  # a plain copy would be left out
        copied = 2 * source.nbytes / best_s(lambda: negate(source))
        rows = [(f"of {size:,}", _tflops(rate), "") for size, rate in self.ceiling.items()]
        rows.append((f"{side}×{side}×{side}", _tflops(square), ""))
        return [*rows, ("copy", f"{copied / 1e9:,.3g} GB/s", "read and written")]

    def sweep(self) -> Rows:
        """Candidates/s by step size; those that do not fit are said to be too large."""
        rows, rates = [], {}
        for size in self.step_sizes:
            try:
                rates[size] = self._rate(size)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                rows.append((f"{size:,} a step", "out of memory", ""))
                continue
            reached = rates[size] * self.token_flops()
            share = f"{_tflops(reached)}, {reached / self.ceiling[size]:.0%} of its products"
            rows.append((f"{size:,} a step", f"{rates[size]:,.0f} candidates/s", share))
        self.fastest = max(rates, key=rates.__getitem__)
        return rows

    def _rate(self, size: int) -> float:
        """Candidates/s, the median of three rounds of about a second."""
        scorer, tokens = self.scorer(size), self.decoder.vocab_size
        prefix = scorer.prefill(self.prompt)

        def score(steps: int) -> None:
            candidates = token_candidates(self.prompt, np.arange(steps * size) % tokens)
            check(scorer.rewards(prefix, candidates))

        score(1)  # compiles
        steps = max(1, min(32, int((0.05 if self.toy else 1) / seconds_of(lambda: score(1)))))
        return steps * size / float(np.median([seconds_of(lambda: score(steps)) for _ in range(3)]))

    def vocabulary(self) -> Rows:
        """Seconds of every token of the vocabulary."""
        scorer, tokens = self.scorer(self.fastest), self.decoder.vocab_size
        prefix, began = scorer.prefill(self.prompt), time.perf_counter()
        rewards = scorer.rewards(prefix, token_candidates(self.prompt, np.arange(tokens)))
        seconds = time.perf_counter() - began
        check(rewards)
        floor = tokens * self.token_flops() / max(self.ceiling.values())
        share = f"{floor / seconds:.0%} of it at the rate of products"
        return [(f"{tokens:,} tokens", f"{seconds:,.2f} s", share)]

    def search(self) -> Rows:
        """A GCG step."""
        length, candidates = _SEARCHED[self.toy]
        settings = gcg_settings(length, candidates, 256, "bfloat16")
        objective = random_objective(self.decoder, self.prompt, settings)
        driver = gcg.StepDriver(objective, self.scorer(self.fastest))
        check(driver.advance(1)[0])  # compiles
        steps = 2 if self.toy else 5
        times = [seconds_of(lambda: driver.advance(steps)) / steps for _ in range(3)]
        seconds = float(np.median(times))
        reached = gcg.step_flops(objective) / seconds
        share = f"{_tflops(reached)}, {reached / max(self.ceiling.values()):.0%} of the products"
        return [(f"{candidates} of {length} tokens", f"{1e3 * seconds:,.1f} ms a step", share)]

    def torch(self) -> Rows:
        """The peer, in a process that ends before JAX takes the device's memory."""
        if importlib.util.find_spec("torch") is None:
            return [("cached", "not installed", "")]
        from bench.peers import cached_rates

        spawn = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
            measured = pool.submit(
                cached_rates, self.hf, self.prompt, _BATCHES[self.toy], on_cpu=self.toy
            )
            rates = measured.result()
        rows = [(f"cached, {b:,}", f"{rate:,.0f} candidates/s", "") for b, rate in rates.items()]
        return rows or [("cached", "torch sees no accelerator", "")]


def check(rewards: np.ndarray) -> None:
    """Raises ValueError where rewards are not finite or do not vary: a speed would mean nothing."""
    if not np.isfinite(rewards).all() or (rewards.size > 1 and not np.std(rewards) > 0):
        raise ValueError(f"of {rewards.size} rewards some are not finite, or all are equal")


def run(bench: Bench) -> list[str]:
    """Prints each section as soon as it is known; returns the names of those that failed."""
    failed = []
    # torch first: later the memory is JAX's.
    for section in (bench.torch, bench.products, bench.sweep, bench.vocabulary, bench.search):
        name = section.__name__
        try:
            rows = section()
        except Exception as error:  # whatever it is, the other sections are worth having
            failed.append(name)
            rows = [("failed", type(error).__name__, str(error).partition("\n")[0][:200])]
        for what, value, share in rows:
            print(f"{name:<11} {what:<22} {value:>22}  {share}".rstrip(), flush=True)
    return failed


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; 1 if a section failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default=next(iter(MODELS)))
    parser.add_argument("--step_sizes", help="candidates of a step, separated by commas")
    parser.add_argument("--toy", action=argparse.BooleanOptionalAction, help="toy shapes")
    chosen = parser.parse_args(argv)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch needs memory, too
    device = jax.devices()[0]
    toy = device.platform == "cpu" if chosen.toy is None else chosen.toy
    sizes = [int(size) for size in (chosen.step_sizes or _STEP_SIZES[toy]).split(",")]
    memory = (device.memory_stats() or {}).get("bytes_limit", 0) / 2**30
    print(machine())
    print(f"device    {device.device_kind}, {memory:.0f} GiB" if memory else "device    a CPU")
    print(f"model     {chosen.model}{', TOY SHAPES' if toy else ''}, random bfloat16 weights\n")
    return int(bool(run(Bench(chosen.model, sizes, toy))))


def _tflops(rate: float) -> str:
    return f"{rate / 1e12:,.3g} TFLOP/s"


if __name__ == "__main__":
    raise SystemExit(main())
