"""A layer with the faults that the tests of compiled programs look for."""

from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

from engine.models import decoder
from engine.models.decoder import Layer, Param


class FaultyLayer(Layer):
    """Weights in orders that a TPU copies, and gate and up multiplied in float32."""

    def __init__(self, config, dtype, sums):
        super().__init__(config, dtype, sums)
        self.q = decoder._zeros(config, "LDNH", dtype)
        self.k = decoder._zeros(config, "LDKH", dtype)
        self.v = decoder._zeros(config, "LDKH", dtype)

    def _product(self, axes: str, x: jax.Array, weight: Param) -> jax.Array:
        if weight[...].ndim == 3:
            by_head = jnp.einsum("CTD,DNH->CTNH", x, weight[...])
            return by_head.reshape(*x.shape[:2], -1)
        wide = x.astype(jnp.float32), weight[...].astype(jnp.float32)
        return jnp.einsum(axes, *wide).astype(x.dtype)


def planted() -> AbstractContextManager[Any]:
    """Decoders that are made within it have such layers."""
    return mock.patch.object(decoder, "Layer", FaultyLayer)
