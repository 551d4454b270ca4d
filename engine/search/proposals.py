"""What a step of a search proposes, of its A parents: the ids of C candidates each.

`gcg` replaces a token by one of those with the largest first-order gain at a position, and then
tries the changes of its best candidates together; `paper` proposes the best pairs of position and
token; `random` draws new replies.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from engine.errors import AssayError
from engine.settings import SearchSettings
from engine.types import Array

UNKNOWN = -np.inf  # reward of a sequence that was not scored
_MERGED = 7  # of `gcg`, the best candidates whose changes are tried together, at most
# Of `paper`: the weight of the distance between embeddings, and the reward at which it aims.
_DISTANCE, _AIM = 4.5, 30.0


def first_changes(settings: SearchSettings) -> tuple[int, ...]:
    """The first position that each candidate may change [C], ascending; static under jit.

    How many candidates change which position first is static, so that the positions before it are
    not computed again. The distribution is even and symmetric: the first and the last candidate,
    the second and the last but one, and so on, leave about as many positions to compute (rows of
    two: `objective.pack`).

    Raises:
      AssayError: more candidates than pairs of position and token.
    """
    length, candidates = settings.length, settings.candidates
    if settings.method != "gcg":
        return (0,) * candidates
    if candidates > settings.topk * length:
        raise AssayError(
            f"candidates={candidates}; allowed: at most topk × length = {settings.topk * length}"
        )
    return tuple(((2 * np.arange(candidates) + 1) * length // (2 * candidates)).tolist())


def whole_replies(settings: SearchSettings) -> tuple[int, ...]:
    """The first position of each merged candidate of a step: all may change."""
    return (0,) * max(0, merged_count(settings) - 1)


def merged_count(settings: SearchSettings) -> int:
    """Best candidates of a step whose changes are tried together (I-GCG); 0 or at least 2."""
    count = min(_MERGED, settings.candidates) if settings.method == "gcg" else 0
    return count if count > 1 else 0


def propose(
    parents: Int[Array, "A T"],
    rewards: Float[Array, "A"],
    slopes: Float[Array, "A T V"] | None,
    keys: Array,
    allowed: Bool[Array, "V"],
    embedding: Array,
    settings: SearchSettings,
    shards: int = 1,
) -> Int[Array, "A C T"]:
    """The candidates of a step: by gradient, or without `slopes` all new.

    Each attempt has a key for them. The embedding and the parents' signed rewards are read by the
    paper's method. The vocabulary is divided over `shards` devices.
    """

    def of_attempt(key: Array, ids: Array, reward: Array, slopes: Array | None) -> Array:
        if slopes is None:
            return fresh(key, allowed, settings)
        if settings.method == "paper":
            # Of minus the squared distance to the aim. The first order errs for distant tokens
            # (Faster-GCG).
            gain = first_order_gain(2 * (_AIM - reward) * slopes, ids, allowed)
            gain -= _DISTANCE * distances(ids, embedding)
            return best_pairs(ids, gain, settings.candidates)
        gain = first_order_gain(slopes, ids, allowed)
        return by_position(key, ids, gain, settings, shards)

    return jax.vmap(of_attempt)(keys, parents, rewards, slopes)


def first_order_gain(
    slopes: Float[Array, "T V"], ids: Int[Array, "T"], allowed: Bool[Array, "V"]
) -> Float[Array, "T V"]:
    """First-order change of the objective if position t becomes token v; -inf if it may not.

    `slopes` are with respect to the one-hot rows.
    """
    here = jnp.arange(ids.shape[0])
    gain = slopes - slopes[here, ids][:, None]
    return jnp.where(allowed, gain, -jnp.inf).at[here, ids].set(-jnp.inf)


def distances(ids: Int[Array, "T"], embedding: Array) -> Float[Array, "T V"]:
    """Euclidean distance from the embedding of each token of a sequence to those of all tokens."""
    rows = embedding.astype(jnp.float32)
    squares = jnp.square(rows).sum(-1)
    apart = squares[ids][:, None] + squares - 2 * jnp.einsum("TD,VD->TV", rows[ids], rows)
    return jnp.sqrt(jnp.maximum(apart, 0))


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
    per_shard = tokens // shards
    value, token = jax.lax.top_k(gain.reshape(positions, shards, per_shard), min(topk, per_shard))
    token += per_shard * jnp.arange(shards)[:, None]
    value, place = jax.lax.top_k(value.reshape(positions, -1), topk)
    return value, jnp.take_along_axis(token.reshape(positions, -1), place, axis=1)


def by_position(
    key: Array,
    ids: Int[Array, "T"],
    gain: Float[Array, "T V"],
    settings: SearchSettings,
    shards: int = 1,
) -> Int[Array, "C T"]:
    """Replaces one token by a draw from the top-k tokens of its position.

    They are drawn uniformly, without replacement among the candidates that share a position.
    """
    value, token = best_tokens(gain, settings.topk, shards)
    usable = jnp.isfinite(value)
    token = jnp.where(usable, token, ids[:, None])  # fewer than topk tokens allowed: no change
    noise = jax.random.gumbel(jax.random.split(key, 4)[0], usable.shape)
    level = jnp.where(usable, noise, -jnp.inf)
    token = jnp.take_along_axis(token, jnp.argsort(-level, axis=1), axis=1)
    first = np.array(first_changes(settings))
    rank = np.arange(len(first)) - np.searchsorted(first, first)  # among those of one position
    changed = jnp.arange(ids.shape[0]) == first[:, None]  # [C, T]
    return jnp.where(changed, token[first, rank][:, None], ids)


def best_pairs(
    ids: Int[Array, "T"], gain: Float[Array, "T V"], candidates: int
) -> Int[Array, "C T"]:
    """Candidates with one change each: the best pairs of position and token by gain."""
    value, pair = jax.lax.top_k(gain.reshape(-1), candidates)
    place, token = pair // gain.shape[1], pair % gain.shape[1]
    token = jnp.where(jnp.isfinite(value), token, ids[place])
    return jnp.where(jnp.arange(ids.shape[0]) == place[:, None], token[:, None], ids)


def fresh(key: Array, allowed: Bool[Array, "V"], settings: SearchSettings) -> Int[Array, "C T"]:
    """Sequences of uniformly drawn allowed tokens."""
    shape = (settings.candidates, settings.length)
    numbers = jax.random.randint(key, shape, 0, allowed.sum())
    return jnp.argsort(~allowed, stable=True)[numbers]


def merge(
    parents: Int[Array, "A T"], ids: Int[Array, "A C T"], gains: Float[Array, "A C"], count: int
) -> Int[Array, "A _ T"]:
    """The changes of the best two, three, … `count` candidates of each parent in one sequence.

    Where several change a position, the worst of them decides, as in I-GCG (Jia et al. 2024).
    """

    def of_attempt(parent: Int[Array, "T"], best: Int[Array, "B T"]) -> Int[Array, "_ T"]:
        def add(so_far: Array, row: Array) -> tuple[Array, Array]:
            joined = jnp.where(row == parent, so_far, row)
            return joined, joined

        return jax.lax.scan(add, best[0], best[1:])[1]

    _, order = jax.lax.top_k(gains, count)
    return jax.vmap(of_attempt)(parents, jnp.take_along_axis(ids, order[..., None], axis=1))


def with_merged(
    ids: Int[Array, "A C T"],
    rewards: Float[Array, "A C"],
    more: Int[Array, "A M T"],
    more_rewards: Float[Array, "A M"],
) -> tuple[Array, Array]:
    """Candidates, then merged ones; a repeated one gets the reward UNKNOWN: never kept."""
    ids = jnp.concatenate([ids, more], axis=1)
    same = (ids[:, :, None] == ids[:, None]).all(-1)
    repeated = jnp.tril(same, -1).any(2)[:, -more.shape[1] :]
    more_rewards = jnp.where(repeated, UNKNOWN, more_rewards)
    return ids, jnp.concatenate([rewards, more_rewards], axis=1)
