"""One decoder for all families of `convert.hf_families`: embedding and layers, no final norm.

Axis letters are those of `engine/types.py`. Residual stream, softmax and norms are float32. Matmuls
take operands in the parameters' dtype and accumulate in float32. `plain` runs whole sequences.
`respond` runs candidates behind a shared prefix, whose keys and values have no batch axis.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Shaped

from engine.models import attention, delta
from engine.models.config import DecoderConfig, inverse_frequencies
from engine.models.layer import (
    F32,
    FLOAT32,
    Angles,
    Index,
    Layer,
    OfExpert,
    Residual,
    zeros,
)
from engine.types import Kept, KeyValues, Places, Updates

Ropes = tuple[Angles, ...]  # of each of the rotary embeddings that a decoder's layers have
Row = KeyValues | Updates  # of a layer: leaves [C, T, …]
# What is kept of each layer: (residual stream after it, its keys and values [C, T, K, H], or its
# updates) -> a tree of arrays.
Keep = Callable[[Array, Row], Any]
Part = tuple[range, Any]  # numbers of layers, and what is kept of them, with a leading axis


class At(NamedTuple):
    """Where a layer is: its number in the model, its stack, and its place in that."""

    number: Index
    stack: int
    entry: Index


class Decoder(nnx.Module):
    """Embedding and L layers; a head reads the residual stream after as many layers as it wants.

    `stacks` hold the layers' parameters. XLA copies a layer's weights out of a stack before it
    multiplies, so each layer has a stack of its own, and the loop over them is written out. A TPU
    reads weights where they are, and takes long to compile a layer: it has one stack, and a loop.
    So has a CPU in float16, for which XLA would widen the weights of all layers at once. Where
    layers of two kinds take turns, each place in their period has a stack, and the loop is over
    periods.
    """

    def __init__(
        self,
        config: DecoderConfig,
        dtype: jnp.dtype,
        sums: jnp.dtype = FLOAT32,
        *,
        platform: str,
    ):
        self.config, self.platform = config, platform
        self.embedding = zeros(config, "VD", dtype)
        if config.learned_positions:
            self.position_embedding = zeros(config, "TD", dtype)
        looped = platform == "tpu" or (platform == "cpu" and dtype == jnp.float16)
        period = config.period if looped else config.num_layers
        self.stacks = nnx.List(
            Layer(config.first(-(-(config.num_layers - n) // period)), dtype, sums, platform, kind)
            for n, kind in enumerate(config.deltas[:period])
        )

    def embed(self, ids: Int[Array, "C T"]) -> Residual:
        """Embedded ids; Gemma's scale is rounded to the parameters' dtype, as published."""
        return self._scaled(self.embedding[...][ids])

    def row_slopes(self, slopes: Residual) -> Float[Array, "C T V"]:
        """The transpose of `embed` of one-hot rows: slopes of those, from slopes of its result.

        Both operands have the parameters' dtype, to which the way back through `embed` rounds
        slopes in any case; the product is float32. So a 16-bit embedding is read as it is.
        """
        embedding = self.embedding[...]
        looked_up = jax.ShapeDtypeStruct(slopes.shape, embedding.dtype)
        (unscaled,) = jax.linear_transpose(self._scaled, looked_up)(slopes)
        return jnp.einsum("CTD,VD->CTV", unscaled, embedding, **F32)

    def plain(
        self,
        ids: Int[Array, "C T"],
        depths: Sequence[int],
        keep: Keep | None = None,
        delta_rule: Callable[[delta.Rule], delta.Result] = delta.steps,
    ) -> tuple[tuple[Residual, ...], Any]:
        """The plain pass over whole sequences, up to each of the ascending `depths`.

        It shares no prefix and leaves out no position. The self-check compares `respond` with it.
        `delta_rule` computes updates: by default one position after the other.

        Returns:
          Residual stream at every position after each of `depths` layers; what was kept of each
          layer, with a leading axis for the layers.
        """
        positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        x, ropes = self._placed(self.embed(ids), positions), self._angles(positions)
        residuals: list[Array] = []
        kept: list[Part] = []
        for start, stop in _segments(depths):
            x, seen = self._through(
                lambda at, x: self._plain_layer(at, x, ropes, delta_rule), start, stop, x, keep
            )
            residuals.append(x)
            kept += seen
        return tuple(residuals), self._joined(kept) if keep else None

    def prefill(
        self, ids: Int[Array, "P"], read_at: Int[Array, "M"]
    ) -> tuple[Kept, Float[Array, "L M D"]]:
        """What is kept of a prefix, and its residual stream at `read_at` after each layer."""
        _, kept = self.plain(
            ids[None],
            (self.config.num_layers,),
            lambda x, row: (jax.tree.map(lambda a: a[0], row), x[0, read_at]),
            delta.chunks,
        )
        return kept

    def respond(
        self,
        prefix: Kept,
        x: Residual,
        places: Places,
        read: Int[Array, "C Y"] | None,
        depths: Sequence[int],
        keep: Keep | None = None,
    ) -> tuple[tuple[Float[Array, "C U D"], ...], Any]:
        """Rows behind a prefix.

        Args:
          prefix: what is kept of the positions that all rows share.
          x: embedded rows; the result is differentiable with respect to them.
          places: places of their positions; `behind` makes them for one reply per row.
          read: reward positions within x, at which alone the last of `depths` layers is computed;
            None: all positions.
          depths: ascending.
          keep: what is kept of each layer up to the last of `depths`: of the residual stream at
            `read`, and of keys and values, or updates, of all positions of x.

        Returns:
          Residual stream at `read` after each of `depths` layers; what was kept, with a leading
          axis for the layers.
        """
        x, ropes = self._placed(x, places.position), self._angles(places.position)

        # A gradient needs the results of matmuls. By default JAX would also keep all weights.
        saved = functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)

        def layer(at: At, x: Residual) -> tuple[Residual, Row]:
            response = functools.partial(self._response_layer, at)
            after: tuple[Residual, Row] = saved(response)(x, prefix, places, ropes)
            return after

        def at_read(x: Residual) -> Float[Array, "C U D"]:
            return x if read is None else _take(x, read)

        residuals: list[Array] = []
        kept: list[Part] = []
        for start, stop in _segments(depths):
            shortened = read is not None and stop == max(depths)
            x, seen = self._through(layer, start, stop - shortened, x, keep, at_read)
            kept += seen
            if shortened:
                x, row = self._response_layer(self._at(stop - 1), x, prefix, places, ropes, read)
                kept += [_alone(stop - 1, keep(x, row))] if keep else []
            residuals.append(x if shortened else at_read(x))
        return tuple(residuals), self._joined(kept) if keep else None

    def extend(self, prefix: Kept, x: Residual, length: Int[Array, ""]) -> Kept:
        """The prefix with embedded positions x [1, T, D] written behind its first `length` ones.

        It has room for at least length + T positions.
        """
        _, new = self.respond(
            prefix,
            x,
            behind(jnp.broadcast_to(length, 1), x.shape[1]),
            None,
            (self.config.num_layers,),
            lambda x, row: jax.tree.map(lambda a: a[0], row),
        )
        return jax.tree.map(
            lambda p, new: jax.lax.dynamic_update_slice_in_dim(p, new, length, 1), prefix, new
        )

    def _at(self, number: int, later: Index = 0) -> At:
        """Where a layer is, or the one that many periods later."""
        period = len(self.stacks)
        return At(number + later * period, number % period, number // period + later)

    def _layer(self, at: At) -> Layer:
        stack = self.stacks[at.stack]
        graph, mixture, *stack = nnx.split(stack, nnx.PathContains("experts"), ...)
        return nnx.merge(graph, mixture, *_entry(stack, at.entry))

    def _through(
        self,
        layer: Callable[[At, Residual], tuple[Residual, Row]],
        start: int,
        stop: int,
        x: Residual,
        keep: Keep | None,
        at_read: Callable[[Residual], Array] = lambda x: x,
    ) -> tuple[Residual, list[Part]]:
        """The residual stream after the layers [start, stop), and what is kept of them."""
        period, kept = len(self.stacks), list[Part]()

        def run_layer(number: int, x: Residual, later: Index = 0) -> tuple[Residual, Any]:
            x, row = layer(self._at(number, later), x)
            return x, keep(at_read(x), row) if keep else ()

        def step(carry: tuple[Index, Residual], _: None) -> tuple[tuple[Index, Residual], Any]:
            (later, x), trees = carry, []
            for number in looped[:period]:
                x, tree = run_layer(number, x, later)
                trees.append(tree)
            return (later + 1, x), trees

        if (repeats := (stop - start) // period) > 1:
            looped = range(start, start + repeats * period)
            (_, x), trees = jax.lax.scan(step, (jnp.int32(0), x), length=repeats)
            kept += [(looped[n::period], tree) for n, tree in enumerate(trees)]
            start = looped.stop
        for number in range(start, stop):
            x, tree = run_layer(number, x)
            kept.append(_alone(number, tree))
        return x, kept

    def _joined(self, kept: Sequence[Part]) -> Any:
        """What was kept of layers, in order. What layers of two kinds keep is a tuple by stack."""
        layers, trees = zip(*kept, strict=True)
        if len({jax.tree.structure(tree) for tree in trees}) == 1:
            order = np.argsort(np.concatenate(layers))
            joined = jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *trees)
            if (order == np.arange(len(order))).all():
                return joined
            return jax.tree.map(lambda a: a[order], joined)
        if isinstance(trees[0], tuple):
            parts = (zip(layers, part, strict=True) for part in zip(*trees, strict=True))
            return tuple(self._joined(list(part)) for part in parts)
        stacks = len(self.stacks)
        by_stack = ([part for part in kept if part[0][0] % stacks == n] for n in range(stacks))
        return tuple(self._joined(parts) for parts in by_stack)

    def _plain_layer(
        self,
        at: At,
        x: Residual,
        ropes: Ropes,
        delta_rule: Callable[[delta.Rule], delta.Result],
    ) -> tuple[Residual, Row]:
        layer, angles = self._layer(at), self._rope(at.number, ropes)
        row: Row
        if layer.of_delta:
            with jax.named_scope("delta"):
                inputs = layer.delta_inputs(x)
                rule = layer.delta_rule(x, inputs, lambda i, n: delta.shifted(inputs[i], n))
                outputs, updates = delta_rule(rule)
                mixed = x + layer.delta_output(outputs, x)
                row = delta.kept(inputs, rule, updates, delta.until_end(rule.decay))
        else:
            with jax.named_scope("attention"):
                keys, values = layer.keys_values(x, angles)
                queries = layer.queries(x, angles)
                logits = self._logits(jnp.einsum("CTKGH,CSKH->CKGTS", queries, keys, **F32))
                mask = self._mask(at.number, _distances(x.shape[1]))
                weights = jax.nn.softmax(logits, where=mask).astype(values.dtype)
                mixed = x + layer.output(jnp.einsum("CKGTS,CSKH->CTKGH", weights, values), x)
                row = KeyValues(keys=keys, values=values)
        with jax.named_scope("feed_forward"):
            added = layer.feed_forward(
                x if self.config.parallel else mixed, self._experts(layer, at)
            )
            return mixed + added, row

    def _response_layer(
        self,
        at: At,
        x: Residual,
        prefix: Kept,
        places: Places,
        ropes: Ropes,
        read: Int[Array, "C Y"] | None = None,
    ) -> tuple[Float[Array, "C U D"], Row]:
        """One layer behind a prefix: of the positions `read` of x, or of all of them.

        Returns the residual stream after it, and keys and values of all positions, each [C, T, K,
        H], or updates.
        """
        layer, angles = self._layer(at), self._rope(at.number, ropes)
        if isinstance(prefix, tuple):
            past = _entry(prefix[at.stack], at.entry)
        else:
            past = _entry(prefix, at.number)
        row: Row
        if layer.of_delta:
            with jax.named_scope("delta"):
                outputs, row = self._delta_behind(layer, x, past, places)
                if read is not None:
                    x, outputs = (_take(a, read) for a in (x, outputs))
                mixed = x + layer.delta_output(outputs, x)
        else:
            with jax.named_scope("attention"):
                keys, values = layer.keys_values(x, angles)
                query = places
                if read is not None:
                    x, angles, query = jax.tree.map(lambda a: _take(a, read), (x, angles, places))
                queries = layer.queries(x, angles)
                masks = self._response_masks(at.number, query, places, past.keys.shape[0])
                row, form = KeyValues(keys=keys, values=values), attention.form(self.platform)
                mixed = x + layer.output(form(queries, row, past, masks, self._logits), x)
        with jax.named_scope("feed_forward"):
            added = layer.feed_forward(
                x if self.config.parallel else mixed, self._experts(layer, at)
            )
            return mixed + added, row

    def _delta_behind(
        self, layer: Layer, x: Residual, past: Updates, places: Places
    ) -> tuple[Float[Array, "C T n v"], Updates]:
        """Outputs of a layer of the gated delta rule behind a prefix, and what it keeps."""
        inputs = layer.delta_inputs(x)
        rule = layer.delta_rule(
            x, inputs, lambda i, n: delta.behind_prefix(inputs[i], past.inputs[i], places, n)
        )
        _, see = self._response_masks(0, places, places, 0)
        return delta.behind(inputs, rule, past, places, see)

    def _experts(self, layer: Layer, at: At) -> OfExpert | None:
        return functools.partial(layer.experts.of, at.entry) if self.config.experts else None

    def _logits(self, dots: Array) -> Array:
        """Attention logits before the mask: scaled, and soft-capped if the model has a cap."""
        config = self.config
        logits = dots * (config.query_scale or config.head_size**-0.5)
        if config.attention_softcap is None:
            return logits
        return config.attention_softcap * jnp.tanh(logits / config.attention_softcap)

    def _mask(self, index: Index, distance: Int[Array, "..."]) -> Bool[Array, "..."]:
        """Keys that a query attends to in a layer, by the distance query - key in positions."""
        seen = distance >= 0
        config = self.config
        if config.window is None or not config.window_layers:
            return seen
        slides = np.asarray(config.window_layers)
        slides = slides[index] if isinstance(index, int) else jnp.asarray(slides)[index]
        return seen & ((distance < config.window) | ~slides)

    def _response_masks(
        self, index: Index, query: Places, row: Places, past: int
    ) -> tuple[Bool[Array, "C U P"], Bool[Array, "C U S"]]:
        """Masks of the prefix's `past` positions and the row's that a query attends to."""
        at, position = query.position[:, :, None], jnp.arange(past)
        on_prefix = self._mask(index, at - position) & (position < query.shared[:, :, None])
        on_row = self._mask(index, at - row.position[:, None])
        return on_prefix, on_row & (query.reply[:, :, None] == row.reply[:, None])

    def _scaled(self, x: Float[Array, "C T D"]) -> Residual:
        if self.config.embedding_scale:
            x = x * jnp.asarray(self.config.width**0.5, x.dtype)
        return x.astype(jnp.float32)

    def _placed(self, x: Residual, positions: Int[Array, "C T"]) -> Residual:
        """Embedded ids with the learned embedding of their positions, where the model has one."""
        if not self.config.learned_positions:
            return x
        return x + self.position_embedding[...][positions].astype(jnp.float32)

    def _angles(self, positions: Int[Array, "C T"]) -> Ropes:
        """The angles of each distinct rotary embedding of the layers."""
        ropes = []
        for rope in dict.fromkeys(self.config.layer_ropes):
            frequencies = jnp.asarray(inverse_frequencies(rope, self.config.rotated), jnp.float32)
            angles = positions[..., None].astype(jnp.float32) * frequencies
            cos, sin = jnp.cos(angles), jnp.sin(angles)
            if rope is not None and rope.attention_factor != 1:
                cos, sin = cos * rope.attention_factor, sin * rope.attention_factor
            ropes.append((cos, sin))
        return tuple(ropes)

    def _rope(self, index: Index, ropes: Ropes) -> Angles:
        """The angles of one layer."""
        kinds = list(dict.fromkeys(self.config.layer_ropes))
        of_layers = [kinds.index(rope) for rope in self.config.layer_ropes]
        if isinstance(index, int):
            return ropes[of_layers[index]]
        if len(ropes) == 1:
            return ropes[0]
        kind = jnp.asarray(of_layers)[index]
        return jax.tree.map(lambda *angles: jax.lax.select_n(kind, *angles), *ropes)


def behind(shared: Int[Array, "C"], positions: int) -> Places:
    """Places of rows with one reply each: `positions` behind the first `shared` of the prefix."""
    at = jnp.broadcast_to(shared[:, None], (shared.shape[0], positions))
    return Places(position=at + jnp.arange(positions), shared=at, reply=jnp.zeros_like(at))


def _take(x: Shaped[Array, "C T *D"], at: Int[Array, "C U"]) -> Shaped[Array, "C U *D"]:
    """The positions `at` of each row."""
    return jnp.take_along_axis(x, at.reshape(*at.shape, *[1] * (x.ndim - 2)), axis=1)


def _alone(number: int, kept: Any) -> Part:
    return range(number, number + 1), jax.tree.map(lambda a: a[None], kept)


def _entry(stacked: Any, index: Index) -> Any:
    """The arrays of one layer."""
    at = jax.lax.index_in_dim if isinstance(index, int) else jax.lax.dynamic_index_in_dim
    return jax.tree.map(lambda a: at(a, index, 0, False), stacked)


def _distances(positions: int) -> Int[Array, "T S"]:
    return jnp.arange(positions)[:, None] - jnp.arange(positions)


def _segments(depths: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of layers between consecutive depths."""
    return list(zip([0, *depths[:-1]], depths, strict=True))
