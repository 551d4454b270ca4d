"""A layer with the faults that the tests of compiled programs look for."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax.numpy as jnp

from engine.models import decoder
from engine.models.decoder import Array, Layer, Param


class FaultyLayer(Layer):
    """Weights in orders that a TPU copies, and gate and up multiplied in float32."""

    def __init__(self, config, dtype, sums):
        super().__init__(config, dtype, sums)
        self.q = decoder._zeros(config, "LDNH", dtype)
        self.k = decoder._zeros(config, "LDKH", dtype)
        self.v = decoder._zeros(config, "LDKH", dtype)

    def _product(self, axes: str, x: Array, weight: Param) -> Array:
        if weight[...].ndim == 3:
            by_head = jnp.einsum("CTD,DNH->CTNH", x, weight[...])
            return by_head.reshape(*x.shape[:2], -1)
        if axes != "CTD,DF->CTF":
            return super()._product(axes, x, weight)
        wide = x.astype(jnp.float32), weight[...].astype(jnp.float32)
        return jnp.einsum(axes, *wide).astype(x.dtype)


@contextmanager
def planted() -> Iterator[None]:
    """Decoders that are made within it have such layers."""
    right = decoder.Layer
    decoder.Layer = FaultyLayer
    try:
        yield
    finally:
        decoder.Layer = right
