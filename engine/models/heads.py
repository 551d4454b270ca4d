"""Reward heads: the final norm and what turns the normed hidden state into a reward, in float32."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from engine.errors import AssayError
from engine.models.decoder import rms_norm

KINDS = ("linear", "mlp")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """One head over the residual stream after `depth` layers; static and hashable under jit."""

    kind: str
    depth: int  # layers of the decoder that it reads
    width: int  # D
    rms_eps: float
    hidden: int = 0  # E of an MLP

    def __post_init__(self):
        if self.kind not in KINDS:
            raise AssayError(f"head.kind={self.kind!r}; allowed: {', '.join(map(repr, KINDS))}")

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "HeadConfig":
        """The inverse of `dataclasses.asdict`, for `model.json`."""
        return cls(**fields)


class LinearHead(nnx.Module):
    """`score` of a sequence-classification checkpoint: W h, no bias."""

    def __init__(self, config: HeadConfig):
        self.weight = _zeros(config, "D")

    def __call__(self, hidden: Float[Array, "C D"]) -> Float[Array, "C"]:
        return jnp.einsum("CD,D->C", hidden, self.weight[...])


class MLPHead(nnx.Module):
    """W2 relu(W1 h + b1) + b2, as INF-ORM and the GRM sftreg value heads have it."""

    def __init__(self, config: HeadConfig):
        self.weight_in = _zeros(config, "DE")
        self.bias_in = _zeros(config, "E")
        self.weight_out = _zeros(config, "E")
        self.bias_out = _zeros(config, "")

    def __call__(self, hidden: Float[Array, "C D"]) -> Float[Array, "C"]:
        inner = jax.nn.relu(jnp.einsum("CD,DE->CE", hidden, self.weight_in[...]) + self.bias_in)
        return jnp.einsum("CE,E->C", inner, self.weight_out[...]) + self.bias_out[...]


class Readout(nnx.Module):
    """Final norm and reward head of one reward model; all float32, so that rewards do not tie."""

    def __init__(self, config: HeadConfig):
        self.config = config
        self.norm = _zeros(config, "D")
        self.head = {"linear": LinearHead, "mlp": MLPHead}[config.kind](config)

    def __call__(self, residual: Float[Array, "C D"]) -> Float[Array, "C"]:
        """Rewards of the residual stream at the reward position."""
        return self.head(rms_norm(residual, self.norm[...], self.config.rms_eps))


def _zeros(config: HeadConfig, axes: str) -> nnx.Param:
    sizes = {"D": config.width, "E": config.hidden}
    return nnx.Param(jnp.zeros([sizes[a] for a in axes], jnp.float32), axes=axes)
