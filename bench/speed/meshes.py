"""Rewards on meshes of virtual CPU devices against one device: same bytes, or how far apart.

    python -m bench.speed.meshes [--candidates=1024] [--step_size=64] [--rounds=3]

Models of random weights: multi-head attention and grouped queries with 8, 4 and 3 key/value heads.
Difference is the largest one of two rewards, in standard deviations of the rewards; tau is
Kendall's, of the two rankings. The last lines compare the time of 8 × 1 devices with that of one
on the same cores, round by round. About 10 minutes on two cores.
"""

import dataclasses
import hashlib
import os
import time

os.environ["XLA_FLAGS"] = (  # before jax is imported
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
)

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags, logging
from flax import nnx
from jax.sharding import AxisType, Mesh
from scipy.stats import kendalltau

from bench.support.table import aligned, machine, spread
from engine import mesh as meshes
from engine.models.config import DecoderConfig, Rope
from engine.models.heads import HeadConfig
from engine.models.reward_model import RewardModels
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer
from engine.types import PromptIds

_CANDIDATES = flags.DEFINE_integer("candidates", 1024, "Tokens that are scored.", lower_bound=2)
_STEP_SIZE = flags.DEFINE_integer("step_size", 64, "Candidates per step on a device.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds of the comparison of times.", lower_bound=1)

_SHAPES = ((8, 1), (4, 2), (2, 4), (1, 8))
_HEADS = {  # query heads, key/value heads
    "MHA, 8 heads": (8, 8),
    "GQA, 8 of 16": (16, 8),
    "GQA, 4 of 16": (16, 4),
    "GQA, 3 of 24": (24, 3),
}
_WIDTH = 384
_PROMPT = PromptIds(prompt="", prefix=tuple(range(40)), suffix=(1, 2))


def mesh_of(data: int, model: int) -> Mesh:
    """A mesh over the first devices."""
    return jax.make_mesh(
        (data, model),
        ("data", "model"),
        axis_types=(AxisType.Auto, AxisType.Auto),
        devices=jax.devices()[: data * model],
    )


def decoder(heads: int, kv_heads: int) -> DecoderConfig:
    """A decoder of four layers."""
    return DecoderConfig(
        vocab_size=4096,
        width=_WIDTH,
        ffn_width=1024,
        num_layers=4,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=32,
        rms_eps=1e-5,
        rope=Rope(theta=10_000.0),
        max_positions=128,
    )


def scorer_on(mesh: Mesh, config: DecoderConfig, dtype: str) -> RewardScorer:
    """A model of random weights on a mesh; `checkpoint.restore` repeats heads in the same way."""
    head = HeadConfig(kind="linear", depth=config.num_layers, width=_WIDTH, rms_eps=1e-5)
    spread_config = meshes.with_whole_kv_heads(mesh, config)
    graph, params = nnx.split(
        nnx.eval_shape(lambda: RewardModels(spread_config, [head], jnp.dtype(dtype)))
    )
    for number, (_, parameter) in enumerate(nnx.to_flat_state(params)):
        axes = parameter.get_metadata()["axes"]
        sizes = spread_config.sizes
        value = _drawn(number, axes, sizes, config).astype(parameter.dtype)
        value = value.reshape(parameter.shape)
        placing = meshes.parameter_sharding(mesh, axes, value.shape)
        parameter.set_value(jax.device_put(value, placing))
    return RewardScorer.build(graph, params, mesh, step_size=_STEP_SIZE.value)


def _drawn(number: int, axes: str, sizes: dict[str, int], config: DecoderConfig) -> np.ndarray:
    """Random weights, the same for every mesh: repeated heads are equal."""
    axes = axes.replace("(", "").replace(")", "")
    copies = sizes["K"] // config.num_kv_heads if "K" in axes else 1
    own = tuple(config.sizes[a] for a in axes)
    drawn = np.random.default_rng(number).standard_normal(own)
    if axes in ("LD", "D"):  # of norms, and of the linear head
        drawn = 1 + 0.1 * drawn if axes == "LD" else drawn
    elif axes != "VD":
        width = {"LNHD": config.num_heads * config.head_size, "LFD": config.ffn_width}
        drawn *= 1.5 / np.sqrt(width.get(axes, config.width))
    return np.repeat(drawn, copies, axis=axes.index("K")) if copies > 1 else drawn


def rewards(scorer: RewardScorer) -> np.ndarray:
    """Rewards of the first tokens: float32 [C]."""
    candidates = token_candidates(_PROMPT, np.arange(_CANDIDATES.value))
    steps = scorer.rewards(scorer.prefill(_PROMPT), candidates)
    return np.concatenate([step[0] for step in steps])


def difference(one: np.ndarray, other: np.ndarray) -> str:
    """Same bytes, or the largest difference and Kendall's tau."""
    digests = [hashlib.sha256(numbers.tobytes()).hexdigest() for numbers in (one, other)]
    if digests[0] == digests[1]:
        return "same bytes"
    apart = np.abs(one - other).max() / one.std()
    return f"{apart:.1e} sd, tau {kendalltau(one, other).statistic:.6f}"


def mesh_table() -> str:
    """A row per model and dtype, a column per mesh."""
    rows = [("model", "dtype", *(f"{data}×{model}" for data, model in _SHAPES))]
    for name, (heads, kv_heads) in _HEADS.items():
        config = decoder(heads, kv_heads)
        for dtype in ("float32", "bfloat16"):
            one = rewards(scorer_on(mesh_of(1, 1), config, dtype))
            on_meshes = (rewards(scorer_on(mesh_of(*shape), config, dtype)) for shape in _SHAPES)
            rows.append((name, dtype, *(difference(one, other) for other in on_meshes)))
    return aligned(rows)


@dataclasses.dataclass
class Way:
    """Scoring on some devices, compiled."""

    scorer: RewardScorer
    seconds: list[float]

    def turn(self) -> None:
        """Measures one pass over all candidates."""
        began = time.perf_counter()
        rewards(self.scorer)
        self.seconds.append(time.perf_counter() - began)


def overhead() -> str:
    """Time of eight devices divided by the time of one, on the same cores for the same work."""
    config = decoder(*_HEADS["GQA, 4 of 16"])
    lines = []
    for dtype in ("float32", "bfloat16"):
        ways = [Way(scorer_on(mesh_of(data, 1), config, dtype), []) for data in (1, 8)]
        for way in ways:
            rewards(way.scorer)
        for _ in range(_ROUNDS.value):
            for way in ways:
                way.turn()
        one, eight = (np.array(way.seconds) for way in ways)
        median, between = spread(eight / one, "{:.2f}")
        lines.append(f"8×1 takes {median} ({between}) times as long as 1, {dtype}")
    return "\n".join(lines)


def main(_) -> None:
    """Prints the table and the overhead."""
    logging.set_verbosity(logging.ERROR)
    print(machine())
    print(f"\nagainst one device, {_STEP_SIZE.value} candidates per step on each device")
    print(mesh_table())
    print(overhead())


if __name__ == "__main__":
    app.run(main)
