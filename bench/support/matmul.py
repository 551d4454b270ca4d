"""FLOPs of a scoring step, and the speed at which this machine multiplies matrices."""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from engine.models.config import DecoderConfig
from engine.planning import flops

# XLA's CPU backend has two matmul libraries and chooses one, unless this option names it.
XLA_LIBRARIES = {
    "jax, as XLA chooses": {},
    "jax, Eigen": {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE"},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """C candidates of T positions each behind a prefix of P positions, through one model."""

    config: DecoderConfig
    candidates: int
    positions: int
    prefix: int

    def projections(self) -> Mapping[flops.Shape, int]:
        """Matrix products of a step with weights: shape -> count."""
        every = self.candidates * self.positions
        return flops.projections(self.config, every, self.candidates)

    def flops(self) -> float:
        """FLOPs of a step; the padding of the prefix counts, since it is computed too."""
        return self.candidates * flops.response(self.config, self.positions, self.prefix)

    def projection_flops(self) -> int:
        """FLOPs of `projections`."""
        return sum(2 * m * k * n * count for (m, k, n), count in self.projections().items())

    def weight_bytes(self) -> int:
        """float32 bytes of all layers' weights, which a step reads at least once."""
        return 4 * self.config.num_layers * flops.layer_weights(self.config)

    def candidate_bytes(self) -> int:
        """Bytes read and written per candidate: its ids, embeddings and reward."""
        return 4 * (self.positions * (1 + self.config.width) + 1)


class MatmulRates:
    """FLOP/s of a step's projections, each product measured alone and weighted by its count."""

    def __init__(self, step: Step):
        self.step, self.ways = step, {}
        for name, options in XLA_LIBRARIES.items():
            if not options or jax.default_backend() == "cpu":
                self.ways[name] = _xla(options)
        self.ways["torch"] = _torch()

    def measure(self, repeats: int = 3) -> dict[str, float]:
        """FLOP/s of each library: all FLOPs divided by the sum of each product's best time."""
        rng = np.random.default_rng(0)
        seconds: collections.Counter[str] = collections.Counter()
        for (m, k, n), count in self.step.projections().items():
            a = rng.standard_normal((m, k), np.float32)
            b = rng.standard_normal((k, n), np.float32)
            for name, prepare in self.ways.items():
                seconds[name] += count * _best(prepare(a, b), repeats)
        return {name: self.step.projection_flops() / seconds[name] for name in self.ways}


def _xla(options: Mapping[str, str]) -> Callable:
    matmul = jax.jit(
        lambda a, b: jnp.matmul(a, b, precision="highest"), compiler_options=dict(options)
    )

    def prepare(a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
        on_device = jax.device_put((a, b))
        return lambda: matmul(*on_device).block_until_ready()

    return prepare


def _torch() -> Callable:
    import torch  # here: the shapes are read where torch is missing too

    def prepare(a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
        left, right = torch.from_numpy(a), torch.from_numpy(b)
        return lambda: torch.mm(left, right)

    return prepare


def _best(run: Callable[[], object], repeats: int) -> float:
    run()  # compiles
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)
