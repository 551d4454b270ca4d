"""One sequence for several judges: models under prompts, whose rewards are standardised.

A judge is one model under one prompt. Its reward is standardised by mean and standard deviation of
the rewards that it gives to a fixed random sample of single tokens. The objective is the mean of
the standardised rewards, or the lowest. Models are scored one after the other in each step; they
share the vocabulary, so a sequence is one list of ids for all.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.errors import AssayError
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer
from engine.search import buffer, proposals
from engine.search.buffer import BROKEN, UNKNOWN, Ranked, State, start
from engine.search.drivers import StepDriver, build_step_inputs, step_flops, stream_key
from engine.search.filters import Ids
from engine.search.objective import SearchObjective
from engine.search.settings import STEP_METHODS, SearchSettings
from engine.search.step import (
    Step,
    StepInputs,
    first_changes,
    proposed_changes,
    replacements,
    score_candidates,
    slopes_of,
    takes_gradient,
)
from engine.types import Array, Graph, Params

RULES = ("mean", "minimum")
_ADDED = 512  # tokens that one of two vocabularies may have behind the other's: added ones
SAMPLE = 1024  # single tokens by whose rewards a judge's are standardised


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judge:
    """One model under one prompt.

    Attributes:
      model: slug.
      prompt_id: of the prompt.
      objective: of this model under this prompt alone.
      scorer: the model.
      inputs: of its passes.
      mean: of its rewards of the sample.
      sd: their standard deviation.
    """

    model: str
    prompt_id: str
    objective: SearchObjective
    scorer: RewardScorer
    inputs: StepInputs
    mean: float
    sd: float


class EveryRoundTrip:
    """Whether the text of a sequence tokenises back to it in the conversations of all models."""

    def __init__(self, objectives: Sequence[SearchObjective]):
        self._each = [objective.round_trip for objective in objectives]

    def text(self, ids: Ids) -> str:
        """The decoded text of a sequence; all models decode it alike."""
        return self._each[0].text(ids)

    def passes(self, ids: Ids) -> bool:
        """Whether it passes for every model."""
        return all(each.passes(ids) for each in self._each)


def together(objectives: Sequence[SearchObjective], slugs: Sequence[str]) -> SearchObjective:
    """The tokens and texts that all models admit, as one objective.

    Args:
      objectives: one per model, of all prompts.
      slugs: of the models.

    Raises:
      AssayError: models of other vocabularies; settings that a universal search has not.
    """
    first = objectives[0]
    check_settings(first.settings)
    for objective, slug in zip(objectives[1:], slugs[1:], strict=True):
        known, own = first.template.tokens, objective.template.tokens
        differ = [i for i, (a, b) in enumerate(zip(known, own, strict=False)) if a != b]
        if differ or abs(len(known) - len(own)) > _ADDED:
            what = f"{len(known)} and {len(own)} tokens"
            if differ:
                i = differ[0]
                what = f"token {i} is {known[i]!r} and {own[i]!r}"
            raise AssayError(
                f"models {slugs[0]!r} and {slug!r} have other vocabularies ({what}); allowed in "
                "one universal search: models of one tokenizer; others can score what it finds: "
                "--config.judges"
            )
    rows = min(len(objective.allowed) for objective in objectives)
    allowed = np.logical_and.reduce([objective.allowed[:rows] for objective in objectives])
    hashes = [objective.checkpoint_hash for objective in objectives]
    whole = dataclasses.replace(
        first,
        allowed=allowed,
        checkpoint_hash=hashlib.sha256(json.dumps(hashes).encode()).hexdigest(),
        round_trip=cast(Any, EveryRoundTrip(objectives)),
    )
    if allowed.sum() < first.settings.topk:
        raise AssayError(
            f"topk={first.settings.topk}; the filters of all models leave {allowed.sum()} tokens: "
            "allowed at most that"
        )
    whole.initial()
    return whole


def check_settings(settings: SearchSettings) -> None:
    """Raises AssayError for settings that a universal search has not."""
    if settings.method not in STEP_METHODS:
        allowed = ", ".join(map(repr, STEP_METHODS))
        raise AssayError(f"method={settings.method!r}; allowed in a universal search: {allowed}")
    for name in ("target", "wrong_sign", "distance", "certify"):
        if getattr(settings, name):
            raise AssayError(
                f"{name}={getattr(settings, name)!r}; allowed in a universal search: "
                f"{type(getattr(settings, name))()!r}"
            )


def standard(objective: SearchObjective, scorer: RewardScorer) -> tuple[float, float]:
    """Mean and standard deviation of a judge's rewards of a sample of allowed single tokens.

    Raises:
      AssayError: they are all equal, or not finite.
    """
    tokens = np.flatnonzero(objective.allowed)
    rng = np.random.default_rng([SAMPLE, len(tokens)])
    drawn = np.sort(rng.choice(tokens, min(SAMPLE, len(tokens)), replace=False))
    (prompt,) = objective.prompts
    rewards = np.concatenate(
        [
            step[0]
            for step in scorer.rewards(scorer.prefill(prompt), token_candidates(prompt, drawn))
        ]
    ).astype(np.float64)
    if not (np.isfinite(rewards).all() and rewards.std() > 0):
        raise AssayError(
            f"prompt {prompt.prompt!r}: the rewards of {len(drawn)} single tokens cannot be "
            "standardised: they are all equal, or not finite"
        )
    return float(rewards.mean()), float(rewards.std())


def combined(rule: str, standardised: Any) -> Any:
    """The objective, from signed standardised rewards.

    Args:
      rule: one of `RULES`.
      standardised: [judges, …], of numpy or JAX.
    """
    joined = standardised.mean(0) if rule == "mean" else standardised.min(0)
    return jnp.where(jnp.isposinf(standardised).any(0), BROKEN, joined)  # a reward is not finite


def judges_of(
    model: str, prompt_ids: Sequence[str], objective: SearchObjective, scorer: RewardScorer
) -> list[Judge]:
    """The judges of one model: one for each prompt.

    Args:
      model: slug.
      prompt_ids: of the objective's prompts.
      objective: of this model under all prompts.
      scorer: the model.

    Raises:
      AssayError: rewards that cannot be standardised.
    """
    every = build_step_inputs(objective, scorer)  # so that all prompts have one shape
    judges = []
    for j, prompt_id in enumerate(prompt_ids):
        own = dataclasses.replace(objective, prompts=(objective.prompts[j],))
        prefix = jax.tree.map(lambda leaf, j=j: leaf[j : j + 1], every.prefix)
        inputs = dataclasses.replace(every, prefix=prefix, lengths=every.lengths[j : j + 1])
        mean, sd = standard(own, scorer)
        judges.append(
            Judge(
                model=model,
                prompt_id=prompt_id,
                objective=own,
                scorer=scorer,
                inputs=inputs,
                mean=mean,
                sd=sd,
            )
        )
    return judges


class UniversalDriver(StepDriver):
    """Drives a universal search: a step asks one judge after the other."""

    def __init__(self, objective: SearchObjective, judges: Sequence[Judge], rule: str):
        self.objective = objective
        self.rejected = np.zeros(len(objective.signs), np.int64)
        self.step_flops = sum(step_flops(judge.objective) for judge in judges)
        self._scorer = judges[0].scorer
        planned = planned_steps(objective.settings, self.step_flops)
        self._step = universal_step(objective, judges, rule, planned)
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
    objective: SearchObjective, judges: Sequence[Judge], rule: str, planned: int
) -> Step:
    """The step of a universal search, with the functions of `step.Step`; none reads `inputs`.

    Args:
      objective: what all models admit.
      judges: in the order of `combined`.
      rule: one of `RULES`.
      planned: steps of the search.
    """
    settings, mesh = objective.settings, judges[0].scorer.mesh
    proposed_changes(settings)
    shared = settings.of_compiled_step()
    allowed, planned_on_mesh, signs, means, sds = meshes.put(
        mesh,
        (
            objective.allowed,
            np.array(planned, np.int32),
            objective.signs,
            np.array([judge.mean for judge in judges], np.float32),
            np.array([judge.sd for judge in judges], np.float32),
        ),
        "",
    )
    passes = [_passes(judge.scorer.graph, mesh, shared) for judge in judges]
    host = _between(mesh, shared, rule)

    def expand(params: Params, inputs: StepInputs, state: State) -> Ranked:
        parents, propose_keys, noise_keys = host.draw(state)
        rewards, slopes = jnp.full(len(signs), UNKNOWN), None
        if takes_gradient(settings):
            every = [
                slopes_pass(judge.scorer.params, judge.inputs, parents)
                for judge, (slopes_pass, _) in zip(judges, passes, strict=True)
            ]
            rewards, slopes = host.join(
                [found[0] for found in every],
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
        return host.rank(ids, scored, rewards, signs, means, sds)

    def many(
        params: Params, inputs: StepInputs, state: State, count: Array
    ) -> tuple[State, jax.Array, jax.Array]:
        rewards, ids = [], []
        for _ in range(int(count)):
            ranked = expand(params, inputs, state)
            state = host.admit(state, ranked, jnp.ones(ranked.rewards.shape, bool))
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
    return tuple(jax.jit(each, out_shardings=everywhere) for each in (slopes, rewards))


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

    def draw(state: State) -> tuple[Array, Array, Array]:
        keys = jax.random.wrap_key_data(state.keys, impl="threefry2x32")
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, state.step)
        draw_keys, propose_keys, noise_keys = jax.vmap(lambda k: jax.random.split(k, 3), 0, 1)(keys)
        one = functools.partial(buffer.draw_parent, spread=settings.spread)
        parents = jax.vmap(one)(draw_keys, state.buffer, state.buffer_rewards)
        return parents, propose_keys, noise_keys

    def join(
        rewards: list[Array], slopes: list[Array], signs: Array, means: Array, sds: Array
    ) -> tuple[Array, Array]:
        z = _standardised(rewards, signs, means, sds)  # [judges, A]
        if rule == "mean":
            weights = jnp.full(z.shape, 1 / len(rewards))
        else:
            weights = (z == z.min(0)).astype(jnp.float32)
            weights /= weights.sum(0)
        steepness = weights / sds[:, None]
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
        order = jnp.argsort(-every, axis=1)
        return Ranked(
            ids=jnp.take_along_axis(ids, order[..., None], axis=1),
            rewards=jnp.take_along_axis(every, order, axis=1),
            parent_rewards=parents,
        )

    def admit(state: State, ranked: Ranked, passes: Array) -> State:
        return buffer.admit(state, ranked, passes, keep, 0.0)

    everywhere = meshes.sharding(mesh, "")
    each = (draw, join, propose, rank, admit)
    return _Between(*(jax.jit(function, out_shardings=everywhere) for function in each))


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
