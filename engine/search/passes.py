"""The passes of a search's step: gradients of the parents, rewards of the candidates.

A attempts run at once. Rewards are signed: higher is better in both directions.
"""

import dataclasses
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
from engine.search import packing
from engine.search.buffer import BROKEN, fitness
from engine.settings import SearchSettings
from engine.types import Array, KeyValues, Params, Places, Prefix


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
    depth: int | None = None,
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
      depth: the head reads after so many layers; by default after its own number.
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
            x = model.decoder.embed(row)
            return model.respond_embedded(prefix, x, places, read, depth)[0]

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
