"""What a search maximises: a model's reward under a prompt, with its slopes; higher is better.

A attempts run at once. Rewards are signed: higher is better in both directions.

A candidate shares the positions before its first change with its parent, so only the rest of it is
computed. The longest rest shares a row with the shortest, and so on (`pack`). So all rows are about
equally long, and a step is compiled in one shape, however many positions may change.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Float, Int

from engine import mesh as meshes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.models.config import DecoderConfig
from engine.models.decoder import Row, behind
from engine.models.reward_model import RewardModels
from engine.scoring.rows import LAST, Pooling, check_fits, pooling_of
from engine.search.filters import Filters, Ids, allowed_tokens, with_topk
from engine.settings import AUTO, DIRECTIONS, SearchSettings
from engine.types import Array, Kept, Params, Places, Prefix, PromptIds

BLOCK_ROWS = 32  # rows of packed candidates that are scored at a time: 64 candidates
BLOCK_PARENTS = 2  # attempts whose parents a device runs through the model at once
BROKEN = np.inf  # replaces a reward that is not finite; the host then stops the search


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchObjective(Filters):
    """What a search of one model maximises, without the weights and its progress.

    `prompt` ends where the reward is read (`Pooling.suffix`); `conversation` is whole.
    A attempts run side by side: `settings.restarts` for each direction. The objective of an attempt
    is its sign times the reward.
    """

    config: DecoderConfig
    checkpoint_hash: str
    prompt: PromptIds
    pooling: Pooling = LAST

    @classmethod
    def build(
        cls,
        checkpoint: Checkpoint,
        conversation: PromptIds,
        vocabulary: pl.DataFrame,
        settings: SearchSettings,
    ) -> "SearchObjective":
        """The objective of one search: a model's reward under a prompt.

        `vocabulary` has `schema.VOCAB_COLUMNS`.

        Raises:
          AssayError: reply, prompt and filters do not fit each other or the model.
        """
        checkpoint.expect_decoder("search")
        config = cast(DecoderConfig, checkpoint.card.decoder)
        around = *conversation.prefix, *conversation.suffix
        check_fits(len(around) + settings.length, max(around), config)
        pooling = pooling_of(checkpoint, AUTO)
        read = dataclasses.replace(conversation, suffix=pooling.suffix(conversation.suffix))
        unread = None if read.suffix else pooling.pad  # a reply cannot end with it
        allowed = allowed_tokens(vocabulary, config.vocab_size, settings, {unread})
        objective = cls(
            config=config,
            checkpoint_hash=checkpoint.card.checkpoint_hash,
            template=checkpoint.template,
            conversation=conversation,
            prompt=read,
            allowed=allowed,
            settings=with_topk(settings, allowed),
            pooling=pooling,
        )
        most = objective.allowed.sum() * settings.length
        if settings.method == "paper" and settings.candidates > most:
            raise AssayError(
                f"candidates={settings.candidates}; allowed: at most tokens × positions = {most}"
            )
        objective.initial()
        return objective

    @property
    def signs(self) -> np.ndarray:
        """Sign of each attempt: float32 [A], 1 maximises the reward and -1 minimises it."""
        signs = [DIRECTIONS[d] for d in self.settings.directions]
        return np.repeat(np.array(signs, np.float32), self.settings.restarts)

    @property
    def suffix(self) -> tuple[int, ...]:
        """Token ids behind the reply."""
        return self.prompt.suffix

    def streams(self) -> list[tuple[int, int, int]]:
        """Seeds of each attempt: (seed, direction, restart), whatever else is searched beside."""
        seed, places = self.settings.seed, map(list(DIRECTIONS).index, self.settings.directions)
        return [(seed, place, i) for place in places for i in range(self.settings.restarts)]

    def initial(self) -> np.ndarray:
        """The first sequence of each attempt: int32 [A, T]."""
        return np.stack([self.draw(np.random.default_rng(s)) for s in self.streams()])

    def narrowed(self, direction: str) -> "SearchObjective":
        """The same objective in one direction, or in `both`."""
        settings = dataclasses.replace(self.settings, direction=direction)
        return dataclasses.replace(self, settings=settings)


def not_finite(ids: Ids) -> AssayError:
    """The error for a sequence whose reward is not a finite number."""
    listed = list(map(int, ids))
    return AssayError(f"the reward is not finite for the sequence of token ids {listed}")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class StepInputs:
    """The inputs of a step that stay the same."""

    prefix: Prefix  # with room for T more positions
    length: Array  # int32 [], positions of the prefix
    suffix: Array  # int32 [S], token ids behind the reply
    allowed: Array  # bool [V], tokens that may be used
    signs: Array  # float32 [A], 1 maximises the reward, -1 minimises it


def slopes_of(
    model: RewardModels,
    inputs: StepInputs,
    parents: Int[Array, "A T"],
    settings: SearchSettings,
    mesh: Mesh,
) -> tuple[Float[Array, "A"], Float[Array, "A T V"], Kept]:
    """Rewards of the parents, and gradients with respect to their one-hot rows.

    Embedding is linear: its transpose takes the gradient with respect to the embedded rows to that
    with respect to the one-hot rows, and a row is looked up instead of multiplied.

    Returns:
      Signed rewards, their gradient, and what `keys_values_of` returns.
    """
    on_cpu = model.decoder.platform == "cpu"

    def of_rows(
        x: Float[Array, "T D"], sign: Array, model: RewardModels, inputs: StepInputs
    ) -> tuple[Array, tuple[Array, Kept]]:
        row = jnp.concatenate([x[None], model.decoder.embed(inputs.suffix[None])], axis=1)
        last = jnp.full((1, 1), row.shape[1] - 1)

        def keep_row(_: Array, written: Row) -> Row:
            return written

        places = behind(inputs.length[None], row.shape[1])
        rewards, written = model.score_embedded(inputs.prefix, row, places, last, keep_row)
        written = jax.tree.map(lambda a: a[:, 0, : len(x)], written)
        return sign * rewards[0, 0, 0], (rewards[0, 0, 0], written)

    def of_attempt(
        model: RewardModels, inputs: StepInputs, attempt: tuple[Array, Array]
    ) -> tuple[Array, Array, Kept]:
        parent, sign = attempt
        x = model.decoder.embed(parent[None])[0]
        (_, extra), slopes = jax.value_and_grad(of_rows, has_aux=True)(x, sign, model, inputs)
        reward, written = extra
        return reward, model.decoder.row_slopes(slopes[None])[0] if on_cpu else slopes, written

    rewards, slopes, written = _by_attempt(of_attempt, model, inputs, (parents, inputs.signs), mesh)
    if not on_cpu:  # not in the blocks, whose results every device gets: each keeps its tokens'
        count, blocks = len(slopes), _blocked(slopes)
        slopes = jax.lax.map(model.decoder.row_slopes, blocks)  # [blocks, parents, T, V]
        slopes = slopes.reshape(-1, *slopes.shape[2:])[:count]
    return inputs.signs * rewards, slopes, written


def keys_values_of(
    model: RewardModels, inputs: StepInputs, parents: Int[Array, "A T"], mesh: Mesh
) -> Kept:
    """Keys and values of the parents behind the prompt, leaves [A, L, T, K, H]."""

    def of_attempt(model: RewardModels, inputs: StepInputs, parent: Int[Array, "T"]) -> Kept:
        written = model.extend(inputs.prefix, parent, inputs.length).key_values
        of_parent: Kept = jax.tree.map(
            lambda p: jax.lax.dynamic_slice_in_dim(p, inputs.length, len(parent), axis=1), written
        )
        return of_parent

    kept: Kept = _by_attempt(of_attempt, model, inputs, parents, mesh)
    return kept


def rewards_of(
    model: RewardModels,
    inputs: StepInputs,
    parents: Int[Array, "A T"],
    ids: Int[Array, "A C T"],
    first: Sequence[int],
    mesh: Mesh,
    written: Kept | None = None,
) -> Float[Array, "A C"]:
    """Signed rewards of the candidates of each attempt.

    Candidate c agrees with its parent before position `first[c]`, ascending, so only its positions
    from there on are computed. Keys and values of the earlier positions are those of the parent,
    computed once behind the prompt's (`written`, from `keys_values_of`). This is exact, since a
    decoder is causal. Blocks of candidates are shared out over the mesh axis `data`.
    """
    if written is None:
        written = keys_values_of(model, inputs, parents, mesh)
    (attempts, candidates, length), (graph, params) = ids.shape, nnx.split(model)
    layout = pack(first, length + len(inputs.suffix), BLOCK_ROWS)
    behind_it = jnp.broadcast_to(inputs.suffix, (attempts, candidates, len(inputs.suffix)))
    whole = jnp.concatenate([ids, behind_it], axis=2)
    rows = whole[:, layout.candidate, layout.place.clip(max=whole.shape[2] - 1)]  # [A, B, U]
    static = (layout.place, layout.first, layout.reply, layout.read)
    arrays = (rows, *(jnp.broadcast_to(a, (attempts, *a.shape)) for a in static))
    size = min(BLOCK_ROWS, rows.shape[1])
    blocks = tuple(a.reshape(-1, size, a.shape[-1]) for a in arrays)
    attempt = jnp.repeat(jnp.arange(attempts), len(blocks[0]) // attempts)

    def of_block(
        shared: tuple[Params, StepInputs, Kept], block: tuple[Array, ...]
    ) -> Float[Array, "B Y"]:
        (params, inputs, written), (attempt, row, place, first, reply, read) = shared, block
        model, length = nnx.merge(graph, params), inputs.length
        with_parent = jax.tree.map(
            lambda p, new: jax.lax.dynamic_update_slice_in_dim(p, new[attempt], length, axis=1),
            inputs.prefix.key_values,
            written,
        )
        prefix = Prefix(key_values=with_parent, gates=inputs.prefix.gates)
        places = Places(position=length + place, shared=length + first, reply=reply)
        rewards, _ = model.score_embedded(prefix, model.decoder.embed(row), places, read)
        return rewards[0]

    shared = params, inputs, written
    scored = meshes.in_blocks(of_block, mesh, shared, (attempt, *blocks))
    rewards = inputs.signs[:, None] * scored.reshape(attempts, -1)[:, layout.slot]
    return jnp.where(jnp.isfinite(rewards), rewards, BROKEN)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packing:
    """B rows of U positions that hold Y candidates each; static, int32.

    A row is padded behind its last candidate, with further places of that candidate. No position
    that is read attends to them.
    """

    candidate: np.ndarray  # [B, U], the candidate whose token is at this position
    place: np.ndarray  # [B, U], index of that token in the reply followed by the suffix
    first: np.ndarray  # [B, U], the first place of that candidate that is computed
    reply: np.ndarray  # [B, U], index of the candidate within its row, 0 to Y - 1
    read: np.ndarray  # [B, Y], reward positions
    slot: np.ndarray  # [C], index in [B · Y] of each candidate's reward


def pack(first: Sequence[int], positions: int, block: int = 1) -> Packing:
    """Assigns candidates of `positions` places, computed from `first` [C] on, to rows.

    More rows than `block` are padded to a multiple of it, by repeating the last row.
    """
    begin = np.asarray(first, np.int32)
    held = np.arange(len(begin))[:, None]
    if begin[0] < begin[-1]:  # candidates of one length stay one per row
        held = held[: -(-len(begin) // 2)]
        held = np.concatenate([held, len(begin) - 1 - held], axis=1)
    slot = np.empty(len(begin), np.int32)
    slot[held.ravel()] = np.arange(held.size)
    held = np.pad(held, ((0, -len(held) % min(block, len(held))), (0, 0)), mode="edge")

    lengths = positions - begin[held]  # [B, Y]
    stops = np.cumsum(lengths, axis=1, dtype=np.int32)
    at = np.arange(stops[:, -1].max(), dtype=np.int32)
    reply = (at >= stops[:, :-1, None]).sum(axis=1, dtype=np.int32)  # [B, U]
    candidate = np.take_along_axis(held, reply, axis=1).astype(np.int32)
    place = begin[candidate] + at - np.take_along_axis(stops - lengths, reply, axis=1)
    return Packing(
        candidate=candidate,
        place=place.astype(np.int32),
        first=begin[candidate],
        reply=reply,
        read=stops - 1,
        slot=slot,
    )


# Any: trees of arrays.
def _by_attempt(
    function: Callable[[RewardModels, StepInputs, Any], Any],
    model: RewardModels,
    inputs: StepInputs,
    attempts: Any,
    mesh: Mesh,
) -> Any:
    """Results of (model, inputs, one attempt's arrays) for all attempts, in blocks over `data`."""
    graph, params = nnx.split(model)
    count = len(jax.tree.leaves(attempts)[0])

    def of_block(shared: tuple[Params, StepInputs], block: Any) -> Any:
        params, inputs = shared
        whole = nnx.merge(graph, params)
        return jax.vmap(lambda attempt: function(whole, inputs, attempt))(block)

    blocks = jax.tree.map(_blocked, attempts)
    results = meshes.in_blocks(of_block, mesh, (params, inputs), blocks)
    return jax.tree.map(lambda r: r.reshape(-1, *r.shape[2:])[:count], results)


def _blocked(attempts: Array) -> Array:
    """An array with an entry for each attempt, in blocks of parents; the last is repeated."""
    size = min(len(attempts), BLOCK_PARENTS)
    spare = -len(attempts) % size
    filled = jnp.pad(attempts, [(0, spare)] + [(0, 0)] * (attempts.ndim - 1), "edge")
    return filled.reshape(-1, size, *attempts.shape[1:])
