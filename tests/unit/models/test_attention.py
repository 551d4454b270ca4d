"""Both forms of attention against one softmax over all keys, written plainly in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.models import attention
from engine.types import KeyValues

C, U, K, G, H, P = 5, 2, 3, 2, 4, 7


def drawn(positions, seed=0):
    """Queries, own keys and values, the prefix's, and masks under which a query sees itself."""
    rng = np.random.default_rng(seed)
    queries = rng.standard_normal((C, U, K, G, H))
    own = [rng.standard_normal((C, positions, K, H)) for _ in range(2)]
    past = [rng.standard_normal((P, K, H)) for _ in range(2)]
    see_prefix, see_own = rng.random((C, U, P)) < 0.6, rng.random((C, U, positions)) < 0.6
    see_own[:, :, 0] = True
    return queries, own, past, (see_prefix, see_own)


def plain(queries, own, past, masks, cap=1.5):
    mixed = np.empty_like(queries)
    for c, u, k, g in np.ndindex(C, U, K, G):
        keys, values = (
            np.concatenate([p[:, k], o[c, :, k]]) for p, o in zip(past, own, strict=True)
        )
        logits = cap * np.tanh(keys @ queries[c, u, k, g] / cap)
        weights = np.exp(logits) * np.concatenate([masks[0][c, u], masks[1][c, u]])
        mixed[c, u, k, g] = weights @ values / weights.sum()
    return mixed


def computed(form, queries, own, past, masks, cap=1.5):
    pairs = (
        KeyValues(keys=jnp.asarray(keys, jnp.float32), values=jnp.asarray(values, jnp.float32))
        for keys, values in (own, past)
    )
    arguments = jnp.asarray(queries, jnp.float32), *pairs, tuple(map(jnp.asarray, masks))
    with jax.default_matmul_precision("highest"):
        return jax.jit(lambda *of: form(*of, lambda dots: cap * jnp.tanh(dots / cap)))(*arguments)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("positions", [1, 4, 9])
def test_a_form_is_one_softmax_over_the_prefix_and_the_own_positions(positions, platform):
    given = drawn(positions)
    mixed = computed(attention.form(platform), *given)
    np.testing.assert_allclose(mixed, plain(*given), rtol=2e-5, atol=2e-6)
