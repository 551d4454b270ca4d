"""One encoder for all families of `convert.hf_encoders`, up to what its classifier reads.

Positions attend in both directions, so no prefix is shared: a candidate is a whole pass. Residual
stream, softmax and norms are float32; matmuls take operands in the parameters' dtype and accumulate
in float32. Two passes compute the same. `respond` has q, k and v in one product, the relative
positions of a row's own distances, and of the last layer the first position alone, if that is what
is read. `plain` has each product by itself, all relative positions, and every position of every
layer. Axis letters are those of `engine/types.py`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from engine.models.config import inverse_frequencies
from engine.models.encoder_config import EncoderConfig
from engine.models.heads import HeadConfig, Readout
from engine.models.layer import F32, Index, Param, Residual, layer_norm, rotate, zeros
from engine.models.reward_model import RewardModels
from engine.types import Candidates

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    # As torch has it. On a CPU, XLA joins `erf` with the products around it, not the `erfc` of JAX.
    "gelu": lambda x: 0.5 * x * (1 + jax.lax.erf(x * math.sqrt(0.5))),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}
# Finite: in a window, a position of the padding may see none that is there.
_MASKED = -1e30


class EncoderLayer(nnx.Module):
    """Parameters of a stack of layers, with a leading L."""

    o: Param
    up: Param
    gate: Param
    down: Param

    def __init__(self, config: EncoderConfig, dtype: jnp.dtype):
        made = functools.partial(_made, self, config, dtype)
        for name in "qkv":
            made(name, "LD(NH)", "L(NH)")
        made("o", "L(NH)D", "LD")
        if config.relative and not config.relative_shared:
            for part, name in (("c2p", "pos_key"), ("p2c", "pos_query")):
                if part in config.relative:
                    made(name, "LD(NH)", "L(NH)")
        if config.gated:
            made("gate", "LDF", "LF")
        made("up", "LDF", "LF")
        made("down", "LFD", "LD")
        for name in ("attention_norm", "ffn_norm"):
            made(name, "LD", "LD")


class Encoder(nnx.Module):
    """Embeddings, L layers, and the layer under the classifier: from token ids to one vector.

    `stacks` hold the layers' parameters, as a decoder's do.
    """

    pooler: Param
    projection: Param
    projection_bias: Param

    def __init__(self, config: EncoderConfig, dtype: jnp.dtype, *, platform: str):
        self.config, self.platform = config, platform
        made = functools.partial(_made, self, config, dtype)
        self.embedding = zeros(config, "VE", dtype)
        if config.position_rows:
            self.position_embedding = zeros(config, "TE", dtype)
        if config.token_types:
            self.type_embedding = zeros(config, "ZE", dtype)
        made("embedding_norm", "E", "E")
        if config.embedding_width != config.width:
            made("projection", "DE", "D")
        if config.relative:
            self.relative = zeros(config, "SD", dtype)
            if config.relative_norm:
                made("relative_norm", "D", "D")
        if config.pre_norms:
            made("final_norm", "D", "D")
        made("pooler", "DD", "D")
        if config.pooler_norm:
            made("pooler_norm", "D", "D")
        looped = platform == "tpu" or (platform == "cpu" and dtype == jnp.float16)
        height = config.num_layers if looped else 1
        of_stack = dataclasses.replace(config, num_layers=height, window_layers=())
        self.stacks = nnx.List(
            EncoderLayer(of_stack, dtype) for _ in range(config.num_layers // height)
        )

    def respond(self, ids: Int[Array, "C T"], last: Int[Array, "C"]) -> Float[Array, "C D"]:
        """What the classifier reads of whole conversations, whose last ids are at `last`."""
        return self._read(ids, last, plain=False)

    def plain(self, ids: Int[Array, "C T"], last: Int[Array, "C"]) -> Float[Array, "C D"]:
        """The same by the plain pass, with which the self-check compares `respond`."""
        return self._read(ids, last, plain=True)

    def _read(
        self, ids: Int[Array, "C T"], last: Int[Array, "C"], *, plain: bool
    ) -> Float[Array, "C D"]:
        config, depth = self.config, self.config.num_layers
        seen = jnp.arange(ids.shape[1]) <= last[:, None]
        rows = None
        if config.relative:
            rows = self.relative[...]
            if config.relative_norm:
                rows = self._norm(self, rows, "relative_norm")
            rows = rows if plain else rows[relative_rows(config, ids.shape[1])]
        layer = functools.partial(self._layer, seen=seen, relative=rows, plain=plain)
        x = self._embed(ids)
        if len(self.stacks) == depth:
            for index in range(depth - 1):
                x = layer(index, x)
        else:
            x = jax.lax.fori_loop(0, depth - 1, layer, x)
        alone = config.pooling == "first" and not plain
        x = layer(depth - 1, x, first=alone)
        if config.pre_norms:
            x = self._norm(self, x, "final_norm")
        if config.pooling == "first":
            pooled = x[:, 0]
        else:
            pooled = jnp.mean(x, axis=1, where=seen[:, :, None])
        inner = _product("CE,DE->CD", pooled, self.pooler, getattr(self, "pooler_bias", None))
        inner = _ACTIVATIONS[config.pooler](inner)
        return self._norm(self, inner, "pooler_norm") if config.pooler_norm else inner

    def _embed(self, ids: Int[Array, "C T"]) -> Residual:
        config = self.config
        x = self.embedding[...][ids].astype(jnp.float32)
        if config.position_rows:
            at = jnp.arange(ids.shape[1])[None]
            if config.pad is not None:
                counts = ids != config.pad
                at = config.pad + jnp.cumsum(counts, axis=1) * counts
            x += self.position_embedding[...][at].astype(jnp.float32)
        if config.token_types:
            kinds = jnp.zeros_like(ids)
            if config.separator is not None:
                ends = ids == config.separator
                kinds = (jnp.cumsum(ends, axis=1) > ends).astype(ids.dtype)
            x += self.type_embedding[...][kinds].astype(jnp.float32)
        x = self._norm(self, x, "embedding_norm")
        if config.embedding_width != config.width:
            x = _product("CTE,DE->CTD", x, self.projection, self.projection_bias)
        return x

    def _layer(
        self,
        index: Index,
        x: Residual,
        *,
        seen: Bool[Array, "C S"],
        relative: Float[Array, "_ D"] | None,
        plain: bool,
        first: bool = False,
    ) -> Float[Array, "C U D"]:
        """The residual stream after one layer: of all positions, or of the `first` alone."""
        config = self.config
        written_out = len(self.stacks) == config.num_layers
        stack, at = (self.stacks[index], 0) if written_out else (self.stacks[0], index)
        graph, state = nnx.split(stack)
        entry = functools.partial(jax.lax.dynamic_index_in_dim, index=at, keepdims=False)
        layer = nnx.merge(graph, jax.tree.map(entry, state))
        with jax.named_scope("attention"):
            h = x
            if config.pre_norms:  # ModernBERT's first layer reads the normed embeddings
                h = jnp.where(index == 0, x, self._norm(layer, x, "attention_norm"))
            if plain:
                [q], [k], [v] = (self._heads(layer, name, h) for name in "qkv")
            elif first:
                [q], (k, v) = self._heads(layer, "q", h[:, :1]), self._heads(layer, "kv", h)
            else:
                q, k, v = self._heads(layer, "qkv", h)
            q, k = self._rotated(index, q), self._rotated(index, k)
            logits = jnp.einsum("CTNH,CSNH->CNTS", q, k, **F32)
            if relative is not None:
                logits += self._on_distances(layer, q, k, relative, plain)
            logits *= (config.head_size * (1 + len(config.relative))) ** -0.5
            mask = self._mask(index, seen)[:, None, : q.shape[1]]
            weights = jax.nn.softmax(jnp.where(mask, logits, _MASKED)).astype(v.dtype)
            mixed = jnp.einsum("CNTS,CSNH->CTNH", weights, v, **F32)
            mixed = mixed.reshape(*mixed.shape[:2], -1)
            x = x[:, :1] if first else x
            x = x + _product("CTE,ED->CTD", mixed, layer.o, getattr(layer, "o_bias", None))
            x = x if config.pre_norms else self._norm(layer, x, "attention_norm")
        with jax.named_scope("feed_forward"):
            h = self._norm(layer, x, "ffn_norm") if config.pre_norms else x
            up = _product("CTD,DF->CTF", h, layer.up, getattr(layer, "up_bias", None))
            inner = _ACTIVATIONS[config.activation](up)
            if config.gated:
                inner *= _product("CTD,DF->CTF", h, layer.gate)
            x = x + _product("CTF,FD->CTD", inner, layer.down, getattr(layer, "down_bias", None))
            return x if config.pre_norms else self._norm(layer, x, "ffn_norm")

    def _heads(self, layer: Any, names: Sequence[str], x: Array) -> list[Array]:
        """Products with some matrices, computed as one: each [..., N, H] in their dtype."""
        weight = jnp.concatenate([getattr(layer, name)[...] for name in names], axis=1)
        made = _product("...D,DE->...E", x, weight)
        if self.config.biases:
            biases = [getattr(layer, f"{name}_bias")[...] for name in names]
            made += jnp.concatenate(biases).astype(jnp.float32)
        parts = jnp.split(made.astype(weight.dtype), len(names), axis=-1)
        return [part.reshape(*part.shape[:-1], -1, self.config.head_size) for part in parts]

    def _on_distances(
        self, layer: Any, q: Array, k: Array, relative: Float[Array, "R D"], plain: bool
    ) -> Float[Array, "C N T S"]:
        """DeBERTa's logits of content to position and of position to content, before scaling."""
        config, positions, added = self.config, k.shape[1], jnp.float32(0)
        names = ("k", "q") if config.relative_shared else ("pos_key", "pos_query")
        rows = relative_rows(config, positions)
        apart = np.subtract.outer(np.arange(positions), np.arange(positions))  # query - key
        places = rows[apart + positions - 1]
        if "c2p" in config.relative:
            [keys] = self._heads(layer, names[:1], relative)
            if plain:
                on = jnp.einsum("CTNH,RNH->CNTR", q, keys, **F32)
                added += jnp.take_along_axis(on, jnp.asarray(places)[None, None], axis=3)
            else:
                on = jnp.einsum("CTNH,RNH->CNTR", q, keys[::-1], **F32)
                added += _diagonals(on, positions)
        if "p2c" in config.relative:
            [queries] = self._heads(layer, names[1:], relative)
            on = jnp.einsum("CSNH,RNH->CNSR", k, queries, **F32)
            if plain:
                by_key = jnp.take_along_axis(on, jnp.asarray(places.T)[None, None], axis=3)
            else:
                by_key = _diagonals(on, positions)[..., : q.shape[1]]
            added += by_key.swapaxes(2, 3)
        return added

    def _rotated(self, index: Index, x: Float[Array, "C T N H"]) -> Float[Array, "C T N H"]:
        config = self.config
        if config.rope is None:
            return x
        windows = config.window_layers or (False,) * config.num_layers
        ropes = config.rope, config.window_rope or config.rope
        frequencies = np.array([inverse_frequencies(rope, config.head_size) for rope in ropes])
        of_layer = jnp.asarray(frequencies[np.array(windows, int)], jnp.float32)[index]
        at = jnp.broadcast_to(jnp.arange(x.shape[1], dtype=jnp.float32), x.shape[:2])
        angles = at[..., None] * of_layer
        return rotate(x, (jnp.cos(angles), jnp.sin(angles)))

    def _mask(self, index: Index, seen: Bool[Array, "C S"]) -> Bool[Array, "C T S"]:
        config, at = self.config, jnp.arange(seen.shape[1])
        mask = jnp.broadcast_to(seen[:, None], (*seen.shape, seen.shape[1]))
        if not config.window_layers:
            return mask
        near = jnp.abs(at[:, None] - at) <= config.window
        return mask & (near | ~jnp.asarray(config.window_layers)[index])

    def _norm(self, owner: Any, x: Array, name: str) -> Array:
        weight = getattr(owner, name)[...].astype(jnp.float32)
        bias = getattr(owner, f"{name}_bias")[...] if self.config.biases else jnp.zeros_like(weight)
        return layer_norm(x, weight, bias, self.config.rms_eps)


class EncoderRewardModels(RewardModels):
    """Reward models on one encoder, each with its head."""

    def __init__(
        self,
        config: EncoderConfig,
        heads: Sequence[HeadConfig],
        dtype: jnp.dtype,
        *,
        objectives: str = "none",
        platform: str,
    ):
        self.decoder: Any = Encoder(config, dtype, platform=platform)
        self.objectives = objectives
        self.readouts = nnx.List(Readout(head) for head in heads)
        self.depths = (config.num_layers,)

    # Without the prefix that the passes of decoders take.
    def score_candidates(self, candidates: Candidates) -> Float[Array, "W C"]:  # type: ignore[override]
        """Rewards of candidates that are whole conversations: `shared` is 0."""
        return self._rewards_of(self.decoder.respond(candidates.ids, candidates.last))

    def plain(  # type: ignore[override]
        self, ids: Int[Array, "C T"], last: Int[Array, "C"], gate_at: Int[Array, "C M"]
    ) -> Float[Array, "W C"]:
        """The plain pass: rewards of sequences whose last ids are at `last`."""
        with jax.named_scope("plain"):
            return self._rewards_of(self.decoder.plain(ids, last))

    def _rewards_of(self, pooled: Float[Array, "C D"]) -> Float[Array, "W C"]:
        return self._read([pooled], [jnp.zeros((len(pooled), 0))] * len(self.readouts))


def relative_rows(config: EncoderConfig, positions: int) -> np.ndarray:
    """Rows of the relative positions of distances 1 - positions to positions - 1, query less key.

    As `make_log_bucket_position` of transformers 5.23, in float32 too.
    """
    distance = np.arange(1 - positions, positions)
    if config.relative_most:
        mid = config.relative_span // 2
        far = np.maximum(np.abs(distance), mid).astype(np.float32)
        most = np.log(np.float32((config.relative_most - 1) / mid))
        buckets = np.ceil(np.log(far / np.float32(mid)) / most * (mid - 1)) + mid
        near = np.abs(distance) <= mid
        distance = np.where(near, distance, np.sign(distance) * buckets).astype(np.int64)
    return np.clip(distance + config.relative_span, 0, 2 * config.relative_span - 1)


def _diagonals(x: Float[Array, "C N T R"], positions: int) -> Float[Array, "C N T S"]:
    """out[t, s] = x[t, positions - 1 - t + s], of R = 2 positions - 1, by slices alone."""
    *outer, rows, width = x.shape
    if rows == 1:
        return x[..., positions - 1 :]
    flat = x.reshape(*outer, rows * width)[..., positions - 1 : positions - 1 + rows * (width - 1)]
    return flat.reshape(*outer, rows, width - 1)[..., :positions]


def _product(axes: str, x: Array, weight: Any, bias: Any = None) -> Array:
    """The product with a matrix, in float32, and a bias."""
    weight = weight[...]
    made = jnp.einsum(axes, x.astype(weight.dtype), weight, **F32)
    return made if bias is None else made + bias[...].astype(jnp.float32)


def _made(owner: nnx.Module, config: EncoderConfig, dtype: Any, name: str, *axes: str) -> None:
    """Gives a module a parameter, and its bias where the encoder has biases."""
    setattr(owner, name, zeros(config, axes[0], dtype))
    if config.biases:
        setattr(owner, f"{name}_bias", zeros(config, axes[1], dtype))
