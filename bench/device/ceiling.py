"""The device's own limits: matrix products at the step's shapes, a large one, and a copy."""

import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from bench.device.bench import GIB, Bench, Ceiling, Outcome
from bench.support.table import aligned
from engine.planning.flops import Shape

_SQUARE = {True: 256, False: 8192}  # rows and columns of the large product, by `toy`
_COPY = {True: 2**22, False: GIB}  # bytes that are copied, by `toy`


def ceiling(bench: Bench) -> Outcome:
    """FLOP/s of each step's products with weights, of a large product, and bytes/s of a copy."""
    bench.ceiling, square = measured(bench)
    rates, side = bench.ceiling.flops_per_s, _SQUARE[bench.toy]
    rows = [("candidates a step", "TFLOP/s, its products alone")]
    rows += [(f"{size:,}", f"{rate / 1e12:,.3g}") for size, rate in rates.items()]
    text = (
        f"{aligned(rows)}\n{side}×{side}×{side}: {square / 1e12:,.3g} TFLOP/s; copy "
        f"{bench.ceiling.bytes_per_s / 1e9:,.3g} GB/s read and written"
    )
    result = {
        "flops_per_s": {str(size): rate for size, rate in rates.items()},
        "square_flops_per_s": square,
        "copy_bytes_per_s": bench.ceiling.bytes_per_s,
    }
    return Outcome(text=text, result=result)


def measured(bench: Bench) -> tuple[Ceiling, float]:
    """The ceilings, and FLOP/s of a large square product."""
    rates, seconds = {}, functools.cache(product_s)
    for size in bench.step_sizes:
        step = bench.step(size)
        spent = sum(count * seconds(shape) for shape, count in step.projections().items())
        rates[size] = step.projection_flops() / spent
    side = _SQUARE[bench.toy]
    square = 2 * side**3 / seconds((side, side, side))
    copied = copy_bytes_per_s(_COPY[bench.toy])
    return Ceiling(flops_per_s=rates, bytes_per_s=copied), square


def product_s(shape: Shape) -> float:
    """Seconds of a bfloat16 product [m, k] × [k, n] of random numbers, the best of five rounds.

    Several products run in one program, as in a step, each of other matrices than the one before:
    neither the host nor a cache counts.
    """
    m, k, n = shape
    count = max(2, min(8, GIB // (2 * (m * k + k * n + m * n))))
    pairs = [(_random((m, k), 2 * i), _random((k, n), 2 * i + 1)) for i in range(count)]
    multiply = jax.jit(lambda pairs: [jnp.matmul(a, b) for a, b in pairs])
    return _best(lambda: multiply(pairs)) / count


def copy_bytes_per_s(size: int) -> float:
    """Bytes/s of a copy on the device, counting those read and those written."""
    source = _random((size // 2,), 0)
    negate = jax.jit(jnp.negative)  # a plain copy would be left out
    return 2 * size / _best(lambda: [negate(source)])


@functools.partial(jax.jit, static_argnums=0)
def _normal(shape: tuple[int, ...], key: jax.Array) -> jax.Array:
    return jax.random.normal(key, shape).astype(jnp.bfloat16)


def _random(shape: tuple[int, ...], seed: int) -> jax.Array:
    return jax.block_until_ready(_normal(shape, jax.random.key(seed)))


def _best(run: Callable[[], list[jax.Array]], rounds: int = 5) -> float:
    jax.block_until_ready(run())  # compiles
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - began)
    return min(times)
