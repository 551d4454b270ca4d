"""The models that are measured: published shapes, and random weights made on the device.

No file is read and no array is made on the host: a model of 27B parameters needs 51 GiB on the
device and nothing beside it.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh

from bench.support.heads import linear_head
from configs import known_models, known_shapes
from engine import mesh as meshes
from engine.convert.hf_config import decoder_config
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.models.reward_model import RewardModels
from engine.types import Graph, Params, PromptIds

# What `toy` replaces in every config.
_TOY = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


# Any: JSON values.
@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A published architecture with its true sizes.

    Attributes:
      name: of the base model.
      hf: its config.json.
      prefix: token positions before the reply to a prompt of 12 tokens under its chat template.
      suffix: token positions behind the reply; the reward is read at the last.
    """

    name: str
    hf: Mapping[str, Any]
    prefix: int
    suffix: int

    @functools.cached_property
    def decoder(self) -> DecoderConfig:
        """The decoder's config."""
        return decoder_config(dict(self.hf))

    @property
    def head(self) -> HeadConfig:
        """A linear head."""
        return linear_head(self.decoder)

    def prompt(self, seed: int = 0) -> PromptIds:
        """A conversation of random token ids."""
        ids = np.random.default_rng(seed).integers(
            0, self.decoder.vocab_size, self.prefix + self.suffix
        )
        listed = tuple(ids.tolist())
        return PromptIds(
            prompt="random", prefix=listed[: self.prefix], suffix=listed[self.prefix :]
        )

    def toy(self) -> "Model":
        """The same architecture with sizes that a CPU scores at once."""
        return dataclasses.replace(self, hf={**self.hf, **_TOY})


def _model(name: str, slug: str, prefix: int, suffix: int) -> Model:
    hf = known_shapes.config_json(known_models.KNOWN[slug])
    return Model(name=name, hf=hf, prefix=prefix, suffix=suffix)


MODELS = {
    model.name: model
    for model in (
        _model("llama-3.1-8b", "skywork-reward-llama-3.1-8b", 46, 1),
        _model("gemma-2-27b", "skywork-reward-gemma-2-27b", 21, 2),
        _model("llama-3.2-1b", "skywork-reward-v2-llama-3.2-1b", 46, 1),
        _model("gemma-2-2b", "grm-gemma2-2b-rewardmodel-ft", 21, 2),
        _model("qwen3-8b", "skywork-reward-v2-qwen3-8b", 24, 2),
    )
}


def named(name: str, *, toy: bool) -> Model:
    """A model of `MODELS`, at toy sizes if asked for."""
    return MODELS[name].toy() if toy else MODELS[name]


def one_device(device: jax.Device | None = None) -> Mesh:
    """A mesh of one device, by default the first."""
    return jax.make_mesh(
        (1, 1),
        ("data", "model"),
        axis_types=(AxisType.Auto, AxisType.Auto),
        devices=[device or jax.devices()[0]],
    )


def shapes(model: Model, dtype: jnp.dtype) -> tuple[Graph, Params]:
    """The engine's graph of a model, and its parameters as shapes."""
    config, head = model.decoder, model.head
    graph, params = nnx.split(nnx.eval_shape(lambda: RewardModels(config, [head], dtype)))
    return graph, params


def weight_bytes(model: Model, dtype: jnp.dtype) -> int:
    """Bytes of all parameters."""
    return sum(map(_bytes, _parameters(shapes(model, dtype)[1])))


def layer_bytes(model: Model, dtype: jnp.dtype) -> int:
    """Bytes of the parameters of all layers: without embedding and head."""
    parameters = _parameters(shapes(model, dtype)[1])
    return sum(_bytes(p) for p in parameters if p.get_metadata()["axes"].startswith("L"))


# Any: flax's variables, of arrays or of shapes.
def _parameters(params: Params) -> list[Any]:
    return [parameter for _, parameter in nnx.to_flat_state(params)]


def _bytes(parameter: Any) -> int:
    return math.prod(parameter.shape) * parameter.dtype.itemsize


def random_model(
    model: Model, mesh: Mesh, dtype: jnp.dtype, *, seed: int = 0
) -> tuple[Graph, Params]:
    """A model of random weights with the engine's shardings, made on the mesh.

    Weights have the standard deviation 1 / sqrt(inputs) and norms are near one, so that every layer
    adds numbers of about unit size.

    Args:
      model: its shape.
      mesh: where the weights go.
      dtype: of the decoder; the head is float32.
      seed: of the weights.

    Returns:
      Graph and parameters, as `checkpoint.restore.restore` gives them.
    """
    graph, params = shapes(model, dtype)
    # The largest first: while it is made, its random bits need room beside it.
    flat = sorted(nnx.to_flat_state(params), key=lambda item: -math.prod(item[1].shape))
    for number, (path, parameter) in enumerate(flat):
        shape, axes = tuple(parameter.shape), parameter.get_metadata()["axes"]
        mean, deviation = _distribution(model.decoder, str(path[-1]))
        draw = _draw(
            shape,
            parameter.dtype,
            axes.startswith("L"),
            meshes.parameter_sharding(mesh, axes, shape),
        )
        key = jax.random.fold_in(jax.random.key(seed, impl="rbg"), number)
        parameter.set_value(draw(key, mean, deviation))
    return graph, params


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
