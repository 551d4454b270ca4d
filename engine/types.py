"""The axis legend, and the frozen records that travel between rooms.

Axis letters, used in every einsum, shape annotation and parameter's `axes`; each has one meaning:

    A attempts of a search, directions × restarts   N query heads
    B rows of a batch or a buffer                   P prefix positions
    C candidates                                    Q quantiles of an objective
    D width                                         R objectives
    E, I hidden widths of a reward head             S key positions
    F feed-forward width                            T positions
    G = N / K                                       U positions of a row of several replies
    H head size                                     V vocabulary
    K key/value heads                               W columns: rewards, objectives of all models
    L layers                                        X experts of a mixture
    M models                                        Y replies of a row of several
                                                    Z mean and log-variance of an objective

In the parameters of an encoder E is the width of its embeddings, S and T are rows of relative and
of learned positions, and Z are token types.

Letters in brackets are one dimension: `LD(NH)` has three, the last of N·H entries. Lower-case
letters are those of the gated delta rule:

    k heads of queries and keys     h head size of queries and keys     t taps of the convolution
    n heads of values               v head size of values
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flax import nnx

# Any: a jax.Array on devices, a np.ndarray on the host, or a sharding or shape in place of either.
Array = Any

# What the user says, or all turns before the reply: messages with `role`, `content` and what else
# the template reads. Any: JSON values.
Prompt = str | Sequence[Mapping[str, Any]]

# A model as Flax splits it: static structure, and parameters. Any: reward or language models.
Graph = nnx.GraphDef[Any]
Params = nnx.State[Any, Any]


def dimensions(axes: str) -> list[str]:
    """Letters of each dimension: `LD(NH)` -> ["L", "D", "NH"]."""
    return [merged or single for merged, single in re.findall(r"\((\w+)\)|(\w)", axes)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptIds:
    """A conversation cut where the response goes: `prefix + response + suffix` is the input."""

    prompt: Prompt
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
    """Places of the positions of rows: what each attends to in the prefix and in its row."""

    position: Array  # int32 [C, T], position in the conversation
    shared: Array  # int32 [C, T], number of prefix positions before it
    reply: Array  # int32 [C, T], the row's reply that it belongs to; it attends to no other


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyValues:
    """Keys and values of every layer; un-batched, because all candidates share one prefix."""

    keys: Array  # [L, P, K, H]
    values: Array  # [L, P, K, H]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Updates:
    """What a layer of the gated delta rule keeps of each position (`models/delta.py`).

    The state behind a position is the sum of the outer products of keys and updates up to it, each
    times the exponential of the decay since. So candidates may leave the prefix anywhere.
    """

    inputs: tuple[Array, Array, Array]  # [L, P, k·h] twice, and n·v: of the convolution
    keys: Array  # [L, P, k, h], normed
    updates: Array  # [L, P, n, v]
    decay: Array  # float32 [L, P, n], natural logarithms, up to a number of each head


# What is kept of a prefix: of all layers, or layer by layer where they are of two kinds.
Kept = KeyValues | Updates | tuple[KeyValues | Updates, ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Prefix:
    """What the prefix pass computes once for all candidates of a prompt."""

    key_values: Kept
    gates: tuple[Array, ...]  # float32 [R] per model, read in the prompt; [0] without a gate
