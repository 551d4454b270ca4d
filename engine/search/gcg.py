"""The step of a search: gradient, proposals, scores, buffer.

A attempts (directions × restarts) run at once, each with its own sign, key and buffer. Rewards in
this module are signed: higher is better in both directions. `expand` is the whole step until its
candidates are scored; `admit` keeps the best. The host either runs many steps in one dispatch, or
checks the texts of the ranked candidates between the two halves.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int

from engine import mesh as meshes
from engine.programs import run_together
from engine.search import passes, proposals
from engine.search.passes import StepInputs, fitness
from engine.settings import SearchSettings
from engine.types import Array, Graph, KeyValues, Params

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
class Step:
    """The compiled functions of one search.

    Attributes:
      many: (params, inputs, state, count) -> state, best rewards [every, A], best ids
        [every, A, T]; rows from `count` on are not set.
      expand: (params, inputs, state) -> Ranked.
      admit: (state, ranked, passes [A, C]) -> state.
    """

    many: Callable[..., tuple[State, jax.Array, jax.Array]]
    expand: Callable[..., Ranked]
    admit: Callable[..., State]


def build_step(graph: Graph, mesh: Mesh, settings: SearchSettings) -> Step:
    """Builds the compiled step; searches that differ in seed or direction share one.

    Args:
      graph: of the model.
      mesh: where its parameters are.
      settings: of a method of `STEP_METHODS`.

    Raises:
      AssayError: more candidates than pairs of position and token.
    """
    spread_changes(settings)
    return compiled_step(graph, mesh, settings.of_compiled_step())


@functools.lru_cache(maxsize=16)
def compiled_step(graph: Graph, mesh: Mesh, settings: SearchSettings) -> Step:
    """The step of settings that are checked, kept for further searches of the same shape."""

    def step(params: Params, inputs: StepInputs, state: State) -> Ranked:
        with jax.default_matmul_precision("highest"):
            return expand(_pieces(graph, params, inputs, settings, mesh), state, settings)

    def keep(state: State, ranked: Ranked, passes: Array) -> State:
        return admit(state, ranked, passes, settings)

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

    everywhere = meshes.sharding(mesh, "")
    jitted = (jax.jit(each, out_shardings=everywhere) for each in (many, step, keep))
    return Step(*map(run_together, jitted))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pieces:
    """The functions of a step: traced into one program for one model, else run in turn.

    Attributes:
      draw: state -> parents [A, T], keys of proposals and keys of noise.
      slopes: parents -> their rewards [A], slopes [A, T, V], and what `score` takes as `written`.
      propose: (step, parents, slopes or None, both keys) -> candidates [A, C, T].
      score: (parents, candidates, first changed positions, written) -> rewards [A, C].
      merge: (parents, candidates, their rewards) -> merged candidates [A, M, T].
      join: candidates, rewards, merged ones, their rewards -> candidates and rewards of both.
      rank: (candidates, rewards, rewards of the parents) -> Ranked.
    """

    draw: Callable[..., tuple[Array, Array, Array]]
    slopes: Callable[..., tuple[Array, Array, KeyValues | None]]
    propose: Callable[..., Array]
    score: Callable[..., Array]
    merge: Callable[..., Array]
    join: Callable[..., tuple[Array, Array]]
    rank: Callable[..., Ranked]


def expand(pieces: Pieces, state: State, settings: SearchSettings) -> Ranked:
    """The step of a search up to the scored candidates; the same for one model and for several."""
    parents, keys, noise_keys = pieces.draw(state)
    rewards, slopes, written = np.full(len(parents), UNKNOWN, np.float32), None, None
    if settings.takes_gradient:
        with jax.named_scope("gradient"):
            rewards, slopes, written = pieces.slopes(parents)
    with jax.named_scope("propose"):
        ids = pieces.propose(state.step, parents, slopes, keys, noise_keys)
    with jax.named_scope("score"):
        scored = pieces.score(parents, ids, first_changes(settings), written)
        if settings.merge:
            merged = pieces.merge(parents, ids, scored)
            with jax.named_scope("merged"):
                more = pieces.score(parents, merged, whole_replies(settings), written)
            ids, scored = pieces.join(ids, scored, merged, more)
    return pieces.rank(ids, scored, rewards)


def _pieces(
    graph: Graph, params: Params, inputs: StepInputs, settings: SearchSettings, mesh: Mesh
) -> Pieces:
    """The step of one model, to be traced in one program."""
    model = nnx.merge(graph, params)
    for_cpu = model.decoder.layers.for_cpu

    def slopes(parents: Array) -> tuple[Array, Array, KeyValues | None]:
        found = passes.slopes_and_keys_values(model, inputs, parents, settings, mesh)
        if not for_cpu:
            return found
        written = passes.keys_values_of(model, inputs, parents, mesh) if settings.merge else None
        return (*found[:2], written)

    def score(
        parents: Array, ids: Array, first: tuple[int, ...], written: KeyValues | None
    ) -> Array:
        return passes.score_candidates(model, inputs, parents, ids, first, mesh, written)

    return Pieces(
        draw=functools.partial(draw_parents, settings=settings),
        slopes=slopes,
        propose=functools.partial(
            propose,
            allowed=inputs.allowed,
            planned=inputs.steps,
            embedding=model.decoder.embedding[...],
            settings=settings,
            shards=1 if for_cpu else mesh.shape["model"],
        ),
        score=score,
        merge=functools.partial(merge, settings=settings),
        join=join,
        rank=functools.partial(rank, settings=settings),
    )


def start(keys: np.ndarray, initial: np.ndarray, buffer: int) -> State:
    """The state before the first step, with nothing scored.

    Args:
      keys: uint32 [A, 2], data of threefry2x32 keys.
      initial: int32 [A, T], the first sequence of each attempt.
      buffer: sequences that each attempt keeps.
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
    draw = functools.partial(draw_parent, spread=settings.spread)
    parents = jax.vmap(draw)(draw_keys, state.buffer, state.buffer_rewards)
    return parents, propose_keys, noise_keys


def draw_parent(
    key: Array, buffer: Int[Array, "B T"], rewards: Float[Array, "B"], spread: float
) -> Int[Array, "T"]:
    """Draws one sequence of a buffer.

    Args:
      key: one JAX key.
      buffer: sequences, best first.
      rewards: their signed rewards; entries that are not scored are never drawn.
      spread: probabilities are proportional to exp(-rank / spread); 0 takes the first sequence.
    """
    if not spread:
        return buffer[0]
    rank = jnp.arange(len(rewards))
    scored = jnp.isfinite(rewards) | (rank == 0)
    return buffer[jax.random.categorical(key, jnp.where(scored, -rank / spread, -jnp.inf))]


def spread_changes(settings: SearchSettings) -> proposals.FirstChanges | None:
    """`spread_first_changes` of settings; None for a method whose candidates change anywhere.

    Raises:
      AssayError: more candidates than pairs of position and token.
    """
    if settings.method not in ("gcg", "mutate"):
        return None
    return proposals.spread_first_changes(settings.free, settings.candidates, settings.topk)


def first_changes(settings: SearchSettings) -> tuple[int, ...]:
    """The first position that each candidate may change [C], ascending."""
    changes = spread_changes(settings)
    return changes.position if changes else settings.free[:1] * settings.candidates


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
    *,
    allowed: Bool[Array, "V"],
    planned: Array,
    embedding: Array,
    settings: SearchSettings,
    shards: int = 1,
) -> Int[Array, "A C T"]:
    """The candidates of a step: by gradient, at random near the parent, or all new.

    Args:
      step: number of the step.
      parents: one per attempt.
      slopes: from the gradient; None: random.
      keys: of each attempt.
      noise_keys: of each attempt, for what stands in place of a gradient.
      allowed: tokens that may be used.
      planned: steps of the search.
      embedding: [V, D], read if `settings.distance`.
      settings: of the search.
      shards: devices that the vocabulary is divided over.
    """
    free, changes = settings.free, spread_changes(settings)
    most = min(max(settings.replace_first, settings.replace_last), len(free))
    replace = replacements(step, planned, settings)

    def of_attempt(key: Array, noise_key: Array, ids: Array, slopes: Array | None) -> Array:
        if settings.method == "random":
            return proposals.fresh(key, ids, allowed, free, settings.candidates)
        if slopes is None:
            gain = proposals.uniform_gain(noise_key, ids, allowed)
        else:
            gain = proposals.first_order_gain(slopes, ids, allowed, embedding, settings.distance)
        if changes is None:
            return proposals.best_pairs(ids, gain, free, settings.candidates)
        how = settings.topk, settings.temperature, replace, most, shards
        return proposals.by_position(key, ids, gain, free, changes, *how)

    return jax.vmap(of_attempt)(keys, noise_keys, parents, slopes)


def merge(
    parents: Int[Array, "A T"],
    ids: Int[Array, "A C T"],
    rewards: Float[Array, "A C"],
    *,
    settings: SearchSettings,
) -> Int[Array, "A _ T"]:
    """The changes of the best two, three, … `settings.merge` candidates of each parent."""
    _, order = jax.lax.top_k(fitness(rewards, settings.target), settings.merge)
    return jax.vmap(proposals.merged)(parents, jnp.take_along_axis(ids, order[..., None], axis=1))


def join(
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
    state: State, ranked: Ranked, passes: Bool[Array, "A C"], settings: SearchSettings
) -> State:
    """The next state: admitted candidates that are good enough join the buffer.

    Args:
      state: the state before.
      ranked: the candidates of the step.
      passes: the candidates that are admitted.
      settings: of the search.
    """
    # In the first step, the gradient's pass gives the reward of the initial sequence.
    first = state.step == 0
    known = jnp.where(first, ranked.parent_rewards, state.buffer_rewards[:, 0])
    best_rewards = jnp.where(first, ranked.parent_rewards, state.best_rewards)
    rewards = state.buffer_rewards.at[:, 0].set(known)
    admitted = jnp.where(passes, ranked.rewards, UNKNOWN)
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
