"""The step of a search: gradient (`passes`), proposals, scores (`passes`), buffer.

A attempts (directions × restarts) run at once, each with a sign, key and buffer. Rewards in
this module are signed: higher is better in both directions. `expand` is the whole step until its
candidates are scored; `admit` keeps the best. The host either runs many steps in one dispatch, or
checks the texts of the ranked candidates between the two halves.
"""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int

from engine import mesh as meshes
from engine.errors import AssayError
from engine.models import flops
from engine.programs import compiled_on_all
from engine.scoring.reward_passes import RewardScorer
from engine.search import passes
from engine.search.objective import SearchObjective
from engine.search.passes import StepInputs, fitness
from engine.settings import SearchSettings
from engine.types import Array, Graph, Params

UNKNOWN = -np.inf  # reward of a sequence that was not scored


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """State of all A attempts of a search between two steps; buffers hold B sequences."""

    keys: Array  # uint32 [A, 2]
    step: Array  # int32 []
    buffer: Array  # int32 [A, B, T], best first; of a method by gradient newest first
    buffer_rewards: Array  # float32 [A, B], signed
    best: Array  # int32 [A, T]
    best_rewards: Array  # float32 [A], signed


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranked:
    """Candidates of a step, best first, and the reward of each attempt's parent."""

    ids: Array  # int32 [A, C, T]
    rewards: Array  # float32 [A, C], signed
    parent_rewards: Array  # float32 [A], signed; UNKNOWN if no gradient was taken


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """The compiled functions of one search."""

    expand: Callable[..., Ranked]  # (params, inputs, state) -> Ranked
    admit: Callable[..., State]  # (state, ranked, accepted [A, C]) -> state
    # (params, inputs, state, count) -> state, best rewards [every, A], best ids [every, A, T]; rows
    # from `count` on are not set.
    many: Callable[..., tuple[State, jax.Array, jax.Array]]


def build_step(graph: Graph, mesh: Mesh, settings: SearchSettings) -> CompiledStep:
    """Builds the compiled step of a method of `STEP_METHODS`; those of several seeds share one."""
    first_changes(settings)
    return compiled_step(graph, mesh, settings.of_compiled_step())


@functools.lru_cache(maxsize=16)
def compiled_step(graph: Graph, mesh: Mesh, settings: SearchSettings) -> CompiledStep:
    """The step of settings that are checked, kept for further searches of the same shape."""

    def step(params: Params, inputs: StepInputs, state: State) -> Ranked:
        with jax.default_matmul_precision("highest"):
            return expand(nnx.merge(graph, params), inputs, state, settings, mesh)

    def keep(state: State, ranked: Ranked, accepted: Array) -> State:
        return admit(state, ranked, accepted, settings)

    def many(
        params: Params, inputs: StepInputs, state: State, count: Array
    ) -> tuple[State, jax.Array, jax.Array]:
        shape = (settings.every, *state.best.shape)

        def one(i: Array, carry: tuple[State, Array, Array]) -> tuple[State, Array, Array]:
            state, rewards, ids = carry
            ranked = step(params, inputs, state)
            state = keep(state, ranked, jnp.ones(ranked.rewards.shape, bool))
            return state, rewards.at[i].set(state.best_rewards), ids.at[i].set(state.best)

        traced = jnp.zeros(shape[:2]), jnp.zeros(shape, jnp.int32)
        return jax.lax.fori_loop(0, count, one, (state, *traced))

    place = meshes.sharding(mesh, "")
    every = (jax.jit(each, out_shardings=place) for each in (step, keep, many))
    return CompiledStep(*map(compiled_on_all, every))


# Any: the model, of a type that depends on its head.
def expand(
    model: Any, inputs: StepInputs, state: State, settings: SearchSettings, mesh: Mesh
) -> Ranked:
    """The step of a search up to the scored candidates."""
    parents, keys, noise_keys = draw_parents(state, settings=settings)
    rewards, slopes, written = np.full(len(parents), UNKNOWN, np.float32), None, None
    if settings.takes_gradient:
        with jax.named_scope("gradient"):
            rewards, slopes, written = passes.slopes_of(model, inputs, parents, settings, mesh)

    def score(ids: Array, first: tuple[int, ...]) -> Array:
        return passes.score_candidates(model, inputs, parents, ids, first, mesh, written)

    with jax.named_scope("propose"):
        vocabulary = inputs.allowed, inputs.steps, model.decoder.embedding[...]
        shards = 1 if model.decoder.platform == "cpu" else mesh.shape["model"]
        of_attempts = parents, slopes, keys, noise_keys
        ids = propose(state.step, *of_attempts, *vocabulary, settings=settings, shards=shards)
    with jax.named_scope("score"):
        scored = score(ids, first_changes(settings))
        if settings.merge:
            merged = merge(parents, ids, scored, settings=settings)
            with jax.named_scope("merged"):
                more = score(merged, whole_replies(settings))
            ids, scored = with_merged(ids, scored, merged, more)
    return rank(ids, scored, rewards, settings=settings)


def build_step_inputs(objective: SearchObjective, scorer: RewardScorer) -> StepInputs:
    """The prompts' keys and values, side by side on the mesh, and the search's arrays."""
    lengths = [len(p.prefix) for p in objective.prompts]
    room = [max(lengths) - n + objective.settings.length for n in lengths]
    prefixes = [scorer.prefill(p, r) for p, r in zip(objective.prompts, room, strict=True)]
    integers = (lengths, objective.suffix, planned_steps(objective.settings, step_flops(objective)))
    rest = (*(np.array(n, np.int32) for n in integers), objective.allowed, objective.signs)
    lengths, suffix, steps, allowed, signs = meshes.put(scorer.mesh, rest, "")
    return StepInputs(
        prefix=jax.tree.map(lambda *leaves: jnp.stack(leaves), *prefixes),
        lengths=lengths,
        suffix=suffix,
        allowed=allowed,
        signs=signs,
        steps=steps,
    )


def step_flops(objective: SearchObjective) -> float:
    """FLOPs of one step of one attempt; of an enumeration, a step that scores whole replies.

    Of each candidate, positions from its first change on are computed. Appending the parent to the
    prefix counts on accelerators too, where the gradient's pass gives it (about 1 % of a step), so
    that a budget of operations gives the same search everywhere.
    """
    config, settings, suffix = objective.config, objective.settings, len(objective.suffix)
    length, total = settings.length, 0.0
    starts = Counter((*first_changes(settings), *whole_replies(settings)))
    for before in (len(prompt.prefix) for prompt in objective.prompts):
        total += flops.extension(config, length, before)
        for start, count in starts.items():
            total += count * flops.response(config, length - start + suffix, before + start)
        if settings.takes_gradient:
            total += flops.gradient(config, length, length + suffix, before)
    return total


def planned_steps(settings: SearchSettings, step: float) -> int:
    """Steps of a search that nothing ends early: `steps`, or fewer if `flops` allow fewer.

    `step` are operations of a step of one attempt (`step_flops`). For an enumeration this is an
    estimate, since the costs of its steps differ.
    """
    if not settings.flops:
        return settings.steps
    return min(settings.steps, max(1, int(settings.flops / settings.attempts // step)))


def start(keys: np.ndarray, initial: np.ndarray, buffer: int) -> State:
    """The state before the first step, with nothing scored.

    Each attempt has a threefry2x32 key [A, 2] and a first sequence [A, T], and keeps `buffer` ones.
    """
    attempts = len(initial)
    return State(
        keys=keys.astype(np.uint32),
        step=np.zeros((), np.int32),
        buffer=np.repeat(initial[:, None], buffer, axis=1).astype(np.int32),
        buffer_rewards=np.full((attempts, buffer), UNKNOWN, np.float32),
        best=initial.astype(np.int32),
        best_rewards=np.full(attempts, UNKNOWN, np.float32),
    )


def draw_parents(state: State, *, settings: SearchSettings) -> tuple[Array, Array, Array]:
    """The parents of a step [A, T], and the keys of each attempt's proposals and of its noise."""
    keys = jax.random.wrap_key_data(state.keys, impl="threefry2x32")
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, state.step)
    draw_keys, propose_keys, noise_keys = jax.vmap(lambda k: jax.random.split(k, 3), 0, 1)(keys)
    draw = functools.partial(_draw_parent, spread=settings.spread)
    parents = jax.vmap(draw)(draw_keys, state.buffer, state.buffer_rewards)
    return parents, propose_keys, noise_keys


def _draw_parent(
    key: Array, buffer: Int[Array, "B T"], rewards: Float[Array, "B"], spread: float
) -> Int[Array, "T"]:
    """Draws a scored sequence with probability ~ exp(-rank / spread); the first if spread is 0."""
    if not spread:
        return buffer[0]
    rank = jnp.arange(len(rewards))
    scored = jnp.isfinite(rewards) | (rank == 0)
    return buffer[jax.random.categorical(key, jnp.where(scored, -rank / spread, -jnp.inf))]


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
    """The first position of each merged candidate of a step: all free ones may change."""
    return settings.free[:1] * max(0, settings.merge - 1)


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
    first, last = settings.replace_first, settings.replace_last
    done = jnp.minimum(step / jnp.maximum(1, planned - 1), 1.0)
    replace = jnp.round(first + (last - first) * done).astype(jnp.int32)

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


def rank(
    ids: Int[Array, "A C T"],
    rewards: Float[Array, "A C"],
    parent_rewards: Float[Array, "A"],
    *,
    settings: SearchSettings,
) -> Ranked:
    """Scored candidates in the order of their `fitness`, best first."""
    order = jnp.argsort(-fitness(rewards, settings.target), axis=1)
    return Ranked(
        ids=jnp.take_along_axis(ids, order[..., None], axis=1),
        rewards=jnp.take_along_axis(rewards, order, axis=1),
        parent_rewards=jnp.asarray(parent_rewards),
    )


def admit(
    state: State, ranked: Ranked, accepted: Bool[Array, "A C"], settings: SearchSettings
) -> State:
    """The next state: accepted candidates that are good enough join the buffer."""
    # In the first step, the gradient's pass gives the reward of the initial sequence.
    first = state.step == 0
    known = jnp.where(first, ranked.parent_rewards, state.buffer_rewards[:, 0])
    best_rewards = jnp.where(first, ranked.parent_rewards, state.best_rewards)
    rewards = state.buffer_rewards.at[:, 0].set(known)
    admitted = jnp.where(accepted, ranked.rewards, UNKNOWN)
    keep = keep_latest if settings.takes_gradient else keep_elite
    of_attempt = jax.vmap(functools.partial(keep, target=settings.target))
    buffer, rewards = of_attempt(state.buffer, rewards, ranked.ids, admitted)
    # The first sequence of a buffer is its best, or the one that was added in this step.
    better = fitness(rewards[:, 0], settings.target) > fitness(best_rewards, settings.target)
    return State(
        keys=state.keys,
        step=state.step + 1,
        buffer=buffer,
        buffer_rewards=rewards,
        best=jnp.where(better[:, None], buffer[:, 0], state.best),
        best_rewards=jnp.where(better, rewards[:, 0], best_rewards),
    )


def keep_elite(
    buffer: Int[Array, "B T"],
    rewards: Float[Array, "B"],
    ids: Int[Array, "C T"],
    admitted: Float[Array, "C"],
    *,
    target: float,
) -> tuple[Int[Array, "B T"], Float[Array, "B"]]:
    """Keeps the best distinct sequences of buffer and candidates; of equals the older ones."""
    size = len(rewards)
    _, top = jax.lax.top_k(fitness(admitted, target), min(size, len(admitted)))
    pool = jnp.concatenate([buffer, ids[top]])
    pooled = jnp.concatenate([rewards, admitted[top]])
    repeated = jnp.tril((pool[:, None] == pool).all(-1), -1)
    # An entry counts as a repetition only if the earlier entry was scored.
    repeated = (repeated & jnp.isfinite(pooled)).any(1)
    pooled = jnp.where(repeated, UNKNOWN, pooled)
    _, order = jax.lax.top_k(fitness(pooled, target), size)
    return pool[order], pooled[order]


def keep_latest(
    buffer: Int[Array, "B T"],
    rewards: Float[Array, "B"],
    ids: Int[Array, "C T"],
    admitted: Float[Array, "C"],
    *,
    target: float,
) -> tuple[Int[Array, "B T"], Float[Array, "B"]]:
    """Puts the best candidate that is not in the buffer in front; the oldest entry is dropped.

    It may be worse than its parent.
    """
    visited = (ids[:, None] == buffer).all(-1).any(1)
    admitted = jnp.where(visited, UNKNOWN, admitted)
    top = jnp.argmax(fitness(admitted, target))
    moved = jnp.concatenate([ids[top][None], buffer[:-1]])
    movable = admitted[top] > UNKNOWN
    return (
        jnp.where(movable, moved, buffer),
        jnp.where(movable, jnp.concatenate([admitted[top][None], rewards[:-1]]), rewards),
    )
