"""The shapes in the annotations of engine.models are checked while tests run."""

import jax.numpy as jnp
import jaxtyping
import pytest

from engine.models.decoder import rms_norm


def test_an_array_of_another_shape_than_annotated_is_refused():
    with pytest.raises(jaxtyping.TypeCheckError):
        rms_norm(jnp.ones((2, 3)), jnp.ones(4), 1e-5)
