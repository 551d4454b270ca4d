"""The certificate of a reply: every swap of one of its tokens, scored."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.programs import compiled_on_all
from engine.runs.result import Certificate
from engine.scoring.reward_passes import RewardScorer, fetch, tolerance_of_one
from engine.search.objective import SearchObjective, not_finite
from engine.search.passes import BROKEN, StepInputs, score_candidates
from engine.search.step import build_step_inputs
from engine.types import Array, Graph, Params


def certificate(
    objective: SearchObjective,
    scorer: RewardScorer,
    ids: np.ndarray,
    advance: Callable[[int], object] = lambda replies: None,
) -> Certificate:
    """Scores every swap of one token of a reply for another that is allowed.

    Called again with `best_ids` while `better` is not 0, it is coordinate ascent.

    Args:
      objective: of a search in one direction; its filters hold for the swaps too.
      scorer: the model.
      ids: the reply, int32 [T], which the filters admit.
      advance: called with numbers of replies that were scored.

    A swap improves the reply if it gains more than the tolerance of the self-check, relative to
    max(1, |reward|): both rewards come from one program. Raises AssayError for a reward that is
    not finite.
    """
    rewards = _rewards_of_swaps(objective, scorer, ids, advance)
    free, tokens = np.array(objective.settings.free), np.flatnonzero(objective.allowed)
    target = objective.settings.target
    good = -np.abs(rewards - target) if target else rewards
    same = tokens == ids[free, None]  # [free, tokens]: the swap that changes nothing
    unchanged = (np.arange(len(free)), same.argmax(axis=1))
    gains = np.where(same, -np.inf, good - good[unchanged][:, None])
    margin = tolerance_of_one(objective.settings.dtype, objective.config)
    margin *= max(1.0, float(np.abs(rewards[unchanged]).max()))
    better, best = 0, None
    for index in np.argsort(-gains, axis=None, kind="stable"):
        place, token = np.unravel_index(index, gains.shape)
        improves = gains[place, token] > margin
        if (best is not None and not improves) or gains[place, token] == -np.inf:
            break
        changed = ids.copy()
        changed[free[place]] = tokens[token]
        if objective.passes(changed):
            better += int(improves)
            best = best or (changed, float(objective.signs[0] * rewards[place, token]))
    return Certificate(
        swaps=int(gains.size - len(free)),
        better=better,
        best_ids=best and tuple(best[0].tolist()),
        best_text=best and objective.round_trip.text(best[0]),
        best_reward=best and best[1],
    )


def replies_of(objective: SearchObjective) -> int:
    """Replies that a certificate scores."""
    return len(objective.settings.free) * int(objective.allowed.sum())


def _rewards_of_swaps(
    objective: SearchObjective,
    scorer: RewardScorer,
    ids: np.ndarray,
    advance: Callable[[int], object],
) -> np.ndarray:
    """Signed rewards with each allowed token at each free position: float64 [free, tokens]."""
    settings = dataclasses.replace(objective.settings, restarts=1)
    objective = dataclasses.replace(objective, settings=settings)
    free, tokens = np.array(settings.free), np.flatnonzero(objective.allowed)
    each = -(-settings.candidates // len(free))  # of a dispatch, at each position
    score = _compiled(scorer.graph, scorer.mesh, tuple(np.repeat(free, each).tolist()))
    inputs, scored = build_step_inputs(objective, scorer), []
    for start in range(0, len(tokens), each):
        chunk = np.resize(tokens[start : start + each], each)
        rows = np.tile(ids, (len(free), each, 1))
        rows[np.arange(len(free)), :, free] = chunk
        rows = rows.reshape(1, -1, len(ids))
        place = meshes.put(scorer.mesh, (ids[None], rows), "")
        rewards = fetch(score(scorer.params, inputs, *place))
        if (rewards == BROKEN).any():
            raise not_finite(rows[0, np.argmax(rewards[0] == BROKEN)])
        scored.append(rewards.reshape(len(free), each))
        advance(len(free) * min(each, len(tokens) - start))
    every: np.ndarray = np.concatenate(scored, axis=1)[:, : len(tokens)].astype(np.float64)
    return every


@functools.lru_cache(maxsize=4)
def _compiled(graph: Graph, mesh: Mesh, first: tuple[int, ...]) -> Callable[..., Array]:
    """(params, inputs, parent [1, T], replies [1, C, T]) -> signed rewards [1, C]."""

    def score(params: Params, inputs: StepInputs, parents: Array, ids: Array) -> Array:
        with jax.default_matmul_precision("highest"):
            return score_candidates(nnx.merge(graph, params), inputs, parents, ids, first, mesh)

    return compiled_on_all(jax.jit(score, out_shardings=meshes.sharding(mesh, "")))
