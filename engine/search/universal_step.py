"""The step of a universal search: one judge after the other, and what lies between them."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.programs import run_together
from engine.scoring.reward_passes import fetch
from engine.search import buffer, proposals
from engine.search.buffer import UNKNOWN, Ranked, State, start
from engine.search.drivers import StepDriver, step_flops, stream_key
from engine.search.objective import SearchObjective
from engine.search.passes import StepInputs, score_candidates, slopes_of
from engine.search.step import (
    STEP_METHODS,
    Step,
    draw_parents,
    first_changes,
    proposed_changes,
    replacements,
    takes_gradient,
)
from engine.search.universal import Asked, Judge, combined
from engine.search.universal_readers import Reader, read_as_text
from engine.settings import SearchSettings
from engine.types import Array, Graph, Params


class UniversalDriver(StepDriver):
    """Drives a universal search: a step asks one judge after the other."""

    def __init__(
        self,
        objective: SearchObjective,
        judges: Sequence[Judge],
        rule: str,
        readers: Sequence[Reader] = (),
    ):
        self.objective = objective
        self.rejected = np.zeros(len(objective.signs), np.int64)
        read = len(first_changes(objective.settings)) + takes_gradient(objective.settings)
        self.step_flops = sum(step_flops(judge.objective) for judge in judges)
        self.step_flops += read * sum(reader.flops for reader in readers)
        self._scorer = judges[0].scorer
        planned = planned_steps(objective.settings, self.step_flops)
        self._step = universal_step(objective, judges, rule, planned, readers)
        self._inputs = judges[0].inputs  # each judge has its own: not read
        keys = [stream_key(*stream) for stream in objective.streams()]
        state = start(np.stack(keys), objective.initial(), objective.settings.buffer)
        self._state = self._put(state)


def planned_steps(settings: SearchSettings, step: float) -> int:
    """Steps of a search that nothing ends early, of which each takes `step` operations."""
    if not settings.flops:
        return settings.steps
    return min(settings.steps, max(1, int(settings.flops / settings.attempts // step)))


def universal_step(
    objective: SearchObjective,
    judges: Sequence[Judge],
    rule: str,
    planned: int,
    readers: Sequence[Reader] = (),
) -> Step:
    """The step of a universal search, with the functions of `step.Step`; none reads `inputs`.

    Args:
      objective: what all models admit.
      judges: in the order of `combined`.
      rule: one of `RULES`.
      planned: steps of the search.
      readers: judges of other tokenizers, behind the others in the order of `combined`.
    """
    settings, mesh = objective.settings, judges[0].scorer.mesh
    asked: list[Asked] = [*judges, *readers]
    proposed_changes(settings)
    shared = settings.of_compiled_step()
    allowed, planned_on_mesh, signs, means, sds = meshes.put(
        mesh,
        (
            objective.allowed,
            np.array(planned, np.int32),
            objective.signs,
            np.array([one.mean for one in asked], np.float32),
            np.array([one.sd for one in asked], np.float32),
        ),
        "",
    )
    passes = [_passes(judge.scorer.graph, mesh, shared) for judge in judges]
    host = _between(mesh, shared, rule)

    def read(ids: Array) -> list[Array]:
        own = read_as_text(objective, readers, fetch(ids)) if readers else []
        return list(meshes.put(mesh, tuple(own), ""))

    def expand(params: Params, inputs: StepInputs, state: State) -> Ranked:
        parents, propose_keys, noise_keys = host.draw(state)
        rewards, slopes = np.full(len(signs), UNKNOWN, np.float32), None
        if takes_gradient(settings):
            every = [
                slopes_pass(judge.scorer.params, judge.inputs, parents)
                for judge, (slopes_pass, _) in zip(judges, passes, strict=True)
            ]
            rewards, slopes = host.join(
                [found[0] for found in every] + read(parents),
                [found[1][..., : len(objective.allowed)] for found in every],
                signs,
                means,
                sds,
            )
        ids = host.propose(
            state.step, planned_on_mesh, parents, slopes, allowed, propose_keys, noise_keys
        )
        scored = [
            rewards_pass(judge.scorer.params, judge.inputs, parents, ids)
            for judge, (_, rewards_pass) in zip(judges, passes, strict=True)
        ]
        return host.rank(ids, scored + read(ids), rewards, signs, means, sds)

    def many(
        params: Params, inputs: StepInputs, state: State, count: Array
    ) -> tuple[State, jax.Array, jax.Array]:
        rewards, ids = [], []
        for _ in range(int(count)):
            ranked = expand(params, inputs, state)
            state = host.admit(state, ranked, np.ones(ranked.rewards.shape, bool))
            rewards.append(state.best_rewards)
            ids.append(state.best)
        return state, jnp.stack(rewards), jnp.stack(ids)

    return Step(many, expand, host.admit)


@functools.lru_cache(maxsize=16)
def _passes(
    graph: Graph, mesh: Mesh, settings: SearchSettings
) -> tuple[Callable[..., tuple[Array, Array]], Callable[..., Array]]:
    """The compiled passes of judges of one structure: slopes of parents, rewards of candidates."""

    def slopes(params: Params, inputs: StepInputs, parents: Array) -> tuple[Array, Array]:
        with jax.default_matmul_precision("highest"):
            return slopes_of(nnx.merge(graph, params), inputs, parents, settings, mesh)

    def rewards(params: Params, inputs: StepInputs, parents: Array, ids: Array) -> Array:
        with jax.default_matmul_precision("highest"):
            model, first = nnx.merge(graph, params), first_changes(settings)
            return score_candidates(model, inputs, parents, ids, first, mesh)

    everywhere = meshes.sharding(mesh, "")
    slopes_pass, rewards_pass = (
        run_together(jax.jit(function, out_shardings=everywhere)) for function in (slopes, rewards)
    )
    return slopes_pass, rewards_pass


@dataclasses.dataclass(frozen=True)
class _Between:
    """The compiled functions of a step between the passes of the judges."""

    draw: Callable[..., tuple[Array, Array, Array]]
    join: Callable[..., tuple[Array, Array]]
    propose: Callable[..., Array]
    rank: Callable[..., Ranked]
    admit: Callable[..., State]


@functools.lru_cache(maxsize=16)
def _between(mesh: Mesh, settings: SearchSettings, rule: str) -> _Between:
    keep = STEP_METHODS[settings.method].keep

    def join(
        rewards: list[Array], slopes: list[Array], signs: Array, means: Array, sds: Array
    ) -> tuple[Array, Array]:
        z = _standardised(rewards, signs, means, sds)  # [judges, A]
        known = z[: len(slopes)]  # readers have no slopes
        if rule == "mean":
            weights = jnp.full(known.shape, 1 / len(rewards))
        else:
            weights = (known == known.min(0)).astype(jnp.float32)
            weights /= weights.sum(0)
        steepness = weights / sds[: len(slopes), None]
        total = sum(w[:, None, None] * s for w, s in zip(steepness, slopes, strict=True))
        return combined(rule, z), total

    def propose(
        step: Array,
        planned: Array,
        parents: Array,
        slopes: Array | None,
        allowed: Array,
        keys: Array,
        noise_keys: Array,
    ) -> Array:
        replace = replacements(step, planned, settings)
        return jax.vmap(
            functools.partial(_proposals, settings=settings, allowed=allowed, replace=replace)
        )(keys, noise_keys, parents, slopes)

    def rank(
        ids: Array, rewards: list[Array], parents: Array, signs: Array, means: Array, sds: Array
    ) -> Ranked:
        every = combined(rule, _standardised(rewards, signs[:, None], means, sds))
        none = jnp.zeros((len(ids), settings.length, 0))
        return buffer.in_order(ids, every, parents, none, 0.0)

    def admit(state: State, ranked: Ranked, passes: Array) -> State:
        return buffer.admit(state, ranked, passes, keep, 0.0)

    everywhere = meshes.sharding(mesh, "")
    each = (functools.partial(draw_parents, settings=settings), join, propose, rank, admit)
    jitted = (jax.jit(function, out_shardings=everywhere) for function in each)
    return _Between(*map(run_together, jitted))


def _standardised(rewards: list[Array], signs: Array, means: Array, sds: Array) -> Array:
    """Signed standardised rewards [judges, …] from signed ones."""
    stacked = jnp.stack(rewards)
    shape = (-1,) + (1,) * (stacked.ndim - 1)
    return (stacked - signs * means.reshape(shape)) / sds.reshape(shape)


def _proposals(
    key: Array,
    noise_key: Array,
    ids: Array,
    slopes: Array | None,
    *,
    settings: SearchSettings,
    allowed: Array,
    replace: Array,
) -> Array:
    """Candidates of one attempt, int32 [C, T], as those of a search with one judge."""
    free, changes = settings.free, proposed_changes(settings)
    if slopes is None:
        gain = proposals.uniform_gain(noise_key, ids, allowed)
    else:
        nothing = jnp.zeros((1, 1))  # the embedding is read for a distance alone
        gain = proposals.first_order_gain(slopes, ids, allowed, nothing, 0.0)
    if changes:
        most = min(max(settings.replace_first, settings.replace_last), len(free))
        return proposals.by_position(
            key, ids, gain, free, changes, settings.topk, settings.temperature, replace, most
        )
    if STEP_METHODS[settings.method].propose == "pairs":
        return proposals.best_pairs(ids, gain, free, settings.candidates)
    return proposals.fresh(key, ids, allowed, free, settings.candidates)
