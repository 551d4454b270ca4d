"""The axis legend, and the frozen records that travel between rooms.

Axis letters, used in every einsum and every parameter's `axes`:

    B rows            C candidates        L layers           N query heads
    T positions       S key positions     P prefix positions K key/value heads
    D width           F feed-forward      V vocabulary       G = N / K
    H head size       R objectives        M models           Q quantiles of an objective
    E, I hidden widths of a reward head   S (in a head) mean and log-variance
    A attempts of a search (directions x restarts)          J prompts that are judged together
    U positions of a row that holds several replies         E replies of such a row
"""

import dataclasses
from typing import Any

import jax

# A jax.Array on devices, a np.ndarray on the host; shardings and shapes stand in for either.
Array = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptIds:
    """A conversation cut where the response goes: `prefix + response + suffix` is the input."""

    prompt: str
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidates:
    """Sequences that continue a shared prefix.

    Row c stands for the token sequence `prefix[:shared[c]] + ids[c, :last[c] + 1]`; what follows
    is padding, which a causal decoder never reads. The reward is read at `ids[c, last[c]]`.
    """

    ids: Array  # int32 [C, T]
    shared: Array  # int32 [C], positions of the prefix that row c continues
    last: Array  # int32 [C], index into T of the reward position

    def __len__(self) -> int:
        return len(self.ids)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Places:
    """Where own positions stand: what each sees of the shared prefix and of its row."""

    position: Array  # int32 [C, T], in the conversation
    shared: Array  # int32 [C, T], how many prefix positions it continues
    reply: Array  # int32 [C, T], which of the row's replies it is of: others are not seen


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyValues:
    """Keys and values of every layer; un-batched, because all candidates share one prefix."""

    keys: Array  # [L, P, K, H]
    values: Array  # [L, P, K, H]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Prefix:
    """What the prefix pass leaves for the candidates of one prompt."""

    key_values: KeyValues
    gates: tuple[Array, ...]  # float32 [R] a model: what its head reads in the prompt; [0] if none
