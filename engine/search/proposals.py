"""Candidates of a step: parents [A, T] in, sequences [A, C, T] out; pure functions of a key.

Candidates are sorted by the first position that they change, and how many begin where is static:
what stands before need not be computed again.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from engine.errors import AssayError


@dataclasses.dataclass(frozen=True)
class Plan:
    """Static: the first position that each candidate changes, ascending.

    rank: how many candidates before this one change the same position first.
    """

    first: tuple[int, ...]
    rank: tuple[int, ...]


def plan(free: Sequence[int], candidates: int, topk: int) -> Plan:
    """Spreads the candidates evenly over the free positions.

    Raises:
      AssayError: more candidates than there are proposals.
    """
    if candidates > topk * len(free):
        raise AssayError(
            f"candidates={candidates}; allowed: at most topk × free positions = {topk * len(free)}"
        )
    counts = [len(part) for part in np.array_split(np.arange(candidates), len(free))]
    first = [i for i, count in zip(free, counts, strict=True) for _ in range(count)]
    rank = [m for count in counts for m in range(count)]
    return Plan(tuple(first), tuple(rank))


def first_order_gain(
    slopes: Float[Array, "T V"],
    ids: Int[Array, "T"],
    allowed: Bool[Array, "V"],
    embedding: Array,
    distance: float,
) -> Float[Array, "T V"]:
    """What the objective gains to first order if position t becomes v; -inf where it may not.

    distance: weight of |e_v - e_t|, which is taken off: far tokens are where the first order errs.
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


def by_position(
    key: Array,
    ids: Int[Array, "T"],
    gain: Float[Array, "T V"],
    free: Sequence[int],
    plan: Plan,
    topk: int,
    temperature: float,
    replace: Int[Array, ""],
    most: int,
) -> Int[Array, "C T"]:
    """Replaces tokens by draws from the top-k of their positions.

    A candidate's first change is drawn without replacement among the candidates that share its
    position: probability falls with exp(gain / (temperature × standard deviation)). It changes 1
    to `replace` tokens (uniform); `most` is the static bound of `replace`.
    """
    order_key, count_key, place_key, token_key = jax.random.split(key, 4)
    value, token = jax.lax.top_k(gain, topk)  # [T, K]
    usable = jnp.isfinite(value)
    spread = jnp.std(value, axis=1, where=usable, keepdims=True)
    token = jnp.where(usable, token, ids[:, None])  # where too few may stand: no change
    level = jnp.where(usable, value / (temperature * spread + 1e-30), -jnp.inf)
    noise = jax.random.gumbel(order_key, level.shape)
    token = jnp.take_along_axis(token, jnp.argsort(-(level + noise), axis=1), axis=1)

    first, rank = np.array(plan.first), np.array(plan.rank)
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
    """The best pairs of position and token by the first-order gain, one change each."""
    on_free = gain[np.array(free)]
    value, pair = jax.lax.top_k(on_free.reshape(-1), candidates)
    place, token = jnp.array(free)[pair // gain.shape[1]], pair % gain.shape[1]
    token = jnp.where(jnp.isfinite(value), token, ids[place])
    return jnp.where(jnp.arange(ids.shape[0]) == place[:, None], token[:, None], ids)


def uniform_gain(
    key: Array, ids: Int[Array, "T"], allowed: Bool[Array, "V"]
) -> Float[Array, "T V"]:
    """Noise in the place of a gain: mutations know nothing."""
    noise = jax.random.uniform(key, (ids.shape[0], allowed.shape[0]))
    gain = jnp.where(allowed, noise, -jnp.inf)
    return gain.at[jnp.arange(ids.shape[0]), ids].set(-jnp.inf)


def fresh(
    key: Array,
    ids: Int[Array, "T"],
    allowed: Bool[Array, "V"],
    free: Sequence[int],
    candidates: int,
) -> Int[Array, "C T"]:
    """Uniform sequences of allowed tokens; fixed positions stay."""
    shape = (candidates, ids.shape[0])
    count = allowed.sum()
    drawn = jnp.argsort(~allowed, stable=True)[jax.random.randint(key, shape, 0, count)]
    return jnp.where(np.isin(np.arange(ids.shape[0]), free), drawn, ids)
