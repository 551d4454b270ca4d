"""One decoder for the Llama family: embedding and layers, without the final norm.

Axis letters are those of `engine/types.py`. The residual stream, softmax and norms are float32;
matmuls take operands in the parameters' dtype and accumulate in float32. `forward` runs whole
sequences; `respond` runs candidates behind a shared prefix, whose keys and values stay un-batched.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from engine.models.config import DecoderConfig, inverse_frequencies
from engine.types import KeyValues

Residual = Float[Array, "C T D"]
Angles = tuple[Float[Array, "C T h"], Float[Array, "C T h"]]  # cos and sin, h = H / 2


class Layer(nnx.Module):
    """Attention and feed-forward. Parameters have a leading L and are used one layer at a time."""

    def __init__(self, config: DecoderConfig, dtype: jnp.dtype):
        self.config = config
        self.attention_norm = _zeros(config, "LD", dtype)
        self.q = _zeros(config, "LDNH", dtype)
        self.k = _zeros(config, "LDKH", dtype)
        self.v = _zeros(config, "LDKH", dtype)
        self.o = _zeros(config, "LNHD", dtype)
        self.ffn_norm = _zeros(config, "LD", dtype)
        self.gate = _zeros(config, "LDF", dtype)
        self.up = _zeros(config, "LDF", dtype)
        self.down = _zeros(config, "LFD", dtype)

    def keys_values(self, x: Residual, angles: Angles) -> tuple[Array, Array]:
        """Rotated keys and values of every position, each [C, T, K, H]."""
        normed = rms_norm(x, self.attention_norm[...], self.config.rms_eps)
        keys = jnp.einsum("CTD,DKH->CTKH", normed, self.k[...])
        return rotate(keys, angles), jnp.einsum("CTD,DKH->CTKH", normed, self.v[...])

    def queries(self, x: Residual, angles: Angles) -> Float[Array, "C T K G H"]:
        normed = rms_norm(x, self.attention_norm[...], self.config.rms_eps)
        q = rotate(jnp.einsum("CTD,DNH->CTNH", normed, self.q[...]), angles)
        groups = self.config.num_heads // self.config.num_kv_heads
        return q.reshape(*q.shape[:2], self.config.num_kv_heads, groups, self.config.head_size)

    def output(self, mixed: Float[Array, "C T K G H"]) -> Residual:
        mixed = mixed.reshape(*mixed.shape[:2], self.config.num_heads, self.config.head_size)
        return jnp.einsum("CTNH,NHD->CTD", mixed, self.o[...], preferred_element_type=jnp.float32)

    def feed_forward(self, x: Residual) -> Residual:
        normed = rms_norm(x, self.ffn_norm[...], self.config.rms_eps)
        gate = jnp.einsum("CTD,DF->CTF", normed, self.gate[...])
        up = jnp.einsum("CTD,DF->CTF", normed, self.up[...])
        return jnp.einsum(
            "CTF,FD->CTD", jax.nn.silu(gate) * up, self.down[...],
            preferred_element_type=jnp.float32,
        )  # fmt: skip


class Decoder(nnx.Module):
    """Embedding and L layers. Heads read the residual stream at their own depth."""

    def __init__(self, config: DecoderConfig, dtype: jnp.dtype):
        self.config = config
        self.embedding = _zeros(config, "VD", dtype)
        self.layers = Layer(config, dtype)

    def embed(self, ids: Int[Array, "C T"]) -> Residual:
        return self.embedding[...][ids].astype(jnp.float32)

    def forward(self, ids: Int[Array, "C T"], depths: Sequence[int]) -> tuple[Residual, ...]:
        """Residual stream after each of `depths` layers, at every position.

        The plain pass: no shared prefix, no position left out. It is the reference that the
        self-check holds the candidates' pass against.
        """
        x = self.embed(ids)
        angles = self._angles(jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape))
        read = []
        for start, stop in _segments(depths):
            x = jax.lax.fori_loop(start, stop, lambda i, x: self._plain_layer(i, x, angles)[0], x)
            read.append(x)
        return tuple(read)

    def prefill(self, ids: Int[Array, "P"]) -> KeyValues:
        """Keys and values of the prefix in every layer."""
        angles = self._angles(jnp.arange(ids.shape[0])[None])

        def layer(x, index):
            x, keys, values = self._plain_layer(index, x, angles)
            return x, KeyValues(keys=keys[0], values=values[0])

        return jax.lax.scan(layer, self.embed(ids[None]), jnp.arange(self.config.num_layers))[1]

    def respond(
        self,
        prefix: KeyValues,
        x: Residual,
        shared: Int[Array, "C"],
        last: Int[Array, "C"],
        depths: Sequence[int],
    ) -> tuple[Float[Array, "C D"], ...]:
        """Residual stream after each of `depths` layers at the position `last` of each candidate.

        Args:
          prefix: keys and values that all candidates share.
          x: embedded candidates (`Candidates.ids`), a function of which the result is
            differentiable.
          shared: how many prefix positions each candidate continues.
          last: the reward position within x.
          depths: ascending.
        """
        angles = self._angles(shared[:, None] + jnp.arange(x.shape[1]))
        visible = jnp.arange(prefix.keys.shape[1]) < shared[:, None]  # [C, P]
        every, pooled = jnp.arange(x.shape[1]), last[:, None]

        def full_layer(index, x):
            return self._response_layer(index, x, every, prefix, visible, angles)

        read = []
        for start, stop in _segments(depths):
            deepest = stop == max(depths)
            x = jax.lax.fori_loop(start, stop - deepest, full_layer, x)
            if deepest:  # nothing follows but the reward position
                x = self._response_layer(stop - 1, x, pooled, prefix, visible, angles)
                read.append(x[:, 0])
            else:
                read.append(_take(x, pooled)[:, 0])
        return tuple(read)

    def _layer(self, index) -> Layer:
        graph, stacked = nnx.split(self.layers)
        one = jax.tree.map(lambda p: jax.lax.dynamic_index_in_dim(p, index, 0, False), stacked)
        return nnx.merge(graph, one)

    def _plain_layer(self, index, x: Residual, angles: Angles):
        layer = self._layer(index)
        with jax.named_scope("attention"):
            keys, values = layer.keys_values(x, angles)
            queries = layer.queries(x, angles)
            logits = _scaled(jnp.einsum("CTKGH,CSKH->CKGTS", queries, keys, **_F32), queries)
            causal = jnp.tril(jnp.ones(logits.shape[-2:], bool))
            weights = jax.nn.softmax(logits, where=causal).astype(values.dtype)
            x = x + layer.output(jnp.einsum("CKGTS,CSKH->CTKGH", weights, values))
        with jax.named_scope("feed_forward"):
            return x + layer.feed_forward(x), keys, values

    def _response_layer(
        self,
        index,
        x: Residual,
        at: Int[Array, "..."],
        prefix: KeyValues,
        visible: Bool[Array, "C P"],
        angles: Angles,
    ) -> Float[Array, "C U D"]:
        """One layer over the positions `at`: [T] for all of them, [C, 1] for one a candidate."""
        layer = self._layer(index)
        past = jax.tree.map(lambda p: jax.lax.dynamic_index_in_dim(p, index, 0, False), prefix)
        with jax.named_scope("attention"):
            keys, values = layer.keys_values(x, angles)
            if at.ndim == 2:
                x, angles = _take(x, at), tuple(_take(a, at) for a in angles)
            mixed = _attend(layer.queries(x, angles), keys, values, past, visible, at)
            x = x + layer.output(mixed)
        with jax.named_scope("feed_forward"):
            return x + layer.feed_forward(x)

    def _angles(self, positions: Int[Array, "C T"]) -> Angles:
        frequencies = jnp.asarray(
            inverse_frequencies(self.config.rope, self.config.head_size), jnp.float32
        )
        angles = positions[..., None].astype(jnp.float32) * frequencies
        return jnp.cos(angles), jnp.sin(angles)


def rms_norm(x: Float[Array, "*B D"], weight: Float[Array, "D"], eps: float) -> Array:
    """Normalises in float32, casts to the weight's dtype, then multiplies (the Llama order)."""
    x = x.astype(jnp.float32)
    normed = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)
    return normed.astype(weight.dtype) * weight


def rotate(x: Float[Array, "C T N H"], angles: Angles) -> Float[Array, "C T N H"]:
    """Rotary embedding in the half-split convention: pairs are (i, i + H/2)."""
    cos, sin = (a[:, :, None, :] for a in angles)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)


_F32 = {"preferred_element_type": jnp.float32}


def _attend(
    queries: Float[Array, "C T K G H"],
    keys: Float[Array, "C S K H"],
    values: Float[Array, "C S K H"],
    past: KeyValues,
    visible: Bool[Array, "C P"],
    at: Int[Array, "..."],
) -> Float[Array, "C T K G H"]:
    """One softmax over the shared prefix and the candidate's own positions.

    Key/value heads lead, so that every product is a batched matmul as it lies in memory; nothing
    is concatenated, since a softmax is a sum of exponentials wherever they stand.
    """
    queries = jnp.einsum("CTKGH->KCTGH", queries)
    keys, values = (jnp.einsum("CSKH->KCSH", own) for own in (keys, values))
    past_keys, past_values = (jnp.einsum("PKH->KPH", p) for p in (past.keys, past.values))
    causal = jnp.arange(keys.shape[2]) <= jnp.broadcast_to(at, queries.shape[1:3])[..., None]

    on_prefix = _scaled(jnp.einsum("KCTGH,KPH->KCTGP", queries, past_keys, **_F32), queries)
    on_own = _scaled(jnp.einsum("KCTGH,KCSH->KCTGS", queries, keys, **_F32), queries)
    on_prefix = jnp.where(visible[:, None, None], on_prefix, -jnp.inf)
    on_own = jnp.where(causal[:, :, None], on_own, -jnp.inf)  # never all masked: S holds T
    largest = jnp.maximum(on_prefix.max(-1, keepdims=True), on_own.max(-1, keepdims=True))
    largest = jax.lax.stop_gradient(largest)
    on_prefix, on_own = jnp.exp(on_prefix - largest), jnp.exp(on_own - largest)
    total = on_prefix.sum(-1, keepdims=True) + on_own.sum(-1, keepdims=True)

    on_prefix, on_own = (weights.astype(values.dtype) for weights in (on_prefix, on_own))
    mixed = jnp.einsum("KCTGP,KPH->KCTGH", on_prefix, past_values, **_F32)
    mixed += jnp.einsum("KCTGS,KCSH->KCTGH", on_own, values, **_F32)
    return jnp.einsum("KCTGH->CTKGH", (mixed / total).astype(queries.dtype))


def _scaled(logits: Array, queries: Array) -> Array:
    return logits * queries.shape[-1] ** -0.5


def _take(x: Float[Array, "C T *D"], at: Int[Array, "C U"]) -> Float[Array, "C U *D"]:
    return jnp.take_along_axis(x, at[..., None], axis=1)


def _segments(depths: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip([0, *depths[:-1]], depths, strict=True))


def _zeros(config: DecoderConfig, axes: str, dtype: jnp.dtype) -> nnx.Param:
    """An empty parameter that carries its axis letters; checkpoints fill it."""
    sizes = {
        "L": config.num_layers, "D": config.width, "F": config.ffn_width, "V": config.vocab_size,
        "N": config.num_heads, "K": config.num_kv_heads, "H": config.head_size,
    }  # fmt: skip
    return nnx.Param(jnp.zeros([sizes[a] for a in axes], dtype), axes=axes)
