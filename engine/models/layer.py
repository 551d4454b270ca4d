"""One layer of a decoder: its parameters, and its products. What a layer attends to is `decoder`'s.

Axis letters are those of `engine/types.py`. In a mixture of experts each position passes the few
feed-forwards that a router chooses for it. Pairs of a position and an expert are sorted by expert
and cut into blocks of one size, each of one expert, which a loop computes one after the other. So
no product is computed that is not used, but for the rest of each expert's last block, and shapes do
not depend on what the router chooses. A loop over all experts with all positions takes `experts /
experts_per_token` times as many products, and `jax.lax.ragged_dot` more than that where it has no
kernel of its own, as on a CPU.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int, Shaped

from engine.models import delta
from engine.models.config import DecoderConfig
from engine.models.encoder_config import NetworkConfig
from engine.types import dimensions

Residual = Float[Array, "C T D"]
Param = nnx.Param[Any]  # Any: of a real or an abstract array
Weight = Param | Array
Index = Any  # number of a layer or an expert: an int, or a traced integer inside a loop
OfExpert = Callable[[Index], tuple[Array, Array, Array]]  # expert -> its gate, up and down
Network = Callable[[Index, Float[Array, "rows D"]], Float[Array, "rows D"]]  # an expert's
Angles = tuple[Float[Array, "C T h"], Float[Array, "C T h"]]  # cos and sin of the h rotated pairs

FLOAT32 = jnp.dtype("float32")
F32: Any = {"preferred_element_type": jnp.float32}  # Any: keywords of einsum
_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),  # Arcee
}


class Layer(nnx.Module):
    """Attention and feed-forward of one layer; parameters have a leading L, of a stack of layers.

    Args:
      config: of the decoder; its `num_layers` is the height of the stack.
      dtype: of the parameters.
      sums: of the additions to the residual stream; devices that hold parts of a layer send their
        parts of the sum to one another in it.
      platform: of the devices.
      of_delta: whether it has the gated delta rule in place of attention.
    """

    def __init__(
        self,
        config: DecoderConfig,
        dtype: jnp.dtype,
        sums: jnp.dtype,
        platform: str,
        of_delta: bool = False,
    ):
        self.config, self.sums, self.platform = config, sums, platform
        if config.pre_norms:
            self.attention_norm = zeros(config, "LD", dtype)
            self.ffn_norm = zeros(config, "LD", dtype)
        if config.norm == "layer":
            self.attention_norm_bias = zeros(config, "LD", dtype)
            self.ffn_norm_bias = zeros(config, "LD", dtype)
        self.of_delta = of_delta
        if of_delta:
            self._delta_parameters(config, dtype)
        else:
            self._attention_parameters(config, dtype)
        if config.experts:
            self.router = zeros(config, "LXD", dtype)
            self.experts = Experts(config, dtype)
        else:
            if config.gated:
                self.gate = zeros(config, "LDF", dtype)
            self.up = zeros(config, "LDF", dtype)
            self.down = zeros(config, "LFD", dtype)
        if config.biases:
            self.o_bias = zeros(config, "LD", dtype)
            self.up_bias = zeros(config, "LF", dtype)
            self.down_bias = zeros(config, "LD", dtype)
        if config.post_norms:
            self.post_attention_norm = zeros(config, "LD", dtype)
            self.post_ffn_norm = zeros(config, "LD", dtype)

    def _attention_parameters(self, config: DecoderConfig, dtype: jnp.dtype) -> None:
        # In these orders, with heads and head size as one dimension, weights are read where they
        # are. In other orders XLA copies them: whole stacks for a TPU, k and v for a GPU.
        by_row = "L(KH)D" if self.platform == "tpu" else "LD(KH)"
        self.q = zeros(config, "LD(NH)", dtype)
        self.k = zeros(config, by_row, dtype)
        self.v = zeros(config, by_row, dtype)
        self.o = zeros(config, "L(NH)D", dtype)
        if config.attention_gate:
            self.o_gate = zeros(config, "LD(NH)", dtype)
        if config.qkv_bias:
            self.q_bias = zeros(config, "LNH", dtype)
            self.k_bias = zeros(config, "LKH", dtype)
            self.v_bias = zeros(config, "LKH", dtype)
        if config.qk_norm:
            whole = config.qk_norm_whole
            self.q_norm = zeros(config, "L(NH)" if whole else "LH", dtype)
            self.k_norm = zeros(config, "L(KH)" if whole else "LH", dtype)

    def _delta_parameters(self, config: DecoderConfig, dtype: jnp.dtype) -> None:
        self.delta_q, self.delta_k = (zeros(config, "LD(kh)", dtype) for _ in "qk")
        self.delta_v, self.delta_z = (zeros(config, "LD(nv)", dtype) for _ in "vz")
        self.delta_q_taps, self.delta_k_taps = (zeros(config, "L(kh)t", dtype) for _ in "qk")
        self.delta_v_taps = zeros(config, "L(nv)t", dtype)
        self.delta_a = zeros(config, "LDn", dtype)
        self.delta_b = zeros(config, "LDn", dtype)
        self.delta_rate = zeros(config, "Ln", FLOAT32)  # its logarithm
        self.delta_step = zeros(config, "Ln", FLOAT32)
        self.delta_norm = zeros(config, "Lv", dtype)
        self.delta_o = zeros(config, "L(nv)D", dtype)

    def keys_values(self, x: Residual, angles: Angles) -> tuple[Array, Array]:
        """Rotated keys and values of every position, each [C, T, K, H]."""
        normed = self._before(x, "attention_norm")
        axes = "CTD,ED->CTE" if self.platform == "tpu" else "CTD,DE->CTE"
        keys, values = (self._by_head(self._product(axes, normed, w)) for w in (self.k, self.v))
        if self.config.qkv_bias:
            keys, values = keys + self.k_bias, values + self.v_bias
        if self.config.qk_norm:
            keys = self._qk_norm(keys, self.k_norm)
        return rotate(keys, angles), values

    def queries(self, x: Residual, angles: Angles) -> Float[Array, "C T K G H"]:
        """Rotated queries, grouped by the key/value head that they attend to."""
        normed = self._before(x, "attention_norm")
        q = self._by_head(self._product("CTD,DE->CTE", normed, self.q))
        if self.config.qkv_bias:
            q = q + self.q_bias
        if self.config.qk_norm:
            q = self._qk_norm(q, self.q_norm)
        groups = self.config.num_heads // self.config.num_kv_heads
        shape = (*q.shape[:2], self.config.num_kv_heads, groups, self.config.head_size)
        return rotate(q, angles).reshape(shape)

    def output(self, mixed: Float[Array, "C T K G H"], x: Residual) -> Residual:
        """The addition of attention to the residual stream x."""
        mixed = mixed.reshape(*mixed.shape[:2], -1)
        if self.config.attention_gate:
            normed = self._before(x, "attention_norm")
            mixed = mixed * jax.nn.sigmoid(self._product("CTD,DE->CTE", normed, self.o_gate))
        added = self._summed("CTE,ED->CTD", mixed, self.o)
        if self.config.biases:
            added = added + self.o_bias[...].astype(jnp.float32)
        return self._norm(added, self.post_attention_norm) if self.config.post_norms else added

    def delta_inputs(self, x: Residual) -> delta.Inputs:
        """Queries, keys and values before the convolution of the gated delta rule."""
        normed = self._before(x, "attention_norm")
        weights = self.delta_q, self.delta_k, self.delta_v
        q, k, v = (self._product("CTD,DE->CTE", normed, weight) for weight in weights)
        return q, k, v

    def delta_rule(
        self,
        x: Residual,
        inputs: delta.Inputs,
        before: Callable[[int, int], Array],
    ) -> delta.Rule:
        """What the rule reads; `before(i, n)` is the i-th of the inputs, n positions before."""
        sizes, normed = self.config.sizes, self._before(x, "attention_norm")
        taps = self.delta_q_taps, self.delta_k_taps, self.delta_v_taps
        q, k, v = (
            delta.convolve(vectors, weight[...], functools.partial(before, i)).reshape(
                *vectors.shape[:2], sizes[heads], sizes[size]
            )
            for i, (vectors, weight, heads, size) in enumerate(
                zip(inputs, taps, "kkn", "hhv", strict=True)
            )
        )
        q, k = (delta.per_value_head(delta.normed(vectors), sizes["n"]) for vectors in (q, k))
        a, b = (
            self._product("CTD,DE->CTE", normed, weight).astype(jnp.float32)
            for weight in (self.delta_a, self.delta_b)
        )
        decay = -jnp.exp(self.delta_rate[...]) * jax.nn.softplus(a + self.delta_step)
        return delta.Rule(
            q=q * sizes["h"] ** -0.5,
            k=k,
            v=v.astype(jnp.float32),
            decay=decay,
            beta=jax.nn.sigmoid(b),
        )

    def delta_output(self, outputs: Float[Array, "C T n v"], x: Residual) -> Residual:
        """The addition of the gated delta rule to the residual stream x."""
        z = self._product("CTD,DE->CTE", self._before(x, "attention_norm"), self.delta_z)
        outputs = rms_norm(outputs.astype(z.dtype), self.delta_norm[...], self.config.rms_eps)
        gate = jax.nn.silu(z.astype(jnp.float32)).reshape(outputs.shape)
        mixed = (outputs * gate).astype(z.dtype)
        return self._summed("CTE,ED->CTD", mixed.reshape(z.shape), self.delta_o)

    def feed_forward(self, x: Residual, of_expert: OfExpert | None) -> Residual:
        """The addition of the feed-forward to the residual stream, or of a mixture's experts."""
        normed = self._before(x, "ffn_norm")
        if of_expert is not None:
            added = self._mixture(normed, of_expert)
        elif self.config.gated:
            added = self._network(normed, self.gate, self.up, self.down)
        else:
            up = self._product("CTD,DF->CTF", normed, self.up)
            inner = self._activation(up + self.up_bias if self.config.biases else up)
            added = self._summed("CTF,FD->CTD", inner, self.down)
        if self.config.biases:
            added = added + self.down_bias[...].astype(jnp.float32)
        return self._norm(added, self.post_ffn_norm) if self.config.post_norms else added

    def _network(self, x: Array, gate: Weight, up: Weight, down: Weight) -> Residual:
        gated, upped = (self._product("CTD,DF->CTF", x, w) for w in (gate, up))
        inner = self._activation(gated) * upped
        return self._summed("CTF,FD->CTD", inner, down)

    def _mixture(self, x: Array, of_expert: OfExpert) -> Residual:
        config = self.config
        logits = jnp.einsum("CTD,XD->CTX", x, self.router[...], **F32)
        weights, chosen = route(
            logits, config.experts_per_token, renormalise=config.experts_renormalised
        )

        def network(expert: Index, rows: Float[Array, "rows D"]) -> Float[Array, "rows D"]:
            return self._network(rows[None], *of_expert(expert))[0]

        return mix(x, weights, chosen, config.experts, network)

    def _activation(self, x: Array) -> Array:
        return _ACTIVATIONS[self.config.activation](x)

    def _product(self, axes: str, x: Array, weight: Weight) -> Array:
        """The product with a matrix, in the dtype of x.

        On a CPU it is float32 before it is rounded. XLA uses the instructions for bfloat16 (AMX)
        only then; it adds up in float32 either way.
        """
        wide = jnp.float32 if self.platform == "cpu" else None
        return jnp.einsum(axes, x, weight[...], preferred_element_type=wide).astype(x.dtype)

    def _summed(self, axes: str, x: Array, weight: Weight) -> Residual:
        """The product that devices along `model` add up."""
        added = jnp.einsum(axes, x, weight[...], preferred_element_type=self.sums)
        if self.sums == FLOAT32:
            return added
        # Without the barrier XLA may move the cast to float32 in front of the sum over devices.
        # Without the constraint it may divide the residual stream of few rows. A pass that is not
        # divided over `data` (the prompt's) has no mesh in its context.
        if not jax.sharding.get_abstract_mesh().empty:
            added = jax.lax.with_sharding_constraint(added, PartitionSpec())
        return jax.lax.optimization_barrier(added)

    def _by_head(self, x: Float[Array, "C T E"]) -> Float[Array, "C T _ H"]:
        """E = N·H or K·H, split."""
        return x.reshape(*x.shape[:2], -1, self.config.head_size)

    def _before(self, x: Residual, norm: str) -> Float[Array, "C T D"]:
        """What attention or the feed-forward reads of the residual stream."""
        if not self.config.pre_norms:
            return x.astype(self.q.dtype)
        return self._norm(x, getattr(self, norm), getattr(self, norm + "_bias", None))

    def _qk_norm(self, x: Float[Array, "C T _ H"], weight: Param) -> Float[Array, "C T _ H"]:
        if not self.config.qk_norm_whole:
            return self._norm(x, weight)
        return self._norm(x.reshape(*x.shape[:2], -1), weight).reshape(x.shape)

    def _norm(self, x: Array, weight: Param, bias: Param | None = None) -> Array:
        config = self.config
        if bias is not None:
            return layer_norm(x, weight[...], bias[...], config.rms_eps)
        kind = {"offset": config.norm_offset, "wide": config.norm_float32}
        return rms_norm(x, weight[...], config.rms_eps, **kind)


class Experts(nnx.Module):
    """The feed-forwards of a mixture, of a stack of layers.

    They are not cut out of the stack with a layer's other parameters: a loop reads one expert at a
    time, and XLA would first write all of a layer's once more.
    """

    def __init__(self, config: DecoderConfig, dtype: jnp.dtype):
        # Gate and up in another order than a single feed-forward's: with F last, the TPU's compiler
        # copies whole stacks of them in a search on several devices along `model`.
        self.gate = zeros(config, "LXFD", dtype)
        self.up = zeros(config, "LXFD", dtype)
        self.down = zeros(config, "LXFD", dtype)

    def of(self, layer: Index, expert: Index) -> tuple[Array, Array, Array]:
        """Gate and up [D, F] and down [F, D] of one expert."""
        gate, up, down = (
            _matrix(stack[...], layer, expert) for stack in (self.gate, self.up, self.down)
        )
        return gate.T, up.T, down


def rms_norm(
    x: Float[Array, "*B D"],
    weight: Float[Array, "D"],
    eps: float,
    *,
    offset: bool = False,
    wide: bool = False,
) -> Float[Array, "*B D"]:
    """RMSNorm over the last axis, normalised in float32; the result has the weight's dtype.

    By default it is cast and then multiplied (Llama). With `offset` it is multiplied by 1 + weight
    in float32 and then cast (Gemma); with `wide`, by the weight (OLMo 2).
    """
    x = x.astype(jnp.float32)
    normed = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)
    if offset:
        return (normed * (1 + weight.astype(jnp.float32))).astype(weight.dtype)
    if wide:
        return (normed * weight.astype(jnp.float32)).astype(weight.dtype)
    return normed.astype(weight.dtype) * weight


def layer_norm(
    x: Float[Array, "*B D"], weight: Float[Array, "D"], bias: Float[Array, "D"], eps: float
) -> Float[Array, "*B D"]:
    """LayerNorm over the last axis, in float32; the result has the weight's dtype."""
    x = x.astype(jnp.float32)
    x = x - jnp.mean(x, axis=-1, keepdims=True)
    normed = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)
    return (normed * weight.astype(jnp.float32) + bias.astype(jnp.float32)).astype(weight.dtype)


def rotate(x: Float[Array, "C T N H"], angles: Angles) -> Float[Array, "C T N H"]:
    """Rotary embedding of the first 2h dimensions, half-split: pairs are (i, i + h)."""
    cos, sin = (a[:, :, None, :] for a in angles)
    if not (size := 2 * cos.shape[-1]):
        return x
    first, second = jnp.split(x[..., :size].astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    rotated = rotated.astype(x.dtype)
    return rotated if size == x.shape[-1] else jnp.concatenate([rotated, x[..., size:]], axis=-1)


def route(
    logits: Float[Array, "C T X"], count: int, *, renormalise: bool
) -> tuple[Float[Array, "C T chosen"], Int[Array, "C T chosen"]]:
    """The `count` experts of each position and their weights.

    Weights are probabilities among all experts; with `renormalise`, among those that are chosen.
    """
    weights, chosen = jax.lax.top_k(jax.nn.softmax(logits), count)
    return weights / weights.sum(-1, keepdims=True) if renormalise else weights, chosen


def mix(
    x: Float[Array, "C T D"],
    weights: Float[Array, "C T chosen"],
    chosen: Int[Array, "C T chosen"],
    experts: int,
    network: Network,
) -> Float[Array, "C T D"]:
    """The weighted sum of what each position's experts make of it, in float32."""
    rows, count = x.reshape(-1, x.shape[-1]), chosen.shape[-1]
    of_pair, pairs = chosen.reshape(-1), chosen.size
    order = jnp.argsort(of_pair, stable=True)  # pairs by expert
    first, behind = (
        jnp.searchsorted(of_pair[order], jnp.arange(experts), side=side)
        for side in ("left", "right")
    )
    size = -(-pairs // experts)  # of a block: the mean number of an expert's pairs
    blocks = -(-(behind - first) // size)
    ends = jnp.cumsum(blocks)
    most = (pairs + (size - 1) * min(pairs, experts)) // size

    def add(total: Array, block: Array) -> tuple[Array, None]:
        expert = jnp.minimum(jnp.searchsorted(ends, block, side="right"), experts - 1)
        place = first[expert] + (block - ends[expert] + blocks[expert]) * size + jnp.arange(size)
        pair = order[jnp.minimum(place, pairs - 1)]
        # A block that is not full, or not needed, has rows that are zeros, and are added to none.
        row = jnp.where(place < behind[expert], pair // count, len(rows))
        made = network(expert, rows.at[row].get(mode="fill", fill_value=0))
        weighted = made.astype(jnp.float32) * weights.reshape(-1)[pair][:, None]
        return total.at[row].add(weighted, mode="drop"), None

    total = jnp.zeros(rows.shape, jnp.float32)
    return jax.lax.scan(add, total, jnp.arange(most))[0].reshape(x.shape)


def _matrix(stack: Shaped[Array, "L X *B"], layer: Index, expert: Index) -> Shaped[Array, "*B"]:
    start = (layer, expert, *[0] * (stack.ndim - 2))
    return jax.lax.dynamic_slice(stack, start, (1, 1, *stack.shape[2:]))[0, 0]


def zeros(config: NetworkConfig, axes: str, dtype: jnp.dtype) -> Param:
    """A parameter of zeros that carries its axis letters; `checkpoint.restore` fills it."""
    shape = [math.prod(config.sizes[a] for a in merged) for merged in dimensions(axes)]
    return Param(jnp.zeros(shape, dtype), axes=axes)
