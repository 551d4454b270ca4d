"""What an attempt keeps: its state, the parent that it draws, the candidates that it admits.

Rewards here are signed: higher is better in both directions.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from engine.types import Array

UNKNOWN = -np.inf  # reward of a sequence that was not scored
BROKEN = np.inf  # stands for a reward that is not finite; the host refuses it


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


def climbed(rewards: Any, target: float) -> Any:
    """What is climbed, of signed rewards: themselves, or minus the squared distance to a target.

    `BROKEN` stays on top, where the host sees it.
    """
    if not target:
        return rewards
    return jnp.where(rewards == BROKEN, BROKEN, -((rewards - target) ** 2))


def draw_parent(
    key: Array, buffer: Int[Array, "B T"], rewards: Float[Array, "B"], spread: float
) -> Int[Array, "T"]:
    """One sequence of a buffer: its first, or by rank with probability exp(-rank / spread)."""
    if not spread:
        return buffer[0]
    rank = jnp.arange(len(rewards))
    there = jnp.isfinite(rewards) | (rank == 0)
    return buffer[jax.random.categorical(key, jnp.where(there, -rank / spread, -jnp.inf))]


def admit(
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
    movable = found[top] > UNKNOWN
    return (
        jnp.where(movable, moved, buffer),
        jnp.where(movable, jnp.concatenate([found[top][None], rewards[:-1]]), rewards),
    )


_KEEP = {"elite": _elite, "latest": _latest}
