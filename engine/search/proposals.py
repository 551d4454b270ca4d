"""The candidates of a search's step: by gradient, near the parent, or all new; merged changes."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from engine.errors import AssayError
from engine.search.passes import fitness
from engine.settings import SearchSettings
from engine.types import Array


def first_changes(settings: SearchSettings) -> tuple[int, ...]:
    """The first position that each candidate may change [C], ascending; static under jit.

    How many candidates change which position first is static, so that the positions before it are
    not computed again. The distribution is even and symmetric: the first and the last candidate,
    the second and the last but one, and so on, leave about as many positions to compute (rows of
    two: `passes.pack`).

    Raises:
      AssayError: more candidates than pairs of position and token.
    """
    free, candidates = settings.free, settings.candidates
    if settings.method not in ("gcg", "mutate"):
        return free[:1] * candidates
    if candidates > settings.topk * len(free):
        raise AssayError(
            f"candidates={candidates}; allowed: at most topk × free positions = "
            f"{settings.topk * len(free)}"
        )
    index = (2 * np.arange(candidates) + 1) * len(free) // (2 * candidates)
    return tuple(np.array(free)[index].tolist())


def whole_replies(settings: SearchSettings) -> tuple[int, ...]:
    """The same for the merged candidates of a step, which may change anywhere."""
    return settings.free[:1] * max(0, settings.merge - 1)


def replacements(step: Array, planned: Array, settings: SearchSettings) -> Int[Array, ""]:
    """The most tokens that a candidate changes in step `step` of `planned` ones."""
    first, last = settings.replace_first, settings.replace_last
    done = jnp.minimum(step / jnp.maximum(1, planned - 1), 1.0)
    return jnp.round(first + (last - first) * done).astype(jnp.int32)


def propose(
    step: Array,
    parents: Int[Array, "A T"],
    slopes: Float[Array, "A T V"] | None,
    keys: Array,
    noise_keys: Array,
    allowed: Bool[Array, "V"],
    planned: Array,
    embedding: Array,
    *,
    settings: SearchSettings,
    shards: int = 1,
) -> Int[Array, "A C T"]:
    """The candidates of step `step` of `planned` ones: by gradient, near the parent, or all new.

    Without `slopes` they are random; each attempt has a key for them, and a noise key for what
    stands in place of a gradient. The embedding is read if `settings.distance`. The vocabulary is
    divided over `shards` devices.
    """
    replace = replacements(step, planned, settings)

    def of_attempt(key: Array, noise_key: Array, ids: Array, slopes: Array | None) -> Array:
        if settings.method == "random":
            return fresh(key, ids, allowed, settings)
        if slopes is None:
            gain = uniform_gain(noise_key, ids, allowed)
        else:
            gain = first_order_gain(slopes, ids, allowed, embedding, settings.distance)
        if settings.method == "paper":
            return best_pairs(ids, gain, settings.free, settings.candidates)
        return by_position(key, ids, gain, replace, settings, shards)

    return jax.vmap(of_attempt)(keys, noise_keys, parents, slopes)


def first_order_gain(
    slopes: Float[Array, "T V"],
    ids: Int[Array, "T"],
    allowed: Bool[Array, "V"],
    embedding: Array,
    distance: float,
) -> Float[Array, "T V"]:
    """First-order change of the objective if position t becomes token v; -inf if it may not.

    `slopes` are with respect to the one-hot rows. `distance` weighs the penalty |e_v - e_t|, since
    the first order errs for distant tokens (Faster-GCG).
    """
    here = jnp.arange(ids.shape[0])
    gain = slopes - slopes[here, ids][:, None]
    if distance:
        rows = embedding.astype(jnp.float32)
        replaced = rows[ids]
        squares = jnp.square(rows).sum(-1)
        apart = squares[ids][:, None] + squares - 2 * jnp.einsum("TD,VD->TV", replaced, rows)
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
    replace: Int[Array, ""],
    settings: SearchSettings,
    shards: int = 1,
) -> Int[Array, "C T"]:
    """Replaces 1 to `replace` tokens by draws from the top-k tokens of their positions.

    First changes are drawn without replacement among the candidates that share a position, with
    probabilities proportional to exp(gain / (temperature × standard deviation of the gain)).
    """
    order_key, count_key, place_key, token_key = jax.random.split(key, 4)
    value, token = best_tokens(gain, settings.topk, shards)
    usable = jnp.isfinite(value)
    spread = jnp.std(value, axis=1, where=usable, keepdims=True)
    token = jnp.where(usable, token, ids[:, None])  # fewer than topk tokens allowed: no change
    # Of equal gains the spread is 0, and inf × 0 is undefined.
    temperature = settings.temperature
    scaled = 0.0 if math.isinf(temperature) else value / (temperature * spread + 1e-30)
    level = jnp.where(usable, scaled, -jnp.inf)
    noise = jax.random.gumbel(order_key, level.shape)
    token = jnp.take_along_axis(token, jnp.argsort(-(level + noise), axis=1), axis=1)

    first = np.array(first_changes(settings))
    rank = np.arange(len(first)) - np.searchsorted(first, first)  # among those of one position
    candidates, length, free = len(first), ids.shape[0], settings.free
    changed = jnp.arange(length) == first[:, None]  # [C, T]
    proposed = jnp.broadcast_to(token[first, rank][:, None], changed.shape)
    if min(max(settings.replace_first, settings.replace_last), len(free)) > 1:
        more = jax.random.randint(count_key, (candidates, 1), 0, replace)
        eligible = np.isin(np.arange(length), free) & (np.arange(length) > first[:, None])
        draw = jnp.where(eligible, jax.random.uniform(place_key, changed.shape), jnp.inf)
        place = jnp.argsort(jnp.argsort(draw, axis=1), axis=1)
        extra = eligible & (place < more)
        index = jax.random.randint(token_key, changed.shape, 0, settings.topk)
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
    key: Array, ids: Int[Array, "T"], allowed: Bool[Array, "V"], settings: SearchSettings
) -> Int[Array, "C T"]:
    """Sequences of uniformly drawn allowed tokens; fixed positions keep the parent's tokens."""
    shape = (settings.candidates, ids.shape[0])
    count = allowed.sum()
    drawn = jnp.argsort(~allowed, stable=True)[jax.random.randint(key, shape, 0, count)]
    return jnp.where(np.isin(np.arange(ids.shape[0]), settings.free), drawn, ids)


def merge(
    parents: Int[Array, "A T"],
    ids: Int[Array, "A C T"],
    rewards: Float[Array, "A C"],
    *,
    settings: SearchSettings,
) -> Int[Array, "A _ T"]:
    """The changes of the best two, three, … `settings.merge` candidates of each parent."""
    _, order = jax.lax.top_k(fitness(rewards, settings.target), settings.merge)
    return jax.vmap(merged)(parents, jnp.take_along_axis(ids, order[..., None], axis=1))


def merged(parent: Int[Array, "T"], best: Int[Array, "B T"]) -> Int[Array, "_ T"]:
    """The changes of the best two, three, … candidates of a parent in one sequence [B - 1, T].

    Where several change a position, the worst of them decides, as in I-GCG (Jia et al. 2024).
    """

    def add(so_far: Array, row: Array) -> tuple[Array, Array]:
        joined = jnp.where(row == parent, so_far, row)
        return joined, joined

    return jax.lax.scan(add, best[0], best[1:])[1]
