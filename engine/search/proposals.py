"""Candidates of a step, as pure functions: one parent [T] gives sequences [C, T].

Candidates are sorted by the first position that they change. How many candidates change which
position first is static, so that the positions before it are not computed again.
"""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from engine.errors import AssayError


@dataclasses.dataclass(frozen=True)
class FirstChanges:
    """The first position that each candidate changes; static under jit.

    Attributes:
      position: the position, ascending over the candidates.
      rank: how many earlier candidates change the same position first.
    """

    position: tuple[int, ...]
    rank: tuple[int, ...]


def spread_first_changes(free: Sequence[int], candidates: int, topk: int) -> FirstChanges:
    """Distributes the candidates evenly over the free positions.

    The distribution is symmetric: the first and the last candidate, the second and the last but
    one, and so on, leave about as many positions to compute (rows of two: `passes.pack`).

    Args:
      free: positions that may change, ascending.
      candidates: how many candidates there are.
      topk: tokens that may be proposed per position.

    Raises:
      AssayError: more candidates than pairs of position and token.
    """
    if candidates > topk * len(free):
        raise AssayError(
            f"candidates={candidates}; allowed: at most topk × free positions = {topk * len(free)}"
        )
    index = (2 * np.arange(candidates) + 1) * len(free) // (2 * candidates)
    position = np.array(free)[index].tolist()
    rank = (np.arange(candidates) - np.searchsorted(index, index)).tolist()
    return FirstChanges(tuple(position), tuple(rank))


def first_order_gain(
    slopes: Float[Array, "T V"],
    ids: Int[Array, "T"],
    allowed: Bool[Array, "V"],
    embedding: Array,
    distance: float,
) -> Float[Array, "T V"]:
    """First-order change of the objective if position t becomes token v; -inf if it may not.

    Args:
      slopes: gradient of the objective with respect to the one-hot rows.
      ids: the parent.
      allowed: tokens that may be used.
      embedding: [V, D].
      distance: weight of the penalty |e_v - e_t|, since the first order errs for distant tokens
        (Faster-GCG); 0: none.
    """
    here = jnp.arange(ids.shape[0])
    gain = slopes - slopes[here, ids][:, None]
    if distance:
        rows = embedding.astype(jnp.float32)
        own = rows[ids]
        squares = jnp.square(rows).sum(-1)
        apart = squares[ids][:, None] + squares - 2 * jnp.einsum("TD,VD->TV", own, rows)
        gain -= distance * jnp.sqrt(jnp.maximum(apart, 0))
    gain = jnp.where(allowed, gain, -jnp.inf)
    return gain.at[here, ids].set(-jnp.inf)


def uniform_gain(
    key: Array, ids: Int[Array, "T"], allowed: Bool[Array, "V"]
) -> Float[Array, "T V"]:
    """Uniform noise in place of a gain, for random mutations; -inf where no token may be used."""
    noise = jax.random.uniform(key, (ids.shape[0], allowed.shape[0]))
    gain = jnp.where(allowed, noise, -jnp.inf)
    return gain.at[jnp.arange(ids.shape[0]), ids].set(-jnp.inf)


def best_tokens(
    gain: Float[Array, "T V"], topk: int, shards: int
) -> tuple[Float[Array, "T K"], Int[Array, "T K"]]:
    """Gains and ids of the `topk` tokens of each position, best first, of equal ones by id.

    Each device finds the best of its tokens, so that only those are sent to the others.
    """
    positions, tokens = gain.shape
    if shards == 1 or tokens % shards:
        value, token = jax.lax.top_k(gain, topk)
        return value, token
    each = tokens // shards
    value, token = jax.lax.top_k(gain.reshape(positions, shards, each), min(topk, each))
    token += each * jnp.arange(shards)[:, None]
    value, place = jax.lax.top_k(value.reshape(positions, -1), topk)
    return value, jnp.take_along_axis(token.reshape(positions, -1), place, axis=1)


def by_position(
    key: Array,
    ids: Int[Array, "T"],
    gain: Float[Array, "T V"],
    free: Sequence[int],
    changes: FirstChanges,
    topk: int,
    temperature: float,
    replace: Int[Array, ""],
    most: int,
    shards: int = 1,
) -> Int[Array, "C T"]:
    """Replaces tokens by draws from the top-k tokens of their positions.

    First changes are drawn without replacement among the candidates that share a position, with
    probabilities proportional to exp(gain / (temperature × standard deviation of the gain)).

    Args:
      key: one JAX key.
      ids: the parent.
      gain: score of each token at each position; -inf where it may not be used.
      free: positions that may change, ascending.
      changes: the first position that each candidate changes.
      topk: tokens per position that may be proposed.
      temperature: in standard deviations of the gain; inf draws uniformly from the top-k.
      replace: a candidate changes 1 to `replace` tokens, uniformly.
      most: static upper bound of `replace`.
      shards: devices that the vocabulary is divided over.
    """
    order_key, count_key, place_key, token_key = jax.random.split(key, 4)
    value, token = best_tokens(gain, topk, shards)
    usable = jnp.isfinite(value)
    spread = jnp.std(value, axis=1, where=usable, keepdims=True)
    token = jnp.where(usable, token, ids[:, None])  # fewer than topk tokens allowed: no change
    # Of equal gains the spread is 0, and inf × 0 is undefined.
    scaled = 0.0 if math.isinf(temperature) else value / (temperature * spread + 1e-30)
    level = jnp.where(usable, scaled, -jnp.inf)
    noise = jax.random.gumbel(order_key, level.shape)
    token = jnp.take_along_axis(token, jnp.argsort(-(level + noise), axis=1), axis=1)

    first, rank = np.array(changes.position), np.array(changes.rank)
    candidates, length = len(first), ids.shape[0]
    changed = jnp.arange(length) == first[:, None]  # [C, T]
    proposed = jnp.broadcast_to(token[first, rank][:, None], changed.shape)
    if most > 1:
        more = jax.random.randint(count_key, (candidates, 1), 0, replace)
        eligible = np.isin(np.arange(length), free) & (np.arange(length) > first[:, None])
        draw = jnp.where(eligible, jax.random.uniform(place_key, changed.shape), jnp.inf)
        place = jnp.argsort(jnp.argsort(draw, axis=1), axis=1)
        extra = eligible & (place < more)
        index = jax.random.randint(token_key, changed.shape, 0, topk)
        proposed = jnp.where(extra, token[jnp.arange(length), index], proposed)
        changed |= extra
    return jnp.where(changed, proposed, ids)


def best_pairs(
    ids: Int[Array, "T"], gain: Float[Array, "T V"], free: Sequence[int], candidates: int
) -> Int[Array, "C T"]:
    """Candidates with one change each: the best pairs of position and token by gain."""
    on_free = gain[np.array(free)]
    value, pair = jax.lax.top_k(on_free.reshape(-1), candidates)
    place, token = jnp.array(free)[pair // gain.shape[1]], pair % gain.shape[1]
    token = jnp.where(jnp.isfinite(value), token, ids[place])
    return jnp.where(jnp.arange(ids.shape[0]) == place[:, None], token[:, None], ids)


def fresh(
    key: Array,
    ids: Int[Array, "T"],
    allowed: Bool[Array, "V"],
    free: Sequence[int],
    candidates: int,
) -> Int[Array, "C T"]:
    """Sequences of uniformly drawn allowed tokens; fixed positions keep the parent's tokens."""
    shape = (candidates, ids.shape[0])
    count = allowed.sum()
    drawn = jnp.argsort(~allowed, stable=True)[jax.random.randint(key, shape, 0, count)]
    return jnp.where(np.isin(np.arange(ids.shape[0]), free), drawn, ids)


def merged(parent: Int[Array, "T"], best: Int[Array, "B T"]) -> Int[Array, "_ T"]:
    """The changes of the best two, three, … candidates of a parent together [B - 1, T].

    Where several change a position, the worst of them decides, as in I-GCG (Jia et al. 2024).
    """

    def add(so_far: Array, row: Array) -> tuple[Array, Array]:
        joined = jnp.where(row == parent, so_far, row)
        return joined, joined

    return jax.lax.scan(add, best[0], best[1:])[1]
