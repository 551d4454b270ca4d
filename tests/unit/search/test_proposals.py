"""How a step proposes candidates: gains, and the tokens drawn by them."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.search import proposals


def test_the_distance_between_embeddings_is_taken_off_the_gain():
    rng = np.random.default_rng(0)
    slopes, embedding = (rng.standard_normal(s).astype(np.float32) for s in ((2, 9), (9, 4)))
    ids, allowed = np.array([3, 7]), np.arange(9) != 5
    gain = proposals.first_order_gain(slopes, ids, allowed, jnp.asarray(embedding), 4.5)
    for t, own in enumerate(ids):
        for v in range(9):
            apart = np.linalg.norm(embedding[v] - embedding[own])
            expected = slopes[t, v] - slopes[t, own] - 4.5 * apart
            expected = -np.inf if v in (5, own) else expected
            assert gain[t, v] == pytest.approx(expected, rel=1e-4)


@functools.cache
def proposer(topk, replace, free):
    plan = proposals.spread_first_changes(free, 24, topk)

    def draw(key, ids, gain):
        return proposals.by_position(
            key, ids, gain, free, plan, topk, 1.0, jnp.asarray(replace), replace
        )

    return jax.jit(draw), plan


@pytest.mark.parametrize("usable", [1, 4])
def test_equal_gains_are_drawn_uniformly_too(usable):
    """The default temperature is infinite, and the spread of equal gains is 0."""
    ids, plan = jnp.zeros(2, jnp.int32), proposals.spread_first_changes((0, 1), 2, 4)
    gain = jnp.full((2, 9), -jnp.inf).at[:, 1 : 1 + usable].set(0.5)
    drawn = [
        proposals.by_position(
            jax.random.key(seed), ids, gain, (0, 1), plan, 4, math.inf, jnp.asarray(1), 1
        )
        for seed in range(8)
    ]
    tokens = {int(reply.max()) for replies in drawn for reply in replies}
    assert tokens <= set(range(1, 1 + usable)) and (len(tokens) > 1) == (usable > 1)


@pytest.mark.parametrize("replace", [1, 3])
@pytest.mark.parametrize("free", [(0, 1, 2, 3), (1, 3)])
def test_proposals_change_allowed_tokens_at_free_positions_from_their_first_on(replace, free):
    draw, plan = proposer(30, replace, free)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        allowed = rng.random(50) < 0.7
        ids = rng.choice(np.flatnonzero(allowed), 4).astype(np.int32)
        slopes = jnp.asarray(rng.standard_normal((4, 50)), jnp.float32)
        gain = proposals.first_order_gain(slopes, ids, allowed, jnp.zeros((50, 2)), 0.0)
        found = np.asarray(draw(jax.random.key(seed), ids, gain))
        assert allowed[found].all()
        changed = found != ids
        assert set(np.flatnonzero(changed.any(0))) <= set(free)
        assert (changed.sum(1) <= replace).all()
        assert (changed.argmax(1) == plan.position).all()
        if replace == 1:
            assert len(np.unique(found, axis=0)) == len(found)
