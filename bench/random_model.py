"""Models of published shapes with random weights, made on the device.

No file is read and no array is made on the host: a model of 27B parameters needs 51 GiB on the
device and nothing beside it.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from configs import known_models
from engine import mesh as meshes
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.models.reward_model import RewardModels
from engine.search.objective import SearchObjective
from engine.settings import SearchSettings
from engine.types import Graph, Params, PromptIds

# Name -> a listed reward model of that base, and the positions before and behind the reply to a
# prompt of 12 tokens under its template.
MODELS = {
    "llama-3.1-8b": ("skywork-reward-llama-3.1-8b", 46, 1),
    "gemma-2-27b": ("skywork-reward-gemma-2-27b", 21, 2),
    "llama-3.2-1b": ("skywork-reward-v2-llama-3.2-1b", 46, 1),
    "qwen3-8b": ("skywork-reward-v2-qwen3-8b", 24, 2),
}
_TOY = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


# Any: JSON values.
def published(name: str, toy: bool) -> tuple[dict[str, Any], PromptIds]:
    """The config.json of a model of `MODELS`, and a prompt of random token ids.

    Args:
      name: of the model.
      toy: whether its sizes are replaced by those that a CPU scores at once.
    """
    slug, prefix, suffix = MODELS[name]
    hf = {**known_models.KNOWN[slug].config_json(), **(_TOY if toy else {})}
    ids = np.random.default_rng(0).integers(0, hf["vocab_size"], prefix + suffix).tolist()
    return hf, PromptIds(prompt="random", prefix=tuple(ids[:prefix]), suffix=tuple(ids[prefix:]))


def linear_head(decoder: DecoderConfig) -> HeadConfig:
    """The linear head of a decoder; other heads cost a millionth of a step more."""
    return HeadConfig(
        kind="linear",
        depth=decoder.num_layers,
        width=decoder.width,
        rms_eps=decoder.rms_eps,
        norm_offset=decoder.norm_offset,
        norm=decoder.norm,
    )


def random_model(config: DecoderConfig, mesh: Mesh) -> tuple[Graph, Params]:
    """A bfloat16 model of random weights with the engine's shardings, made on the mesh.

    Weights have the standard deviation 1 / sqrt(inputs) and norms are near one, so that every layer
    adds numbers of about unit size. Returns graph and parameters, as `restore` does.
    """
    heads = [linear_head(config)]
    platform = mesh.devices.flat[0].platform
    shapes = nnx.eval_shape(
        lambda: RewardModels(config, heads, jnp.dtype("bfloat16"), platform=platform)
    )
    graph, params = nnx.split(shapes)
    # The largest first: while it is made, its random bits need room beside it.
    flat = sorted(nnx.to_flat_state(params), key=lambda item: -math.prod(item[1].shape))
    for number, (path, parameter) in enumerate(flat):
        shape, axes = tuple(parameter.shape), parameter.get_metadata()["axes"]
        place = meshes.parameter_sharding(mesh, axes, shape)
        draw = _draw(shape, parameter.dtype, axes.startswith("L"), place)
        key = jax.random.fold_in(jax.random.key(0, impl="rbg"), number)
        parameter.set_value(draw(key, *_distribution(config, str(path[-1]))))
    return graph, jax.block_until_ready(params)


@functools.lru_cache(maxsize=64)
def _draw(shape: tuple[int, ...], dtype: jnp.dtype, stacked: bool, sharding: Any) -> Any:
    """Jits (key, mean, deviation) -> normal numbers; stacked ones layer by layer, to save room."""

    def normal(key: jax.Array, shape: tuple[int, ...], mean: float, deviation: float) -> jax.Array:
        return (mean + deviation * jax.random.normal(key, shape)).astype(dtype)

    def draw(key: jax.Array, mean: float, deviation: float) -> jax.Array:
        if not stacked:
            return normal(key, shape, mean, deviation)
        keys = jax.random.split(key, shape[0])
        return jax.lax.map(lambda k: normal(k, shape[1:], mean, deviation), keys)

    return jax.jit(draw, out_shardings=sharding)


def _distribution(config: DecoderConfig, name: str) -> tuple[float, float]:
    """Mean and standard deviation of a parameter's numbers."""
    if "norm" in name:
        return (0.0 if config.norm_offset else 1.0), 0.1
    if "bias" in name:
        return 0.0, 0.1
    if name == "embedding":
        return 0.0, config.width**-0.5 if config.embedding_scale else 1.0
    inputs = {"o": config.num_heads * config.head_size, "down": config.ffn_width}
    return 0.0, inputs.get(name, config.width) ** -0.5


class _RandomObjective(SearchObjective):
    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Random tokens: int32 [T]."""
        return rng.integers(0, self.config.vocab_size, self.settings.length).astype(np.int32)


def random_objective(
    config: DecoderConfig, prompt: PromptIds, settings: SearchSettings
) -> SearchObjective:
    """A search without a tokenizer: every token may be used, and no text is checked."""
    return _RandomObjective(
        config=config,
        checkpoint_hash="",
        template=None,  # nothing is read or written as text
        conversation=prompt,
        prompt=prompt,
        allowed=np.ones(config.vocab_size, bool),
        settings=settings,
    )
