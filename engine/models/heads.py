"""Reward heads: from the residual stream to a reward, through the final norm, in float32.

Every head has two functions. `gate` reads the prompt, once; most heads have none. The call reads
the response. Formulas follow the published model code of each family. Tests compare them with torch
references that were written from that code.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from engine.errors import AssayError
from engine.models.config import written_fields
from engine.models.layer import Param, layer_norm, rms_norm


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """One head over the residual stream after `depth` layers; static and hashable under jit.

    kind:
      linear           W h
      affine           W h + b
      objectives       several rows W h + b, of which the reward is one, or a difference
      mlp              W2 relu(W1 h + b1) + b2
      urm              attribute means weighted by a network of the response's hidden state
      urm-helpfulness  the mean of the first attribute, which Christian et al. 2025 used
      gated            objectives (or means of their quantiles) mixed by a gate that reads the
                       prompt: ArmoRM, QRM
    """

    kind: str
    depth: int  # layers of the decoder before it
    width: int  # D
    rms_eps: float
    norm_offset: bool = False  # Gemma's final norm
    hidden: int = 0  # E
    hidden_in: int = 0  # I, width of the layer before E, if there is one
    objectives: tuple[str, ...] = ()  # names of the R objectives
    quantiles: int = 1  # Q of a gated head's objectives
    gate_layers: int = 0  # linear layers of the gate
    gate_temperature: float = 1.0
    gate_pattern: tuple[int, ...] = ()  # the gate reads at their last occurrence in the prompt
    transform: bool = False  # a matrix mixes the objectives before the gate
    norm: str = "rms"  # or `layer`: the final norm's kind, as in the decoder; `none`: encoders

    def __post_init__(self) -> None:
        if self.kind not in HEADS:
            raise AssayError(f"head.kind={self.kind!r}; allowed: {', '.join(map(repr, HEADS))}")

    # Any: what JSON holds.
    def to_json(self) -> dict[str, Any]:
        """The fields, for `model.json` and hashes; later ones only where set."""
        return written_fields(self, "transform")

    @property
    def gated(self) -> bool:
        """Whether the head has a gate, which reads the prompt."""
        return self.kind == "gated"

    def columns(self, objectives: str) -> tuple[str, ...]:
        """`reward`, then what the head has of the columns `objectives` (`settings.OBJECTIVES`)."""
        return ("reward",) if objectives == "none" else ("reward", *self.objectives)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputConfig:
    """Final norm and output head of a language model; static and hashable under jit."""

    kind: str = "lm"  # in model.json, where a reward head has its kind
    vocab_size: int  # V
    width: int  # D
    rms_eps: float
    norm_offset: bool = False  # Gemma's final norm
    tied: bool  # the output head is the embedding
    softcap: float | None = None  # Gemma 2: cap * tanh(logits / cap)
    norm: str = "rms"  # or `layer`: the final norm's kind, as in the decoder

    # Any: what JSON holds.
    def to_json(self) -> dict[str, Any]:
        """The fields, for `model.json` and hashes; later ones only where set."""
        return written_fields(self, "softcap")


class HeadResult(NamedTuple):
    """Results of a head for C responses."""

    reward: Float[Array, "C"]
    values: Float[Array, "C R"]  # of the objectives; R is 0 for a head without any


class Head(nnx.Module):
    """A head without gate and objectives; other heads override `gate` or the call."""

    def gate(self, hidden: Float[Array, "D"]) -> Float[Array, "R"]:
        """Coefficients of the objectives from the prompt's hidden state; empty without a gate."""
        return jnp.zeros(0)

    def __call__(self, hidden: Float[Array, "C D"], gate: Float[Array, "*C _"]) -> HeadResult:
        return HeadResult(self.reward(hidden), jnp.zeros((hidden.shape[0], 0)))

    def reward(self, hidden: Float[Array, "C D"]) -> Float[Array, "C"]:
        raise NotImplementedError


class LinearHead(Head):
    """The linear layer `score` of sequence-classification checkpoints."""

    def __init__(self, config: HeadConfig):
        self.weight = _zeros(config, "D")

    def reward(self, hidden: Float[Array, "C D"]) -> Float[Array, "C"]:
        return jnp.einsum("CD,D->C", hidden, self.weight[...])


class AffineHead(LinearHead):
    """A linear layer with a bias, which `normalize_reward` adds too."""

    def __init__(self, config: HeadConfig):
        super().__init__(config)
        self.bias = _zeros(config, "")

    def reward(self, hidden: Float[Array, "C D"]) -> Float[Array, "C"]:
        return super().reward(hidden) + self.bias[...]


class ObjectivesHead(Head):
    """A linear layer with several rows; the reward is a fixed mixture of them."""

    def __init__(self, config: HeadConfig):
        self.weight, self.bias = _zeros(config, "RD"), _zeros(config, "R")
        self.mixture = _zeros(config, "R")  # 1 at the row of the reward; 1 and -1: a difference

    def __call__(self, hidden: Float[Array, "C D"], gate: Float[Array, "*C _"]) -> HeadResult:
        values = jnp.einsum("CD,RD->CR", hidden, self.weight[...]) + self.bias[...]
        reward = jnp.einsum("CR,R->C", values, self.mixture[...])
        return HeadResult(reward, values)


class MLPHead(Head):
    """One hidden layer with ReLU: INF-ORM, and the value heads of GRM sftreg."""

    def __init__(self, config: HeadConfig):
        self.weight_in = _zeros(config, "DE")
        self.bias_in = _zeros(config, "E")
        self.weight_out = _zeros(config, "E")
        self.bias_out = _zeros(config, "")

    def reward(self, hidden: Float[Array, "C D"]) -> Float[Array, "C"]:
        inner = jax.nn.relu(jnp.einsum("CD,DE->CE", hidden, self.weight_in[...]) + self.bias_in)
        return jnp.einsum("CE,E->C", inner, self.weight_out[...]) + self.bias_out[...]


class URMHead(Head):
    """URM: attribute means, weighted by a network that reads the same hidden state."""

    def __init__(self, config: HeadConfig):
        self.first_only = config.kind == "urm-helpfulness"
        self.weight = _zeros(config, "RZD")  # Z: mean, log-variance
        self.weight_in, self.bias_in = _zeros(config, "DI"), _zeros(config, "I")
        self.weight_mid, self.bias_mid = _zeros(config, "IE"), _zeros(config, "E")
        self.weight_out, self.bias_out = _zeros(config, "ER"), _zeros(config, "R")

    def __call__(self, hidden: Float[Array, "C D"], gate: Float[Array, "*C _"]) -> HeadResult:
        means = jnp.einsum("CD,RD->CR", hidden, self.weight[:, 0])
        if self.first_only:
            return HeadResult(means[:, 0], means)
        x = jax.nn.selu(jnp.einsum("CD,DI->CI", hidden, self.weight_in[...]) + self.bias_in)
        x = jax.nn.selu(jnp.einsum("CI,IE->CE", x, self.weight_mid[...]) + self.bias_mid)
        weights = jnp.einsum("CE,ER->CR", x, self.weight_out[...]) + self.bias_out
        return HeadResult(jnp.sum(means * weights, axis=-1), means)


class GateLayer(nnx.Module):
    """One linear layer of a gate; conversion has folded batch norms into it."""

    def __init__(self, config: HeadConfig, axes: str):
        self.weight = _zeros(config, axes)
        self.bias = _zeros(config, axes[1])


class GatedHead(Head):
    """ArmoRM and QRM: reward = sum_k gate_k (r @ transform)_k, r_j = mean over quantiles of W h."""

    def __init__(self, config: HeadConfig):
        self.config = config
        self.weight = _zeros(config, "RQD")
        axes = ["DE", *["IE"] * (config.gate_layers - 2), "ER"]
        self.layers = nnx.List(GateLayer(config, a) for a in axes)
        self.logit_scale = _zeros(config, "")
        if config.transform:
            self.transform = _zeros(config, "RR")

    def gate(self, hidden: Float[Array, "D"]) -> Float[Array, "R"]:
        """Coefficients of the objectives: the reward is the sum of coefficient times objective."""
        x = hidden
        for layer in self.layers:
            last = layer is self.layers[-1]
            x = x @ layer.weight[...] + layer.bias[...]
            x = x if last else jax.nn.relu(x)
        gate = jax.nn.softmax(x / self.config.gate_temperature) * self.logit_scale
        return self.transform[...] @ gate if self.config.transform else gate

    def __call__(self, hidden: Float[Array, "C D"], gate: Float[Array, "*C R"]) -> HeadResult:
        values = jnp.mean(jnp.einsum("CD,RQD->CRQ", hidden, self.weight[...]), axis=-1)
        return HeadResult(jnp.sum(values * gate, axis=-1), values)


HEADS = {
    "linear": LinearHead,
    "affine": AffineHead,
    "objectives": ObjectivesHead,
    "mlp": MLPHead,
    "urm": URMHead,
    "urm-helpfulness": URMHead,
    "gated": GatedHead,
}


class Readout(nnx.Module):
    """Final norm and reward head of one reward model; float32, so that few rewards are equal."""

    def __init__(self, config: HeadConfig):
        self.config = config
        if config.norm != "none":
            self.norm = _zeros(config, "D")
        if config.norm == "layer":
            self.norm_bias = _zeros(config, "D")
        self.head = HEADS[config.kind](config)

    def gate(self, residual: Float[Array, "D"]) -> Float[Array, "R"]:
        """The head's gate, from the residual stream at its position in the prompt."""
        return self.head.gate(final_norm(self, residual))

    def __call__(self, residual: Float[Array, "C D"], gate: Float[Array, "*C _"]) -> HeadResult:
        """The head's results, from the residual stream at the reward positions."""
        return self.head(final_norm(self, residual), gate)


def final_norm(output: Any, residual: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """The norm after the last layer; `output` is a `Readout` or the output of a language model."""
    config = output.config
    if config.norm == "none":
        return residual
    if config.norm == "layer":
        return layer_norm(residual, output.norm[...], output.norm_bias[...], config.rms_eps)
    return rms_norm(residual, output.norm[...], config.rms_eps, offset=config.norm_offset)


def _zeros(config: HeadConfig, axes: str) -> Param:
    """A float32 parameter of zeros that carries its axis letters; `checkpoint.restore` fills it."""
    sizes = {
        "D": config.width,
        "E": config.hidden,
        "I": config.hidden_in,
        "Z": 2,
        "R": len(config.objectives),
        "Q": config.quantiles,
    }
    return Param(jnp.zeros([sizes[a] for a in axes], jnp.float32), axes=axes)
