"""The step of a universal search: that of one model, with every judge scored in turn.

With one model the step is one program. Here it is several: the passes of each judge, and the
compiled functions between them.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.programs import run_together
from engine.scoring.reward_passes import fetch
from engine.search import gcg
from engine.search.gcg import Pieces, Ranked, State, Step
from engine.search.judges import IdsJudge, Judge, TextJudge, combined, read_as_text, standardised
from engine.search.loop import StepDriver, planned_steps, step_flops
from engine.search.objective import SearchObjective
from engine.search.passes import StepInputs, score_candidates, slopes_of
from engine.settings import SearchSettings
from engine.types import Array, Graph, Params


def universal_driver(
    objective: SearchObjective,
    judges: Sequence[IdsJudge],
    rule: str,
    readers: Sequence[TextJudge] = (),
) -> StepDriver:
    """The driver of a universal search.

    Args:
      objective: what all models admit.
      judges: in the order of `combined`.
      rule: one of `RULES`.
      readers: judges of other tokenizers, behind the others in the order of `combined`.
    """
    settings = objective.settings
    scored = len(gcg.first_changes(settings)) + len(gcg.whole_replies(settings))
    cost = sum(step_flops(judge.objective) for judge in judges)
    cost += (scored + settings.takes_gradient) * sum(reader.flops for reader in readers)
    planned = planned_steps(settings, cost)
    step = universal_step(objective, judges, rule, planned, readers)
    # Each judge has inputs of its own: the driver's are not read.
    return StepDriver(objective, judges[0].scorer, step, judges[0].inputs, cost)


def universal_step(
    objective: SearchObjective,
    judges: Sequence[IdsJudge],
    rule: str,
    planned: int,
    readers: Sequence[TextJudge] = (),
) -> Step:
    """The step of a universal search; see `universal_driver`. `planned`: steps of the search."""
    settings, mesh = objective.settings, judges[0].scorer.mesh
    gcg.spread_changes(settings)
    shared, tokens = settings.of_compiled_step(), len(objective.allowed)
    every: list[Judge] = [*judges, *readers]
    values = (
        objective.allowed,
        np.array(planned, np.int32),
        objective.signs,
        np.array([one.mean for one in every], np.float32),
        np.array([one.sd for one in every], np.float32),
    )
    allowed, steps, *scale = meshes.put(mesh, values, "")
    between = _between(mesh, shared, rule)

    def read(ids: Array) -> list[Array]:
        found = read_as_text(objective, readers, fetch(ids)) if readers else []
        return list(meshes.put(mesh, tuple(found), ""))

    def slopes(parents: Array) -> tuple[Array, Array, None]:
        found = [
            _slopes_pass(one.scorer.graph, mesh, shared)(one.scorer.params, one.inputs, parents)
            for one in judges
        ]
        rewards = [each[0] for each in found] + read(parents)
        return (*between.weigh(rewards, [each[1][..., :tokens] for each in found], *scale), None)

    def score(parents: Array, ids: Array, first: tuple[int, ...], written: None) -> Array:
        found = [
            _rewards_pass(one.scorer.graph, mesh, first)(
                one.scorer.params, one.inputs, parents, ids
            )
            for one in judges
        ]
        return between.combine(found + read(ids), *scale)

    def propose(*given: Array | None) -> Array:
        return between.propose(*given, allowed, steps)

    pieces = dataclasses.replace(between.pieces, slopes=slopes, propose=propose, score=score)

    def expand(params: Params, inputs: StepInputs, state: State) -> Ranked:
        return gcg.expand(pieces, state, settings)

    def many(
        params: Params, inputs: StepInputs, state: State, count: Array
    ) -> tuple[State, jax.Array, jax.Array]:
        rewards, ids = [], []
        for _ in range(int(count)):
            ranked = expand(params, inputs, state)
            state = between.admit(state, ranked, np.ones(ranked.rewards.shape, bool))
            rewards.append(state.best_rewards)
            ids.append(state.best)
        return state, jnp.stack(rewards), jnp.stack(ids)

    return Step(many, expand, between.admit)


@functools.lru_cache(maxsize=16)
def _slopes_pass(graph: Graph, mesh: Mesh, settings: SearchSettings) -> Callable[..., Any]:
    """The compiled gradient of judges of one structure: rewards and slopes of parents."""

    def slopes(params: Params, inputs: StepInputs, parents: Array) -> tuple[Array, Array]:
        with jax.default_matmul_precision("highest"):
            return slopes_of(nnx.merge(graph, params), inputs, parents, settings, mesh)

    return run_together(jax.jit(slopes, out_shardings=meshes.sharding(mesh, "")))


@functools.lru_cache(maxsize=16)
def _rewards_pass(graph: Graph, mesh: Mesh, first: tuple[int, ...]) -> Callable[..., Array]:
    """The compiled scores of judges of one structure: rewards of candidates."""

    def rewards(params: Params, inputs: StepInputs, parents: Array, ids: Array) -> Array:
        with jax.default_matmul_precision("highest"):
            model = nnx.merge(graph, params)
            return score_candidates(model, inputs, parents, ids, first, mesh)

    return run_together(jax.jit(rewards, out_shardings=meshes.sharding(mesh, "")))


@dataclasses.dataclass(frozen=True)
class _Between:
    """The compiled functions of a step between the passes of the judges.

    Attributes:
      pieces: those that one model has too.
      propose: as `gcg.propose`, with the allowed tokens and the planned steps at the end.
      weigh: rewards and slopes of the judges -> the objective of the parents and its slopes.
      combine: rewards of the judges -> the objective of the candidates.
      admit: as `gcg.admit`.
    """

    pieces: Pieces
    propose: Callable[..., Array]
    weigh: Callable[..., tuple[Array, Array]]
    combine: Callable[..., Array]
    admit: Callable[..., State]


@functools.lru_cache(maxsize=16)
def _between(mesh: Mesh, settings: SearchSettings, rule: str) -> _Between:
    def weigh(
        rewards: list[Array], slopes: list[Array], signs: Array, means: Array, sds: Array
    ) -> tuple[Array, Array]:
        z = standardised(rewards, signs, means, sds)  # [judges, A]
        known = z[: len(slopes)]  # readers have no slopes
        if rule == "mean":
            weights = jnp.full(known.shape, 1 / len(rewards))
        else:
            weights = (known == known.min(0)).astype(jnp.float32)
            weights /= weights.sum(0)
        steepness = weights / sds[: len(slopes), None]
        total = sum(w[:, None, None] * s for w, s in zip(steepness, slopes, strict=True))
        return combined(rule, z), total

    def combine(rewards: list[Array], signs: Array, means: Array, sds: Array) -> Array:
        return combined(rule, standardised(rewards, signs[:, None], means, sds))

    def propose(
        step: Array,
        parents: Array,
        slopes: Array | None,
        keys: Array,
        noise_keys: Array,
        allowed: Array,
        planned: Array,
    ) -> Array:
        given = {"allowed": allowed, "planned": planned, "settings": settings}
        nothing = jnp.zeros((1, 1))  # the embedding is read for a distance alone
        return gcg.propose(step, parents, slopes, keys, noise_keys, embedding=nothing, **given)

    def admit(state: State, ranked: Ranked, passes: Array) -> State:
        return gcg.admit(state, ranked, passes, settings)

    # Any: functions of several types.
    def compiled(function: Callable[..., Any], **given: Any) -> Callable[..., Any]:
        own = functools.partial(function, **given)
        return run_together(jax.jit(own, out_shardings=meshes.sharding(mesh, "")))

    pieces = Pieces(
        draw=compiled(gcg.draw_parents, settings=settings),
        merge=compiled(gcg.merge, settings=settings),
        join=compiled(gcg.join),
        rank=compiled(gcg.rank, settings=settings),
        **dict.fromkeys(("slopes", "propose", "score"), cast(Any, None)),
    )
    return _Between(pieces, compiled(propose), compiled(weigh), compiled(combine), compiled(admit))
