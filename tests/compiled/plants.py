"""The faults that the tests of compiled programs look for."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

from engine.models import attention, decoder
from engine.models.decoder import Layer, Param

_jit, _layer = jax.jit, decoder.Decoder._layer


class FaultyLayer(Layer):
    """Weights in orders that a TPU copies, products in float32, and sums over `model` in float32.

    Activations and weights of gate and up are widened together, of `down` the stack of weights.
    """

    def __init__(self, config, dtype, sums):
        super().__init__(config, dtype, decoder.FLOAT32)
        self.q = decoder._zeros(config, "LDNH", dtype)
        self.k = decoder._zeros(config, "LDKH", dtype)
        self.v = decoder._zeros(config, "LDKH", dtype)

    def _product(self, axes: str, x: jax.Array, weight: Param) -> jax.Array:
        if weight[...].ndim == 3:
            by_head = jnp.einsum("CTD,DNH->CTNH", x, weight[...])
            return by_head.reshape(*x.shape[:2], -1)
        wide = x.astype(jnp.float32), weight[...].astype(jnp.float32)
        return jnp.einsum(axes, *wide).astype(x.dtype)

    def _summed(self, axes: str, x: jax.Array, weight: Param) -> jax.Array:
        if axes != "CTF,FD->CTD":
            return super()._summed(axes, x, weight)
        contracted = (((2,), (0,)), ((), ()))
        return jax.lax.dot_general(x, weight[...], contracted, preferred_element_type=jnp.float32)


def _with_wide_stack(self: decoder.Decoder, index: decoder.Index) -> Layer:
    layer = _layer(self, index)
    wide = jax.lax.optimization_barrier(self.layers.down[...].astype(jnp.float32))
    layer.down.set_value(jax.lax.dynamic_index_in_dim(wide, index, 0, False))
    return layer


# Any: arguments and results of jax.jit.
def _keeping_arguments(function: Any, donate_argnums: Any = (), **options: Any) -> Any:
    return _jit(function, **options)


@contextlib.contextmanager
def planted() -> Iterator[None]:
    """Decoders made within it have such layers and own products as matmuls; nothing is donated."""
    with (
        mock.patch.object(decoder, "Layer", FaultyLayer),
        mock.patch.object(decoder.Decoder, "_layer", _with_wide_stack),
        mock.patch.object(attention, "_FEW", 0),
        mock.patch.object(jax, "jit", _keeping_arguments),
    ):
        yield
