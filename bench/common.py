"""What the benches share: the machine, an embedded model, matrix products, GCG's step."""

import argparse
import functools
import importlib.metadata
import logging
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from configs.prompts import PROMPTS
from demo.build import build, converted
from demo.embedded_models import EMBEDDED
from engine.checkpoint.card import Checkpoint
from engine.models import flops
from engine.models.config import DecoderConfig
from engine.settings import SearchSettings

LIBRARIES = ("jax", "jaxlib", "torch", "transformers", "numpy", "polars", "scipy")
# Largest difference of two rewards, relative to max(1, |reward|).
TOLERANCE = 1e-4
logging.getLogger("absl").setLevel(logging.ERROR)  # as commands do: conversion warns
_PRODUCT_BYTES = 2**30  # of all matrices that are multiplied in one measurement


def spread(values: Sequence[float], form: str) -> tuple[str, str]:
    """The median and the range, as two cells."""
    low, high = form.format(np.min(values)), form.format(np.max(values))
    return form.format(np.median(values)), f"{low}..{high}"


def machine() -> str:
    """The command, the processor, its load, and the versions of the libraries."""
    spec = sys.modules["__main__"].__spec__
    versions = " ".join(f"{name} {_version(name)}" for name in LIBRARIES)
    return "\n".join(
        [
            f"command   {' '.join(['python -m', spec.name if spec else '', *sys.argv[1:]])}",
            f"machine   {_processor()}, {cores()} cores, load {os.getloadavg()[0]:.1f} at first",
            f"versions  python {platform.python_version()} {versions}",
        ]
    )


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:  # torch is a development requirement
        return "(none)"


def _processor() -> str:
    """Name of the CPU, and its widest vector instructions."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor() or platform.machine()
    pairs = (line.partition(":") for line in cpuinfo.read_text().splitlines())
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    widest = [f for f in ("amx_bf16", "avx512f", "avx2") if f in fields.get("flags", "").split()]
    return f"{fields.get('model name', platform.machine())} ({' '.join(widest)})"


def parser(description: str, numbers: Mapping[str, tuple[int, str]]) -> argparse.ArgumentParser:
    """The flags of a bench on an embedded model.

    Args:
      description: of the bench.
      numbers: flag -> its default and what it is.
    """
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--model", choices=EMBEDDED, default=next(iter(EMBEDDED)))
    made.add_argument("--prompt", choices=PROMPTS, default="greatest")
    made.add_argument("--out", type=Path, default="out/demo", help="the demo's folder of models")
    made.add_argument("--rounds", type=int, default=5, help="each measures all ways")
    for flag, (default, meaning) in numbers.items():
        made.add_argument(f"--{flag}", type=int, default=default, help=meaning)
    return made


def embedded_model(slug: str, folder: Path) -> tuple[Path, Checkpoint]:
    """An embedded model below the demo's folder, made if missing: in Hugging Face format, ours."""
    [source] = build(folder / "hf", [EMBEDDED[slug]])
    return source, converted(folder, slug)


def take_turns(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Runs every way once in each round; returns the seconds of each way by round.

    Ratios within a round are affected alike by other load on the machine.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            seconds[name].append(seconds_of(run))
    return seconds


def seconds_of(run: Callable[[], object]) -> float:
    """Seconds of one call, which waits for the device itself."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def relative_difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference of rewards, relative to max(1, |reward|); NaN where any is NaN."""
    return float(np.max(np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))))


def matmul_rate(config: DecoderConfig, candidates: int, positions: int, dtype: str) -> float:
    """FLOP/s of the products with weights of a scoring step, each shape measured alone.

    Args:
      config: of the decoder.
      candidates: of the step.
      positions: of each candidate.
      dtype: of both operands.
    """
    products = projections(config, candidates * positions, candidates)
    work = sum(2 * m * k * n * count for (m, k, n), count in products.items())
    return work / sum(count * product_s(shape, dtype) for shape, count in products.items())


def projections(config: DecoderConfig, positions: int, read: int) -> Counter[tuple[int, int, int]]:
    """Products [m, k] x [k, n] with weights in a pass -> their count.

    Every layer needs keys and values at the `positions` of all candidates; the last layer needs
    everything else only at the `read` reward positions.
    """
    shapes: Counter[tuple[int, int, int]] = Counter()
    for layer, of_delta in enumerate(config.deltas, 1):
        keys_values, rest = flops.matrices(config, of_delta)
        shapes.update((positions, k, n) for k, n in keys_values)
        rows = positions if layer < config.num_layers else read
        shapes.update((rows, k, n) for k, n in rest)
    return shapes


@functools.cache
def product_s(shape: tuple[int, int, int], dtype: str) -> float:
    """Seconds of one product [m, k] × [k, n] of random numbers, the best of five rounds.

    Several products run in one program, as in a step, each of other matrices than the one before:
    neither the host nor a cache counts.
    """
    m, k, n = shape
    size = jnp.dtype(dtype).itemsize * (m * k + k * n + m * n)
    count = max(2, min(8, _PRODUCT_BYTES // size))
    pairs = [
        (random_array((m, k), dtype, 2 * i), random_array((k, n), dtype, 2 * i + 1))
        for i in range(count)
    ]
    multiply = jax.jit(lambda pairs: [jnp.matmul(a, b, precision="highest") for a, b in pairs])
    return best_s(lambda: multiply(pairs)) / count


def random_array(shape: tuple[int, ...], dtype: str, seed: int) -> jax.Array:
    """Normal numbers on the device."""
    return jax.block_until_ready(_normal(shape, dtype, jax.random.key(seed)))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _normal(shape: tuple[int, ...], dtype: str, key: jax.Array) -> jax.Array:
    return jax.random.normal(key, shape).astype(dtype)


def best_s(run: Callable[[], object], rounds: int = 5) -> float:
    """Seconds of the fastest of several runs on the device, after one that compiles."""
    jax.block_until_ready(run())
    return min(seconds_of(lambda: jax.block_until_ready(run())) for _ in range(rounds))


def gcg_settings(length: int, candidates: int, topk: int, dtype: str) -> SearchSettings:
    """A search from which every step's texts are kept, whether or not they round-trip.

    Args:
      length: tokens of the reply.
      candidates: of a step.
      topk: tokens that may be proposed for a position.
      dtype: of the decoder.
    """
    chosen = {
        "method": "gcg",
        "length": length,
        "steps": 10**6,
        "candidates": candidates,
        "topk": topk,
        "round_trip": False,
    }
    return SearchSettings.of(**chosen, direction="max", dtype=dtype)
