"""The compiled step of a search: proposals, their rewards behind shared K/V, selection.

A attempts (directions × restarts) climb at once, each with its own sign, key and buffer. Rewards
here are signed: higher is better in both directions. `expand` and `admit` are pure; the host either
runs many of them in one dispatch, or judges the ranked candidates between the two.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Float, Int

from engine import mesh as meshes
from engine.models.decoder import behind
from engine.models.reward_model import RewardModels
from engine.scoring import reward_passes
from engine.search import buffer, packing, proposals
from engine.search.buffer import BROKEN, UNKNOWN, Ranked, State, climbed
from engine.search.settings import CLIMBS, SearchSettings
from engine.types import Array, Places, Prefix


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What sequences answer: J prompts, judged together by the mean of their rewards."""

    prefix: Prefix  # leaves with a leading J, with room for T more positions
    lengths: Array  # int32 [J]
    suffix: Array  # int32 [S]
    allowed: Array  # bool [V]
    signs: Array  # float32 [A]
    steps: Array  # int32 [], how many are planned


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


def build_step(graph: nnx.GraphDef, mesh: Mesh, settings: SearchSettings) -> Step:
    """The step of a climbing method for one model, on any mesh; compiled once for all seeds.

    Raises:
      AssayError: more candidates than there are proposals.
    """
    plan_of(settings)
    return _build_step(graph, mesh, settings.of_a_step())


@functools.lru_cache(maxsize=4)
def _build_step(graph: nnx.GraphDef, mesh: Mesh, settings: SearchSettings) -> Step:
    keep = CLIMBS[settings.method].keep

    def expand(params, question, state):
        with jax.default_matmul_precision("highest"):
            return _expand(nnx.merge(graph, params), question, state, settings, mesh)

    def admit(state, ranked, passes):
        return buffer.admit(state, ranked, passes, keep, settings.target)

    def many(params, question, state, count):
        shape = (settings.every, *state.best.shape)

        def one(i, carry):
            state, rewards, ids = carry
            ranked = expand(params, question, state)
            state = admit(state, ranked, jnp.ones(ranked.rewards.shape, bool))
            return state, rewards.at[i].set(state.best_rewards), ids.at[i].set(state.best)

        traced = jnp.zeros(shape[:2]), jnp.zeros(shape, jnp.int32)
        return jax.lax.fori_loop(0, count, one, (state, *traced))

    everywhere = meshes.sharding(mesh, "")
    return Step(*(reward_passes.jit(each, mesh, everywhere) for each in (many, expand, admit)))


def plan_of(settings: SearchSettings) -> proposals.Plan | None:
    """Where each candidate changes first; None for methods whose candidates change anywhere.

    Raises:
      AssayError: more candidates than there are proposals.
    """
    method = CLIMBS.get(settings.method)
    if method is None or method.propose not in ("gradient", "mutation"):
        return None
    return proposals.plan(settings.free, settings.candidates, settings.topk)


def first_changes(settings: SearchSettings) -> tuple[int, ...]:
    """The first position that each candidate may change [C], ascending."""
    plan = plan_of(settings)
    return plan.first if plan else (settings.free[0],) * settings.candidates


def takes_gradient(settings: SearchSettings) -> bool:
    """Whether a step takes the gradient of its parent's reward."""
    method = CLIMBS.get(settings.method)
    return method is not None and method.propose in ("gradient", "pairs")


def _expand(
    model: RewardModels, question: Question, state: State, settings: SearchSettings, mesh: Mesh
) -> Ranked:
    keys = jax.vmap(jax.random.fold_in, (0, None))(_keys(state), state.step)
    draw_key, propose_key, noise_key = jax.vmap(lambda k: jax.random.split(k, 3), 0, 1)(keys)
    draw = functools.partial(buffer.draw_parent, spread=settings.spread)
    parents = jax.vmap(draw)(draw_key, state.buffer, state.buffer_rewards)
    if takes_gradient(settings):
        with jax.named_scope("gradient"):
            rewards, slopes = slopes_of(model, question, parents, settings, mesh)
            gain = _gains(model, question, parents, slopes, settings)
    else:
        rewards = jnp.full(parents.shape[0], UNKNOWN)
        noise = functools.partial(proposals.uniform_gain, allowed=question.allowed)
        gain = jax.vmap(noise)(noise_key, parents)
    with jax.named_scope("propose"):
        replace = replacements(state.step, question.steps, settings)
        ids = _proposals(question, propose_key, parents, gain, replace, settings)
    with jax.named_scope("score"):
        scores = score(model, question, parents, ids, first_changes(settings), mesh)
    order = jnp.argsort(-climbed(scores, settings.target), axis=1)
    return Ranked(
        ids=jnp.take_along_axis(ids, order[..., None], axis=1),
        rewards=jnp.take_along_axis(scores, order, axis=1),
        parent_rewards=rewards,
    )


def _gains(
    model: RewardModels,
    question: Question,
    parents: Int[Array, "A T"],
    slopes: Float[Array, "A T V"],
    settings: SearchSettings,
) -> Float[Array, "A T V"]:
    embedding, allowed = model.decoder.embedding[...], question.allowed

    def of_attempt(slopes, ids):
        return proposals.first_order_gain(slopes, ids, allowed, embedding, settings.distance)

    return jax.vmap(of_attempt)(slopes, parents)


def _proposals(
    question: Question,
    keys: Array,
    parents: Int[Array, "A T"],
    gain: Float[Array, "A T V"],
    replace: Int[Array, ""],
    settings: SearchSettings,
) -> Int[Array, "A C T"]:
    free, candidates, plan = settings.free, settings.candidates, plan_of(settings)
    most = min(max(settings.replace_first, settings.replace_last), len(free))

    def of_attempt(key, ids, gain):
        if plan:
            return proposals.by_position(
                key, ids, gain, free, plan, settings.topk, settings.temperature, replace, most
            )
        if CLIMBS[settings.method].propose == "pairs":
            return proposals.best_pairs(ids, gain, free, candidates)
        return proposals.fresh(key, ids, question.allowed, free, candidates)

    return jax.vmap(of_attempt)(keys, parents, gain)


def slopes_of(
    model: RewardModels,
    question: Question,
    parents: Int[Array, "A T"],
    settings: SearchSettings,
    mesh: Mesh,
) -> tuple[Float[Array, "A"], Float[Array, "A T V"]]:
    """Signed rewards of the parents, and the gradient of what they climb by their one-hot rows.

    The attempts are split over `data`. `settings.wrong_sign` takes the gradient of the maximising
    direction whatever the sign.
    """
    attempts = len(parents)
    aims = jnp.ones_like(question.signs) if settings.wrong_sign else question.signs
    spare = -attempts % mesh.shape["data"]  # the last attempt again: no device waits longer for it
    aims, parents = (
        jnp.pad(aims, (0, spare), "edge"),
        jnp.pad(parents, ((0, spare), (0, 0)), "edge"),
    )

    def of_rows(rows, aim):
        suffix = model.decoder.embed(question.suffix[None])
        x = jnp.concatenate([model.decoder.embed_rows(rows[None]), suffix], axis=1)
        last = jnp.full((1, 1), x.shape[1] - 1)

        def under(prefix, length):
            return model.respond_embedded(prefix, x, behind(length[None], x.shape[1]), last)[
                0, 0, 0
            ]

        reward = jax.vmap(under)(question.prefix, question.lengths).mean()
        return climbed(aim * reward, settings.target), reward

    rows = jax.nn.one_hot(parents, question.allowed.shape[0], dtype=jnp.float32)
    rows = jax.lax.with_sharding_constraint(rows, meshes.sharding(mesh, "CTV"))
    (_, rewards), slopes = jax.vmap(jax.value_and_grad(of_rows, has_aux=True))(rows, aims)
    return question.signs * rewards[:attempts], slopes[:attempts]


def score(
    model: RewardModels,
    question: Question,
    parents: Int[Array, "A T"],
    ids: Int[Array, "A C T"],
    first: Sequence[int],
    mesh: Mesh,
) -> Float[Array, "A C"]:
    """Signed rewards, candidate c computed from `first[c]` on, before which it is its parent.

    What stands before comes from the K/V of its parent, which are appended to the prompt's once.
    Exact, since a decoder is causal.
    """
    attempts, candidates, length = ids.shape
    layout = packing.pack(first, length + len(question.suffix), mesh.shape["data"])
    behind_it = jnp.broadcast_to(question.suffix, (attempts, candidates, len(question.suffix)))
    whole = jnp.concatenate([ids, behind_it], axis=2)
    last = whole.shape[2] - 1
    rows = whole[:, layout.candidate, layout.place.clip(max=last)]  # [A, R, U]
    rows = jax.lax.with_sharding_constraint(rows, meshes.sharding(mesh, "ACT"))

    def under(prefix, length):  # one prompt
        def of_attempt(parent, row):
            written = model.extend(prefix, parent, length)
            places = Places(
                position=length + layout.place,
                shared=length + layout.first,
                reply=jnp.asarray(layout.reply),
            )
            x, read = model.decoder.embed(row), jnp.asarray(layout.read)
            return model.respond_embedded(written, x, places, read)[0].reshape(-1)[layout.where]

        return jax.vmap(of_attempt)(parents, rows)

    rewards = question.signs[:, None] * jax.vmap(under)(question.prefix, question.lengths).mean(0)
    return jnp.where(jnp.isfinite(rewards), rewards, BROKEN)


def replacements(step: Array, steps: Array, settings: SearchSettings) -> Int[Array, ""]:
    """How many tokens a candidate may change in one of `steps` planned steps."""
    first, last = settings.replace_first, settings.replace_last
    done = jnp.minimum(step / jnp.maximum(1, steps - 1), 1.0)
    return jnp.round(first + (last - first) * done).astype(jnp.int32)


def _keys(state: State) -> Array:
    return jax.random.wrap_key_data(state.keys, impl="threefry2x32")
