"""The compiled step of a search: propose candidates, score them, admit the best.

A attempts (directions × restarts) run at once, each with its own sign, key and buffer. Rewards in
this module are signed: higher is better in both directions. A step has two pure halves, `expand`
and `admit`. The host either runs many steps in one dispatch, or checks the ranked candidates
between the two halves.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int

from engine import mesh as meshes
from engine.models.reward_model import RewardModels
from engine.programs import run_together
from engine.search import buffer, proposals
from engine.search.buffer import UNKNOWN, Ranked, State, fitness
from engine.search.passes import (
    StepInputs,
    keys_values_of,
    score_candidates,
    slopes_and_keys_values,
)
from engine.settings import SearchSettings
from engine.types import Array, Graph, KeyValues, Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepMethod:
    """A method that runs the compiled step: how it proposes candidates and which it keeps.

    Attributes:
      propose: `gradient` draws from the top-k tokens of each position by first-order gain; `pairs`
        takes the best pairs of position and token; `mutation` draws uniform tokens at a few
        positions; `fresh` draws uniform sequences.
      keep: `elite` keeps the best sequences so far; `latest` keeps the best candidate of each step,
        even if it is worse than its parent, unless it was visited recently.
    """

    propose: str
    keep: str = "elite"

    @property
    def gradient(self) -> bool:
        """Whether a step takes the gradient of its parent's reward."""
        return self.propose in ("gradient", "pairs")


STEP_METHODS = {
    "gcg-merged": StepMethod(propose="gradient", keep="latest"),
    "gcg-original": StepMethod(propose="gradient", keep="latest"),
    "gcg": StepMethod(propose="gradient"),
    "mutate": StepMethod(propose="mutation"),
    "random": StepMethod(propose="fresh"),
    "paper": StepMethod(propose="pairs", keep="latest"),
}


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
    return method is not None and method.gradient


def whole_replies(settings: SearchSettings) -> int:
    """Replies of a step that are scored from their first free position on: screened and merged."""
    return settings.screen + max(0, settings.merge - 1)


def draft_depth(layers: int) -> int:
    """The layers of a model after which its head reads the draft that `screen` goes by."""
    return max(1, layers // 2)


def draw_parents(state: State, settings: SearchSettings) -> tuple[Int[Array, "A T"], Array, Array]:
    """The parents of a step, and the keys of each attempt's proposals and of its noise."""
    keys = jax.random.wrap_key_data(state.keys, impl="threefry2x32")
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, state.step)
    draw_keys, propose_keys, noise_keys = jax.vmap(lambda k: jax.random.split(k, 3), 0, 1)(keys)
    draw = functools.partial(buffer.draw_parent, spread=settings.spread)
    parents = jax.vmap(draw)(draw_keys, state.buffer, state.buffer_rewards)
    return parents, propose_keys, noise_keys


def _expand(
    model: RewardModels, inputs: StepInputs, state: State, settings: SearchSettings, mesh: Mesh
) -> Ranked:
    parents, propose_keys, noise_keys = draw_parents(state, settings)
    written, momentum = None, state.momentum
    if takes_gradient(settings):
        with jax.named_scope("gradient"):
            parent_rewards, slopes, own = slopes_and_keys_values(
                model, inputs, parents, settings, mesh
            )
            written = None if model.decoder.layers.for_cpu else own
            if settings.momentum:
                slopes = momentum = _with_earlier(slopes, state, settings.momentum)
            gain = _gains(model, inputs, parents, slopes, settings)
    else:
        parent_rewards = jnp.full(parents.shape[0], UNKNOWN)
        noise = functools.partial(proposals.uniform_gain, allowed=inputs.allowed)
        gain = jax.vmap(noise)(noise_keys, parents)
    with jax.named_scope("propose"):
        replace = replacements(state.step, inputs.steps, settings)
        shards = 1 if model.decoder.layers.for_cpu else mesh.shape["model"]
        ids = _proposals(inputs, propose_keys, parents, gain, replace, settings, shards)
    with jax.named_scope("score"):
        ids, rewards = _scored(model, inputs, parents, ids, settings, mesh, written)
    return buffer.in_order(ids, rewards, parent_rewards, momentum, settings.target)


def _with_earlier(
    slopes: Float[Array, "A T V"], state: State, momentum: float
) -> Float[Array, "A T V"]:
    """The running mean of the slopes; in the first step the slopes themselves."""
    mixed = momentum * state.momentum + (1 - momentum) * slopes
    return jnp.where(state.step == 0, slopes, mixed)


def _scored(
    model: RewardModels,
    inputs: StepInputs,
    parents: Int[Array, "A T"],
    ids: Int[Array, "A C T"],
    settings: SearchSettings,
    mesh: Mesh,
    written: KeyValues | None,
) -> tuple[Int[Array, "A S T"], Float[Array, "A S"]]:
    """The replies that the whole model scores in a step, and their signed rewards.

    They are the candidates, or with `screen` those that the draft rates highest, and with `merge`
    the merged ones.
    """
    first = first_changes(settings)
    if whole_replies(settings) and written is None:
        written = keys_values_of(model, inputs, parents, mesh)
    score = functools.partial(score_candidates, model, inputs, parents, mesh=mesh, written=written)
    if settings.screen:
        drafted = score(ids=ids, first=first, depth=draft_depth(max(model.depths)))
        order = jnp.argsort(-fitness(drafted, settings.target), axis=1)[:, : settings.screen]
        ids = jnp.take_along_axis(ids, order[..., None], axis=1)
        first = settings.free[:1] * settings.screen
    rewards = score(ids=ids, first=first)
    if settings.merge:
        _, order = jax.lax.top_k(fitness(rewards, settings.target), settings.merge)
        best = jnp.take_along_axis(ids, order[..., None], axis=1)
        merged = jax.vmap(proposals.merged)(parents, best)
        with jax.named_scope("merged"):
            more = score(ids=merged, first=settings.free[:1] * merged.shape[1])
        ids = jnp.concatenate([ids, merged], axis=1)
        rewards = jnp.concatenate([rewards, jnp.where(_repeated(ids, more), UNKNOWN, more)], axis=1)
    return ids, rewards


def _repeated(ids: Int[Array, "A S T"], last: Float[Array, "A M"]) -> Bool[Array, "A M"]:
    """Which of the last M sequences are there before, so that none takes two places."""
    same = (ids[:, :, None] == ids[:, None]).all(-1)
    return jnp.tril(same, -1).any(2)[:, -last.shape[1] :]


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


def replacements(step: Array, steps: Array, settings: SearchSettings) -> Int[Array, ""]:
    """The most tokens that a candidate changes in step `step` of `steps` planned ones."""
    first, last = settings.replace_first, settings.replace_last
    done = jnp.minimum(step / jnp.maximum(1, steps - 1), 1.0)
    return jnp.round(first + (last - first) * done).astype(jnp.int32)
