"""The compiled step of a search: propose candidates, score them, admit the best.

A attempts (directions × restarts) run at once, each with its own sign, key and buffer. Rewards in
this module are signed: higher is better in both directions. A step has two pure halves, `expand`
and `admit`. The host either runs many steps in one dispatch, or checks the ranked candidates
between the two halves.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Float, Int

from engine import mesh as meshes
from engine.models.decoder import behind
from engine.models.reward_model import RewardModels
from engine.planning.work import BLOCK_PARENTS, BLOCK_ROWS
from engine.programs import run_together
from engine.search import buffer, packing, proposals
from engine.search.buffer import BROKEN, UNKNOWN, Ranked, State, fitness
from engine.search.settings import STEP_METHODS, SearchSettings
from engine.types import Array, Graph, KeyValues, Params, Places, Prefix


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class StepInputs:
    """The inputs of a step that stay the same: J prompts, judged by the mean of their rewards."""

    prefix: Prefix  # leaves have a leading J and room for T more positions
    lengths: Array  # int32 [J], positions of each prefix
    suffix: Array  # int32 [S], token ids behind the reply
    allowed: Array  # bool [V], tokens that may be used
    signs: Array  # float32 [A], 1 maximises the reward, -1 minimises it
    steps: Array  # int32 [], planned steps


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
    proposed_changes(settings)
    return compiled_step(graph, mesh, settings.of_compiled_step())


@functools.lru_cache(maxsize=16)
def compiled_step(graph: Graph, mesh: Mesh, settings: SearchSettings) -> Step:
    """The step of settings that are checked, kept for further searches of the same shape."""
    keep = STEP_METHODS[settings.method].keep

    def expand(params: Params, inputs: StepInputs, state: State) -> Ranked:
        with jax.default_matmul_precision("highest"):
            return _expand(nnx.merge(graph, params), inputs, state, settings, mesh)

    def admit(state: State, ranked: Ranked, passes: Array) -> State:
        return buffer.admit(state, ranked, passes, keep, settings.target)

    def many(
        params: Params, inputs: StepInputs, state: State, count: Array
    ) -> tuple[State, jax.Array, jax.Array]:
        shape = (settings.every, *state.best.shape)

        def one(i: Array, carry: tuple[State, Array, Array]) -> tuple[State, Array, Array]:
            state, rewards, ids = carry
            ranked = expand(params, inputs, state)
            state = admit(state, ranked, jnp.ones(ranked.rewards.shape, bool))
            return state, rewards.at[i].set(state.best_rewards), ids.at[i].set(state.best)

        traced = jnp.zeros(shape[:2]), jnp.zeros(shape, jnp.int32)
        return jax.lax.fori_loop(0, count, one, (state, *traced))

    everywhere = meshes.sharding(mesh, "")
    jitted = (jax.jit(each, out_shardings=everywhere) for each in (many, expand, admit))
    return Step(*map(run_together, jitted))


def proposed_changes(settings: SearchSettings) -> proposals.FirstChanges | None:
    """The first position that each candidate changes; None if candidates may change anywhere.

    Raises:
      AssayError: more candidates than pairs of position and token.
    """
    method = STEP_METHODS.get(settings.method)
    if method is None or method.propose not in ("gradient", "mutation"):
        return None
    return proposals.spread_first_changes(settings.free, settings.candidates, settings.topk)


def first_changes(settings: SearchSettings) -> tuple[int, ...]:
    """The first position that each candidate may change [C], ascending."""
    changes = proposed_changes(settings)
    return changes.position if changes else (settings.free[0],) * settings.candidates


def takes_gradient(settings: SearchSettings) -> bool:
    """Whether a step takes the gradient of its parent's reward."""
    method = STEP_METHODS.get(settings.method)
    return method is not None and method.propose in ("gradient", "pairs")


def _expand(
    model: RewardModels, inputs: StepInputs, state: State, settings: SearchSettings, mesh: Mesh
) -> Ranked:
    keys = jax.vmap(jax.random.fold_in, (0, None))(_keys(state), state.step)
    draw_key, propose_key, noise_key = jax.vmap(lambda k: jax.random.split(k, 3), 0, 1)(keys)
    draw = functools.partial(buffer.draw_parent, spread=settings.spread)
    parents = jax.vmap(draw)(draw_key, state.buffer, state.buffer_rewards)
    written = None
    if takes_gradient(settings):
        with jax.named_scope("gradient"):
            parent_rewards, slopes, own = slopes_and_keys_values(
                model, inputs, parents, settings, mesh
            )
            written = None if model.decoder.layers.for_cpu else own
            gain = _gains(model, inputs, parents, slopes, settings)
    else:
        parent_rewards = jnp.full(parents.shape[0], UNKNOWN)
        noise = functools.partial(proposals.uniform_gain, allowed=inputs.allowed)
        gain = jax.vmap(noise)(noise_key, parents)
    with jax.named_scope("propose"):
        replace = replacements(state.step, inputs.steps, settings)
        shards = 1 if model.decoder.layers.for_cpu else mesh.shape["model"]
        ids = _proposals(inputs, propose_key, parents, gain, replace, settings, shards)
    with jax.named_scope("score"):
        first = first_changes(settings)
        rewards = score_candidates(model, inputs, parents, ids, first, mesh, written)
    order = jnp.argsort(-fitness(rewards, settings.target), axis=1)
    return Ranked(
        ids=jnp.take_along_axis(ids, order[..., None], axis=1),
        rewards=jnp.take_along_axis(rewards, order, axis=1),
        parent_rewards=parent_rewards,
    )


def _gains(
    model: RewardModels,
    inputs: StepInputs,
    parents: Int[Array, "A T"],
    slopes: Float[Array, "A T V"],
    settings: SearchSettings,
) -> Float[Array, "A T V"]:
    embedding, allowed = model.decoder.embedding[...], inputs.allowed

    def of_attempt(slopes: Float[Array, "T V"], ids: Int[Array, "T"]) -> Float[Array, "T V"]:
        return proposals.first_order_gain(slopes, ids, allowed, embedding, settings.distance)

    return jax.vmap(of_attempt)(slopes, parents)


def _proposals(
    inputs: StepInputs,
    keys: Array,
    parents: Int[Array, "A T"],
    gain: Float[Array, "A T V"],
    replace: Int[Array, ""],
    settings: SearchSettings,
    shards: int = 1,
) -> Int[Array, "A C T"]:
    free, candidates, changes = settings.free, settings.candidates, proposed_changes(settings)
    most = min(max(settings.replace_first, settings.replace_last), len(free))

    def of_attempt(
        key: Array, ids: Int[Array, "T"], gain: Float[Array, "T V"]
    ) -> Int[Array, "C T"]:
        if changes:
            how = settings.topk, settings.temperature, replace, most, shards
            return proposals.by_position(key, ids, gain, free, changes, *how)
        if STEP_METHODS[settings.method].propose == "pairs":
            return proposals.best_pairs(ids, gain, free, candidates)
        return proposals.fresh(key, ids, inputs.allowed, free, candidates)

    return jax.vmap(of_attempt)(keys, parents, gain)


def slopes_of(
    model: RewardModels,
    inputs: StepInputs,
    parents: Int[Array, "A T"],
    settings: SearchSettings,
    mesh: Mesh,
) -> tuple[Float[Array, "A"], Float[Array, "A T V"]]:
    """Rewards of the parents, and gradients with respect to their one-hot rows.

    Embedding is linear: its transpose takes the gradient with respect to the embedded rows to that
    with respect to the one-hot rows, and a row is looked up instead of multiplied.

    Args:
      model: the reward model.
      inputs: prompts and signs.
      parents: one sequence per attempt.
      settings: `target` and `wrong_sign` are read; the latter takes the gradient of the maximising
        direction for every attempt.
      mesh: where the model is.

    Returns:
      Signed rewards, and the gradient of `fitness` of them.
    """
    return slopes_and_keys_values(model, inputs, parents, settings, mesh)[:2]


def slopes_and_keys_values(
    model: RewardModels,
    inputs: StepInputs,
    parents: Int[Array, "A T"],
    settings: SearchSettings,
    mesh: Mesh,
) -> tuple[Float[Array, "A"], Float[Array, "A T V"], KeyValues]:
    """What `slopes_of` returns, and what `keys_values_of` does, which a gradient computes too."""
    signs = jnp.ones_like(inputs.signs) if settings.wrong_sign else inputs.signs
    for_cpu = model.decoder.layers.for_cpu

    def of_rows(
        x: Float[Array, "T D"], sign: Array, model: RewardModels, inputs: StepInputs
    ) -> tuple[Array, tuple[Array, KeyValues]]:
        row = jnp.concatenate([x[None], model.decoder.embed(inputs.suffix[None])], axis=1)
        last = jnp.full((1, 1), row.shape[1] - 1)

        def of_prompt(prefix: Prefix, length: Array) -> tuple[Array, KeyValues]:
            places = behind(length[None], row.shape[1])
            rewards, own = model.respond_and_keep(prefix, row, places, last)
            return rewards[0, 0, 0], jax.tree.map(lambda each: each[:, 0, : len(x)], own)

        rewards, own = jax.vmap(of_prompt)(inputs.prefix, inputs.lengths)
        return fitness(sign * rewards.mean(), settings.target), (rewards.mean(), own)

    def of_attempt(
        model: RewardModels, inputs: StepInputs, attempt: tuple[Array, Array]
    ) -> tuple[Array, Array, KeyValues]:
        parent, sign = attempt
        x = model.decoder.embed(parent[None])[0]
        (_, found), slopes = jax.value_and_grad(of_rows, has_aux=True)(x, sign, model, inputs)
        reward, own = found
        return reward, model.decoder.row_slopes(slopes[None])[0] if for_cpu else slopes, own

    rewards, slopes, own = _by_attempt(of_attempt, model, inputs, (parents, signs), mesh)
    if not for_cpu:  # not in the blocks, whose results every device gets: each keeps its tokens'
        count, blocks = len(slopes), _blocked(slopes)
        slopes = jax.lax.map(model.decoder.row_slopes, blocks)  # [blocks, parents, T, V]
        slopes = slopes.reshape(-1, *slopes.shape[2:])[:count]
    return inputs.signs * rewards, slopes, own


def keys_values_of(
    model: RewardModels, inputs: StepInputs, parents: Int[Array, "A T"], mesh: Mesh
) -> KeyValues:
    """Keys and values of the parents behind each prompt, leaves [A, J, L, T, K, H]."""

    def of_attempt(model: RewardModels, inputs: StepInputs, parent: Int[Array, "T"]) -> KeyValues:
        def of_prompt(prefix: Prefix, length: Array) -> KeyValues:
            written = model.extend(prefix, parent, length).key_values
            return jax.tree.map(
                lambda p: jax.lax.dynamic_slice_in_dim(p, length, len(parent), axis=1), written
            )

        return jax.vmap(of_prompt)(inputs.prefix, inputs.lengths)

    found: KeyValues = _by_attempt(of_attempt, model, inputs, parents, mesh)
    return found


def score_candidates(
    model: RewardModels,
    inputs: StepInputs,
    parents: Int[Array, "A T"],
    ids: Int[Array, "A C T"],
    first: Sequence[int],
    mesh: Mesh,
    written: KeyValues | None = None,
) -> Float[Array, "A C"]:
    """Signed rewards of the candidates of each attempt.

    Candidate c agrees with its parent before position `first[c]`, so only its positions from there
    on are computed. Keys and values of the earlier positions are those of the parent, computed
    once behind the prompt's. This is exact, since a decoder is causal. Blocks of candidates are
    shared out over the mesh axis `data`.

    Args:
      model: the reward model.
      inputs: prompts and signs.
      parents: one sequence per attempt.
      ids: the candidates.
      first: first position in which each candidate may differ from its parent [C], ascending.
      mesh: where the model is.
      written: what `keys_values_of` returns, where it is known.
    """
    if written is None:
        written = keys_values_of(model, inputs, parents, mesh)
    (attempts, candidates, length), (graph, params) = ids.shape, nnx.split(model)
    layout = packing.pack(first, length + len(inputs.suffix), BLOCK_ROWS)
    behind_it = jnp.broadcast_to(inputs.suffix, (attempts, candidates, len(inputs.suffix)))
    whole = jnp.concatenate([ids, behind_it], axis=2)
    rows = whole[:, layout.candidate, layout.place.clip(max=whole.shape[2] - 1)]  # [A, B, U]
    static = (layout.place, layout.first, layout.reply, layout.read)
    every = (rows, *(jnp.broadcast_to(a, (attempts, *a.shape)) for a in static))
    size = min(BLOCK_ROWS, rows.shape[1])
    blocks = tuple(a.reshape(-1, size, a.shape[-1]) for a in every)
    attempt = jnp.repeat(jnp.arange(attempts), len(blocks[0]) // attempts)

    def of_block(
        shared: tuple[Params, StepInputs, KeyValues], block: tuple[Array, ...]
    ) -> Float[Array, "B Y"]:
        (params, inputs, written), (attempt, row, place, first, reply, read) = shared, block
        model = nnx.merge(graph, params)

        def of_prompt(prefix: Prefix, length: Array, own: KeyValues) -> Float[Array, "B Y"]:
            with_parent = jax.tree.map(
                lambda p, new: jax.lax.dynamic_update_slice_in_dim(p, new, length, axis=1),
                prefix.key_values,
                own,
            )
            prefix = Prefix(key_values=with_parent, gates=prefix.gates)
            places = Places(position=length + place, shared=length + first, reply=reply)
            return model.respond_embedded(prefix, model.decoder.embed(row), places, read)[0]

        own = jax.tree.map(lambda every: every[attempt], written)
        return jax.vmap(of_prompt)(inputs.prefix, inputs.lengths, own).mean(0)

    shared = params, inputs, written
    scored = meshes.in_blocks(of_block, mesh, shared, (attempt, *blocks))
    means = scored.reshape(attempts, -1)[:, layout.where]
    rewards = inputs.signs[:, None] * means
    return jnp.where(jnp.isfinite(rewards), rewards, BROKEN)


# Any: trees of arrays.
def _by_attempt(
    function: Callable[[RewardModels, StepInputs, Any], Any],
    model: RewardModels,
    inputs: StepInputs,
    attempts: Any,
    mesh: Mesh,
) -> Any:
    """Results of a function for each attempt; blocks of attempts are shared out over `data`.

    Args:
      function: (model, inputs, one attempt's arrays) -> its result.
      model: the reward model.
      inputs: prompts and signs.
      attempts: arrays with one leading entry per attempt.
      mesh: where the model is.

    Returns:
      The results with a leading axis for the attempts.
    """
    graph, params = nnx.split(model)
    count = len(jax.tree.leaves(attempts)[0])

    def of_block(shared: tuple[Params, StepInputs], block: Any) -> Any:
        params, inputs = shared
        own = nnx.merge(graph, params)
        return jax.vmap(lambda attempt: function(own, inputs, attempt))(block)

    blocks = jax.tree.map(_blocked, attempts)
    found = meshes.in_blocks(of_block, mesh, (params, inputs), blocks)
    return jax.tree.map(lambda r: r.reshape(-1, *r.shape[2:])[:count], found)


def _blocked(attempts: Array) -> Array:
    """An array with an entry for each attempt, in blocks of parents; the last is repeated."""
    spare = -len(attempts) % BLOCK_PARENTS
    filled = jnp.pad(attempts, [(0, spare)] + [(0, 0)] * (attempts.ndim - 1), "edge")
    return filled.reshape(-1, BLOCK_PARENTS, *attempts.shape[1:])


def replacements(step: Array, steps: Array, settings: SearchSettings) -> Int[Array, ""]:
    """The most tokens that a candidate changes in step `step` of `steps` planned ones."""
    first, last = settings.replace_first, settings.replace_last
    done = jnp.minimum(step / jnp.maximum(1, steps - 1), 1.0)
    return jnp.round(first + (last - first) * done).astype(jnp.int32)


def _keys(state: State) -> Array:
    return jax.random.wrap_key_data(state.keys, impl="threefry2x32")
