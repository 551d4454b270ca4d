"""The compiled step of a search: proposals, their rewards behind shared K/V, selection.

A attempts (directions × restarts) climb at once, each with its own sign, key and buffer. Rewards
here are signed: higher is better in both directions. `expand` and `admit` are pure; the host either
runs many of them in one dispatch, or judges the ranked candidates between the two.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int

from engine import mesh as meshes
from engine import scoring
from engine.models.reward_model import RewardModels
from engine.search import propose
from engine.search.settings import CLIMBS, SearchSettings
from engine.types import Array, Prefix

UNKNOWN = -np.inf  # reward of a sequence that was not scored


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What sequences answer: J prompts, judged together by the mean of their rewards."""

    prefix: Prefix  # leaves with a leading J, with room for T more positions
    lengths: Array  # int32 [J]
    suffix: Array  # int32 [S]
    allowed: Array  # bool [V]
    signs: Array  # float32 [A]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """Where a search stands."""

    keys: Array  # uint32 [A, 2]
    step: Array  # int32 []
    buffer: Array  # int32 [A, B, T], best first (`latest`: newest first)
    buffer_rewards: Array  # float32 [A, B], signed
    best: Array  # int32 [A, T]
    best_rewards: Array  # float32 [A], signed


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranked:
    """Candidates of a step, best first, and the reward of the parent where it was computed."""

    ids: Array  # int32 [A, C, T]
    rewards: Array  # float32 [A, C], signed
    parent_rewards: Array  # float32 [A], signed; UNKNOWN where no gradient was taken


def start(keys: np.ndarray, initial: np.ndarray, buffer: int) -> State:
    """The state before the first step: keys [A, 2], initial [A, T], nothing scored."""
    attempts = len(initial)
    return State(
        keys=keys.astype(np.uint32),
        step=np.zeros((), np.int32),
        buffer=np.repeat(initial[:, None], buffer, axis=1).astype(np.int32),
        buffer_rewards=np.full((attempts, buffer), UNKNOWN, np.float32),
        best=initial.astype(np.int32),
        best_rewards=np.full(attempts, UNKNOWN, np.float32),
    )


@dataclasses.dataclass(frozen=True)
class Step:
    """The compiled passes of one search.

    `many`: (params, question, state, count) -> state, rewards [every, A], best ids [every, A, T];
      rows of the two from `count` on mean nothing.
    `expand`: (params, question, state) -> Ranked. `admit`: (state, ranked, passes [A, C]) -> state.
    """

    many: Callable[..., tuple[State, jax.Array, jax.Array]]
    expand: Callable[..., Ranked]
    admit: Callable[..., State]
    groups: tuple[propose.Group, ...]
    gradient: bool


def build_step(graph: nnx.GraphDef, mesh: Mesh, settings: SearchSettings) -> Step:
    """Compiles a climbing method for one model, on any mesh.

    Raises:
      AssayError: more candidates than there are proposals.
    """
    method, plan = CLIMBS[settings.method], plan_of(settings)
    groups = plan.groups if plan else propose.whole(settings.free, settings.candidates)
    gradient = method.propose in ("gradient", "pairs")

    def expand(params, question, state):
        with jax.default_matmul_precision("highest"):
            return _expand(nnx.merge(graph, params), question, state)

    def _expand(model: RewardModels, question: Question, state: State) -> Ranked:
        keys = jax.vmap(jax.random.fold_in, (0, None))(_keys(state), state.step)
        keys = jax.vmap(functools.partial(jax.random.split, num=3))(keys)
        parents = jax.vmap(functools.partial(_parent, spread=settings.spread))(
            keys[:, 0], state.buffer, state.buffer_rewards
        )
        rewards = jnp.full(parents.shape[0], UNKNOWN)
        slopes = None
        if gradient:
            with jax.named_scope("gradient"):
                rewards, slopes = slopes_of(model, question, parents, settings)
        with jax.named_scope("propose"):
            ids = _proposals(model, question, keys[:, 1], parents, slopes, state.step)
        with jax.named_scope("score"):
            scores = score(model, question, parents, ids, groups, mesh)
        order = jnp.argsort(-climbed(scores, settings.target), axis=1)
        return Ranked(
            ids=jnp.take_along_axis(ids, order[..., None], axis=1),
            rewards=jnp.take_along_axis(scores, order, axis=1),
            parent_rewards=rewards,
        )

    def _proposals(model, question, keys, parents, slopes, step):
        free, allowed = settings.free, question.allowed
        if method.propose == "fresh":
            return jax.vmap(
                lambda key, ids: propose.fresh(key, ids, allowed, free, settings.candidates)
            )(keys, parents)
        embedding = model.decoder.embedding[...]
        if slopes is None:
            noise = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)
            gain = jax.vmap(lambda key, ids: propose.uniform_gain(key, ids, allowed))(
                noise, parents
            )
        else:
            gain = jax.vmap(
                lambda s, ids: propose.first_order_gain(
                    s, ids, allowed, embedding, settings.distance
                )
            )(slopes, parents)
        if plan is None:
            return jax.vmap(lambda ids, g: propose.best_pairs(ids, g, free, settings.candidates))(
                parents, gain
            )
        replace, most = replacements(step, settings)
        return jax.vmap(
            lambda key, ids, g: propose.by_position(
                key, ids, g, free, plan, settings.topk, settings.temperature, replace, most
            )
        )(keys, parents, gain)

    def admit(state, ranked, passes):
        return _admit(state, ranked, passes, method.keep, settings.target)

    def many(params, question, state, count):
        attempts, length = state.best.shape
        traced = (
            jnp.zeros((settings.every, attempts)),
            jnp.zeros((settings.every, attempts, length), jnp.int32),
        )

        def one(i, carry):
            state, rewards, ids = carry
            ranked = expand(params, question, state)
            state = admit(state, ranked, jnp.ones(ranked.rewards.shape, bool))
            return state, rewards.at[i].set(state.best_rewards), ids.at[i].set(state.best)

        return jax.lax.fori_loop(0, count, one, (state, *traced))

    everywhere = meshes.sharding(mesh, "")
    return Step(
        many=scoring.jit(many, mesh, everywhere),
        expand=scoring.jit(expand, mesh, everywhere),
        admit=scoring.jit(admit, mesh, everywhere),
        groups=groups,
        gradient=gradient,
    )


def plan_of(settings: SearchSettings) -> propose.Plan | None:
    """Where each candidate changes first; None for methods whose candidates change anywhere.

    Raises:
      AssayError: more candidates than there are proposals.
    """
    if CLIMBS[settings.method].propose not in ("gradient", "mutation"):
        return None
    return propose.plan(settings.free, settings.candidates, settings.topk)


def climbed(rewards: Any, target: float) -> Any:
    """What is climbed, of signed rewards: themselves, or minus the squared distance to a target."""
    return -((rewards - target) ** 2) if target else rewards


def slopes_of(
    model: RewardModels, question: Question, parents: Int[Array, "A T"], settings: SearchSettings
) -> tuple[Float[Array, "A"], Float[Array, "A T V"]]:
    """Signed rewards of the parents, and the gradient of what they climb by their one-hot rows.

    `settings.wrong_sign` takes the gradient of the maximising direction whatever the sign.
    """
    aims = jnp.ones_like(question.signs) if settings.wrong_sign else question.signs

    def of_rows(rows, aim):
        suffix = model.decoder.embed(question.suffix[None])
        x = jnp.concatenate([model.decoder.embed_rows(rows[None]), suffix], axis=1)
        last = jnp.full(1, x.shape[1] - 1)

        def under(prefix, length):
            return model.respond_embedded(prefix, x, length[None], last)[0, 0]

        reward = jax.vmap(under)(question.prefix, question.lengths).mean()
        return climbed(aim * reward, settings.target), reward

    rows = jax.nn.one_hot(parents, question.allowed.shape[0], dtype=jnp.float32)
    (_, rewards), slopes = jax.vmap(jax.value_and_grad(of_rows, has_aux=True))(rows, aims)
    return question.signs * rewards, slopes


def score(
    model: RewardModels,
    question: Question,
    parents: Int[Array, "A T"],
    ids: Int[Array, "A C T"],
    groups: Sequence[propose.Group],
    mesh: Mesh,
) -> Float[Array, "A C"]:
    """Signed rewards, each candidate computed from the first position that its group changes.

    What stands before comes from the K/V of its parent, which are appended to the prompt's once:
    row c of a group continues `prefix + parent[:start]`. Exact, since a decoder is causal.
    """

    def under(prefix, length):  # one prompt
        behind = jax.vmap(lambda parent: model.extend(prefix, parent, length).key_values)(parents)

        def group_of(group):
            tokens = ids[:, group.lo : group.hi, group.start :]
            rows = _split(_with_suffix(tokens, question.suffix), mesh)
            shared = jnp.full(rows.shape[1], length + group.start)
            last = jnp.full(rows.shape[1], rows.shape[2] - 1)

            def of_attempt(key_values, x):
                whole = Prefix(key_values=key_values, gates=prefix.gates)
                return model.respond_embedded(whole, x, shared, last)[0]

            embedded = jax.vmap(model.decoder.embed)(rows)
            return jax.vmap(of_attempt)(behind, embedded)[:, : tokens.shape[1]]

        return jnp.concatenate([group_of(group) for group in groups], axis=1)

    rewards = question.signs[:, None] * jax.vmap(under)(question.prefix, question.lengths).mean(0)
    return jnp.where(jnp.isnan(rewards), jnp.inf, rewards)  # on top, where the host refuses it


def replacements(step: Array, settings: SearchSettings) -> tuple[Array, int]:
    """Most tokens that a candidate changes in a step, and in any."""
    first, last = settings.replace_first, settings.replace_last
    done = jnp.minimum(step / max(1, settings.steps - 1), 1.0)
    now = jnp.round(first + (last - first) * done).astype(jnp.int32)
    return now, min(max(first, last), len(settings.free))


def _parent(
    key: Array, buffer: Int[Array, "B T"], rewards: Float[Array, "B"], spread: float
) -> Int[Array, "T"]:
    """One sequence of a buffer: its first, or by rank with probability exp(-rank / spread)."""
    if not spread:
        return buffer[0]
    rank = jnp.arange(len(rewards))
    there = jnp.isfinite(rewards) | (rank == 0)
    return buffer[jax.random.categorical(key, jnp.where(there, -rank / spread, -jnp.inf))]


def _admit(
    state: State, ranked: Ranked, passes: Bool[Array, "A C"], keep: str, target: float
) -> State:
    """The next state: what passes and is good enough joins the buffer."""
    # The first step's gradient tells what the initial sequence is worth.
    first = state.step == 0
    known = jnp.where(first, ranked.parent_rewards, state.buffer_rewards[:, 0])
    best_rewards = jnp.where(first, ranked.parent_rewards, state.best_rewards)
    rewards = state.buffer_rewards.at[:, 0].set(known)
    found = jnp.where(passes, ranked.rewards, UNKNOWN)
    merge = jax.vmap(functools.partial(_KEEP[keep], target=target))
    buffer, rewards = merge(state.buffer, rewards, ranked.ids, found)
    # A buffer holds its best first, or (`latest`) what was taken this step.
    better = climbed(rewards[:, 0], target) > climbed(best_rewards, target)
    return State(
        keys=state.keys,
        step=state.step + 1,
        buffer=buffer,
        buffer_rewards=rewards,
        best=jnp.where(better[:, None], buffer[:, 0], state.best),
        best_rewards=jnp.where(better, rewards[:, 0], best_rewards),
    )


def _elite(buffer, rewards, ids, found, *, target):
    """The best distinct sequences of buffer and candidates, best first; of equals the older."""
    size = len(rewards)
    _, top = jax.lax.top_k(climbed(found, target), min(size, len(found)))
    pool = jnp.concatenate([buffer, ids[top]])
    pooled = jnp.concatenate([rewards, found[top]])
    repeated = jnp.tril((pool[:, None] == pool).all(-1), -1)
    # An entry that was not scored does not stand in the way of the same sequence, scored.
    repeated = (repeated & jnp.isfinite(pooled)).any(1)
    pooled = jnp.where(repeated, UNKNOWN, pooled)
    _, order = jax.lax.top_k(climbed(pooled, target), size)
    return pool[order], pooled[order]


def _latest(buffer, rewards, ids, found, *, target):
    """The best candidate that the buffer does not hold, in front; the oldest falls out."""
    visited = (ids[:, None] == buffer).all(-1).any(1)
    found = jnp.where(visited, UNKNOWN, found)
    top = jnp.argmax(climbed(found, target))
    moved = jnp.concatenate([ids[top][None], buffer[:-1]])
    movable = jnp.isfinite(found[top])
    return (
        jnp.where(movable, moved, buffer),
        jnp.where(movable, jnp.concatenate([found[top][None], rewards[:-1]]), rewards),
    )


_KEEP = {"elite": _elite, "latest": _latest}


def _with_suffix(tokens: Int[Array, "A C T"], suffix: Int[Array, "S"]) -> Int[Array, "A C U"]:
    shape = (*tokens.shape[:2], suffix.shape[0])
    return jnp.concatenate([tokens, jnp.broadcast_to(suffix, shape)], axis=2)


def _split(rows: Int[Array, "A C U"], mesh: Mesh) -> Int[Array, "A c U"]:
    """Rows over the `data` axis, padded until they split evenly."""
    data = mesh.shape["data"]
    short = -rows.shape[1] % data
    padded = jnp.concatenate([rows, jnp.repeat(rows[:, :1], short, axis=1)], axis=1)
    return jax.lax.with_sharding_constraint(padded, meshes.sharding(mesh, "ACT"))


def _keys(state: State) -> Array:
    return jax.random.wrap_key_data(state.keys, impl="threefry2x32")
