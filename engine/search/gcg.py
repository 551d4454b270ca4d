"""GCG: the state of a search, its step, and the loop that takes steps until it ends.

A attempts (directions × restarts) run at once, each with a sign, key and buffer. Rewards in this
module are signed: higher is better in both directions. `expand` is the whole step until its
candidates are scored and ranked; `admit` keeps the best. Between the two the host checks the texts
of the ranked candidates.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int

from engine import mesh as meshes
from engine.errors import AssayError
from engine.models import flops
from engine.programs import compiled_on_all
from engine.runs import schema
from engine.scoring.reward_passes import RewardScorer, fetch
from engine.search import objective as objectives
from engine.search import proposals
from engine.search.objective import BROKEN, SearchObjective, StepInputs, not_finite
from engine.search.proposals import UNKNOWN
from engine.settings import DIRECTIONS, SearchSettings
from engine.types import Array, Graph, Params, Prefix

# Of a step the candidates, best first, int32 [A, C, T], their rewards, float32 [A, C], and those of
# the parents, float32 [A]; UNKNOWN if no gradient was taken.
Ranked = tuple[Array, Array, Array]
Arrays = Mapping[str, np.ndarray]  # what a search is resumed from, by name


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """State of all A attempts of a search between two steps; buffers hold B sequences."""

    keys: Array  # uint32 [A, 2]
    step: Array  # int32 []
    buffer: Array  # int32 [A, B, T], best first; for gradient methods, newest first
    buffer_rewards: Array  # float32 [A, B], signed
    best: Array  # int32 [A, T]
    best_rewards: Array  # float32 [A], signed


# Compiled: expand, (params, inputs, state) -> ranked; admit, (state, ranked, accepted [A, C]) ->
# state.
Programs = tuple[Any, Any]


def build_step(graph: Graph, mesh: Mesh, settings: SearchSettings) -> Programs:
    """The compiled functions of a search; searches of several seeds share them."""
    proposals.first_changes(settings)
    return compiled_step(graph, mesh, settings.of_compiled_step())


@functools.lru_cache(maxsize=16)
def compiled_step(graph: Graph, mesh: Mesh, settings: SearchSettings) -> Programs:
    """The functions of settings that are checked, kept for further searches of the same shape."""

    def step(params: Params, inputs: StepInputs, state: State) -> Ranked:
        with jax.default_matmul_precision("highest"):
            return expand(nnx.merge(graph, params), inputs, state, settings, mesh)

    def keep(state: State, ranked: Ranked, accepted: Array) -> State:
        return admit(state, ranked, accepted, settings)

    place = meshes.sharding(mesh, "")
    first, second = (jax.jit(function, out_shardings=place) for function in (step, keep))
    return compiled_on_all(first), compiled_on_all(second)


# Any: the model, of a type that depends on its head.
def expand(
    model: Any, inputs: StepInputs, state: State, settings: SearchSettings, mesh: Mesh
) -> Ranked:
    """The step of a search up to the scored candidates."""
    parents = state.buffer[:, 0]
    rewards, slopes, written = np.full(len(parents), UNKNOWN, np.float32), None, None
    if settings.takes_gradient:
        with jax.named_scope("gradient"):
            rewards, slopes, written = objectives.slopes_of(model, inputs, parents, settings, mesh)

    def score(ids: Array, first: tuple[int, ...]) -> Array:
        return objectives.rewards_of(model, inputs, parents, ids, first, mesh, written)

    with jax.named_scope("propose"):
        vocabulary = inputs.allowed, model.decoder.embedding[...]
        shards = 1 if model.decoder.platform == "cpu" else mesh.shape["model"]
        ids = proposals.propose(
            parents, rewards, slopes, proposal_keys(state), *vocabulary, settings, shards
        )
    with jax.named_scope("score"):
        scored = score(ids, proposals.first_changes(settings))
        if count := proposals.merged_count(settings):
            merged = proposals.merge(parents, ids, scored, count)
            with jax.named_scope("merged"):
                more = score(merged, proposals.whole_replies(settings))
            ids, scored = proposals.with_merged(ids, scored, merged, more)
    order = jnp.argsort(-scored, axis=1)
    ids = jnp.take_along_axis(ids, order[..., None], axis=1)
    return ids, jnp.take_along_axis(scored, order, axis=1), jnp.asarray(rewards)


def build_step_inputs(objective: SearchObjective, scorer: RewardScorer) -> StepInputs:
    """The prompt's keys and values on the mesh, and the search's arrays."""
    prefix = scorer.prefill(objective.prompt, objective.settings.length)
    assert isinstance(prefix, Prefix)  # of a decoder
    numbers = len(objective.prompt.prefix), objective.suffix
    integers = (np.array(n, np.int32) for n in numbers)
    host = (*integers, objective.allowed, objective.signs)
    length, suffix, allowed, signs = meshes.put(scorer.mesh, host, "")
    return StepInputs(
        prefix=prefix,
        length=length,
        suffix=suffix,
        allowed=allowed,
        signs=signs,
    )


def step_flops(objective: SearchObjective) -> float:
    """FLOPs of one step of one attempt.

    Of each candidate, positions from its first change on are computed. Appending the parent to the
    prefix counts on accelerators too, where the gradient's pass gives it (about 1 % of a step).
    """
    config, settings, suffix = objective.config, objective.settings, len(objective.suffix)
    length, before = settings.length, len(objective.prompt.prefix)
    starts = Counter((*proposals.first_changes(settings), *proposals.whole_replies(settings)))
    total = flops.extension(config, length, before)
    for start, count in starts.items():
        total += count * flops.response(config, length - start + suffix, before + start)
    if settings.takes_gradient:
        total += flops.gradient(config, length, length + suffix, before)
    return total


def start(keys: np.ndarray, initial: np.ndarray, buffer: int) -> State:
    """The state before the first step, with nothing scored.

    Each attempt has a threefry2x32 key [A, 2] and a first sequence [A, T], and keeps `buffer` ones.
    """
    attempts = len(initial)
    return State(
        keys=keys.astype(np.uint32),
        step=np.zeros((), np.int32),
        buffer=np.repeat(initial[:, None], buffer, axis=1).astype(np.int32),
        buffer_rewards=np.full((attempts, buffer), UNKNOWN, np.float32),
        best=initial.astype(np.int32),
        best_rewards=np.full(attempts, UNKNOWN, np.float32),
    )


def proposal_keys(state: State) -> Array:
    """The key of each attempt's proposals in this step [A]."""
    keys = jax.random.wrap_key_data(state.keys, impl="threefry2x32")
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, state.step)
    return jax.vmap(lambda k: jax.random.split(k, 3)[1])(keys)


def admit(
    state: State, ranked: Ranked, accepted: Bool[Array, "A C"], settings: SearchSettings
) -> State:
    """The next state: accepted candidates that are good enough join the buffer."""
    # In the first step, the gradient's pass gives the reward of the initial sequence.
    first, (ids, scored, parent_rewards) = state.step == 0, ranked
    known = jnp.where(first, parent_rewards, state.buffer_rewards[:, 0])
    best_rewards = jnp.where(first, parent_rewards, state.best_rewards)
    rewards = state.buffer_rewards.at[:, 0].set(known)
    admitted = jnp.where(accepted, scored, UNKNOWN)
    keep = keep_latest if settings.takes_gradient else keep_elite
    buffer, rewards = jax.vmap(keep)(state.buffer, rewards, ids, admitted)
    # The first sequence of a buffer is its best, or the one that was added in this step.
    better = rewards[:, 0] > best_rewards
    return State(
        keys=state.keys,
        step=state.step + 1,
        buffer=buffer,
        buffer_rewards=rewards,
        best=jnp.where(better[:, None], buffer[:, 0], state.best),
        best_rewards=jnp.where(better, rewards[:, 0], best_rewards),
    )


def keep_elite(
    buffer: Int[Array, "B T"],
    rewards: Float[Array, "B"],
    ids: Int[Array, "C T"],
    admitted: Float[Array, "C"],
) -> tuple[Int[Array, "B T"], Float[Array, "B"]]:
    """Keeps the best distinct sequences of buffer and candidates; of equals the older ones."""
    size = len(rewards)
    _, top = jax.lax.top_k(admitted, min(size, len(admitted)))
    pool = jnp.concatenate([buffer, ids[top]])
    pooled = jnp.concatenate([rewards, admitted[top]])
    repeated = jnp.tril((pool[:, None] == pool).all(-1), -1)
    # An entry counts as a repetition only if the earlier entry was scored.
    repeated = (repeated & jnp.isfinite(pooled)).any(1)
    pooled = jnp.where(repeated, UNKNOWN, pooled)
    pooled, order = jax.lax.top_k(pooled, size)
    return pool[order], pooled


def keep_latest(
    buffer: Int[Array, "B T"],
    rewards: Float[Array, "B"],
    ids: Int[Array, "C T"],
    admitted: Float[Array, "C"],
) -> tuple[Int[Array, "B T"], Float[Array, "B"]]:
    """Puts the best candidate that is not in the buffer in front; the oldest entry is dropped.

    It may be worse than its parent.
    """
    visited = (ids[:, None] == buffer).all(-1).any(1)
    admitted = jnp.where(visited, UNKNOWN, admitted)
    top = jnp.argmax(admitted)
    moved = jnp.concatenate([ids[top][None], buffer[:-1]])
    movable = admitted[top] > UNKNOWN
    return (
        jnp.where(movable, moved, buffer),
        jnp.where(movable, jnp.concatenate([admitted[top][None], rewards[:-1]]), rewards),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """The best sequence of every attempt after each of N steps.

    Rewards are signed, so that higher is better; -inf before an attempt has a sequence.
    """

    rewards: np.ndarray  # float32 [N, A]
    ids: np.ndarray  # int32 [N, A, T]
    flops: np.ndarray  # float64 [N], of one attempt, cumulative

    def best(self, direction: int, settings: SearchSettings) -> tuple[np.ndarray, np.ndarray]:
        """Signed rewards [N] and token ids [N, T] of the best attempt of one direction.

        `direction` is its index in `settings.directions`.
        """
        attempts = slice(direction * settings.restarts, (direction + 1) * settings.restarts)
        rewards, steps = self.rewards[:, attempts], np.arange(len(self.rewards))
        best = np.argmax(rewards, axis=1)
        return rewards[steps, best], self.ids[:, attempts][steps, best]


def trace_frame(objective: SearchObjective, trace: Trace, direction: str) -> pl.DataFrame:
    """The best sequence after each step of one direction, from the first that was found.

    Rewards are not signed.
    """
    settings = objective.settings
    rewards, ids = trace.best(settings.directions.index(direction), settings)
    rows = np.flatnonzero(np.isfinite(rewards))
    distinct, place = np.unique(ids[rows], axis=0, return_inverse=True)
    texts = [(objective.text(row), objective.round_trips(row)) for row in distinct]
    columns = {
        "step": rows + 1,
        "reward": np.float32(DIRECTIONS[direction]) * rewards[rows],
        "token_ids": ids[rows].tolist(),
        "text": [texts[i][0] for i in place.ravel()],
        "round_trips": [texts[i][1] for i in place.ravel()],
        "flops": trace.flops[rows] * settings.restarts,  # of all of the direction
    }
    return pl.DataFrame(columns, schema=schema.SEQUENCE_COLUMNS)


class NothingFound(AssayError):
    """A direction of a search ended without a sequence."""


def run_search(
    objective: SearchObjective,
    scorer: RewardScorer,
    saved: tuple[Trace, Arrays] | None = None,
    save: Callable[[Trace, Arrays], object] | None = None,
    progress: Callable[[int, Trace], object] = lambda steps, trace: None,
) -> tuple[Trace, dict[str, int]]:
    """Runs a search to its end, or goes on from what was `saved`.

    Args:
      objective: what is maximised.
      scorer: the model.
      saved: what `save` was last called with.
      save: called during the search with the trace and what else the next step depends on.
      progress: called every few steps with the number of steps done and the trace so far.

    Returns:
      The trace, and the number of candidates per direction that were rejected because their text
      does not round-trip.

    Raises:
      AssayError: a reward that is not finite (with its token ids).
      NothingFound: a direction ended without a sequence.
    """
    settings, attempts = objective.settings, len(objective.signs)
    driver, cost = StepDriver(objective, scorer), step_flops(objective)
    trace = Trace(
        rewards=np.empty((0, attempts), np.float32),
        ids=np.empty((0, attempts, settings.length), np.int32),
        flops=np.empty(0),
    )
    if saved is not None:
        trace, arrays = saved
        driver.restore(arrays)
    safe = len(trace.flops)
    while len(trace.flops) < settings.steps:
        spent = trace.flops[-1] if len(trace.flops) else 0.0
        count = min(settings.steps - len(trace.flops), settings.every)
        rewards, ids = driver.advance(count)
        trace = Trace(
            rewards=np.concatenate([trace.rewards, rewards]),
            ids=np.concatenate([trace.ids, ids]),
            flops=np.append(trace.flops, spent + np.cumsum(np.full(count, cost))),
        )
        bad = (rewards[-1] == BROKEN) | np.isnan(rewards[-1])
        if bad.any():
            raise not_finite(ids[-1, np.argmax(bad)])
        progress(len(trace.flops), trace)
        if save and len(trace.flops) - safe >= settings.every:
            save(trace, driver.arrays())
            safe = len(trace.flops)
    bests = [trace.best(d, settings)[0] for d in range(len(settings.directions))]
    if not all(len(best) and np.isfinite(best[-1]) for best in bests):
        raise NothingFound(
            f"method={settings.method!r} ended before it found a sequence of {settings.length} "
            "tokens; allow it more steps, or round_trip=False"
        )
    rejected = driver.rejected.reshape(-1, settings.restarts).sum(axis=1).tolist()
    return trace, dict(zip(settings.directions, rejected, strict=True))


class StepDriver:
    """Drives a search by the compiled step; round trips between its halves."""

    def __init__(self, objective: SearchObjective, scorer: RewardScorer):
        self._objective = objective
        self.rejected = np.zeros(len(objective.signs), np.int64)  # of each attempt, for their text
        self._scorer = scorer
        steps = build_step(scorer.graph, scorer.mesh, objective.settings)
        self._expand, self._admit = steps
        self._inputs = build_step_inputs(objective, scorer)
        keys = np.stack([_stream_key(*stream) for stream in objective.streams()])
        state = start(keys, objective.initial(), objective.settings.buffer)
        self._state = meshes.put(scorer.mesh, state, "")

    def advance(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Takes `count` steps.

        Returns:
          After each of them the best signed reward so far of each attempt, float32 [count, A], and
          its sequence, int32 [count, A, T].
        """
        rows = [self._step() for _ in range(count)]
        rewards, ids = (np.stack(column) for column in zip(*rows, strict=True))
        return rewards, ids

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything on which the next step depends."""
        return vars(fetch(self._state)) | {"rejected": self.rejected}

    def restore(self, arrays: Arrays) -> None:
        """The inverse of `arrays`."""
        self.rejected = np.array(arrays["rejected"])
        state = State(**{name: a for name, a in arrays.items() if name != "rejected"})
        self._state = meshes.put(self._scorer.mesh, state, "")

    def _step(self) -> tuple[np.ndarray, np.ndarray]:
        """One step, with round trips between its halves; returns best rewards [A], ids [A, T]."""
        ranked = self._expand(self._scorer.params, self._inputs, self._state)
        kept = self._state.buffer, self._state.buffer_rewards
        candidates, rewards, *kept = fetch((*ranked[:2], *kept))
        for ids, signed in zip(candidates, rewards, strict=True):
            if signed[0] == BROKEN:
                raise not_finite(ids[0])
        passes = meshes.put(self._scorer.mesh, self._passing(candidates, rewards, *kept), "")
        self._state = self._admit(self._state, ranked, passes)
        rewards, ids = fetch((self._state.best_rewards, self._state.best))
        return rewards, ids

    def _passing(
        self, candidates: np.ndarray, signed: np.ndarray, buffer: np.ndarray, known: np.ndarray
    ) -> np.ndarray:
        """Candidates that are admitted, bool [A, C]; only those that could be kept are checked.

        They are [A, C, T], best first, with their signed rewards; `buffer` [A, B, T] is what the
        attempts keep, with the rewards `known`.
        """
        settings = self._objective.settings
        latest = settings.takes_gradient  # keeps one candidate, even if it is worse
        passes = np.zeros(signed.shape, bool)
        for a, rewards in enumerate(signed):
            worst = -np.inf if latest else known[a].min()
            admitted = 0
            for c, ids in enumerate(candidates[a]):
                enough = admitted >= (1 if latest else settings.buffer)
                if enough or not rewards[c] > worst:
                    break
                if (ids == buffer[a]).all(-1).any():
                    passes[a, c] = True  # already in the buffer: nothing to check
                elif self._objective.passes(ids):
                    passes[a, c], admitted = True, admitted + 1
                else:
                    self.rejected[a] += 1
        return passes


def _stream_key(seed: int, *folds: int) -> np.ndarray:
    """Data of a threefry2x32 key: uint32 [2]."""
    key = jax.random.key(seed, impl="threefry2x32")
    for fold in folds:
        key = jax.random.fold_in(key, fold)
    return np.asarray(jax.random.key_data(key))
