"""A mixture of experts: each position passes the few feed-forwards that a router chooses for it.

Pairs of a position and an expert are sorted by expert and cut into blocks of one size, each of one
expert, which a loop computes one after the other. So no product is computed that is not used, but
for the rest of each expert's last block, and shapes do not depend on what the router chooses. A
loop over all experts with all positions takes `experts / experts_per_token` times as many products,
and `jax.lax.ragged_dot` more than that where it has no kernel of its own, as on a CPU.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# (number of an expert, positions) -> what it makes of them. Any: a traced integer.
Network = Callable[[Any, Float[Array, "rows D"]], Float[Array, "rows D"]]


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
