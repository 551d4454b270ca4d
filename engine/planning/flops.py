"""Floating-point operations of passes and searches, from the shapes of a model. The only count.

A position costs, in each layer, 2 operations per weight (q, k, v, o and the feed-forward; of a
mixture the router and the experts that it chooses) and 4·N·H operations per key that it attends to
(logits and mixing). In the last layer only the reward position needs q, o and the feed-forward.
The counts leave out padding:

    gradient = 2 · response + 2·T·V·D   backward through activations, then to the one-hot rows
    step     = gradient + the parent appended to the prefix + one response per candidate

Appending the parent is counted on accelerators too, where the gradient's pass gives it (about 1 %
of a step), so that a budget of operations gives the same search everywhere.

The counts also leave out norms, rotations, softmax and heads (below 1 % for every published size).
"""

from collections import Counter
from collections.abc import Iterable

from engine.models.config import DecoderConfig


def matrices(c: DecoderConfig) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Rows and columns of the matrices of a layer that a position passes.

    Of keys and values, and of everything else: of a mixture, its router and the chosen experts.
    """
    query, shared = c.num_heads * c.head_size, c.num_kv_heads * c.head_size
    rest = [(c.width, query), (query, c.width)]
    rest += [(c.width, c.experts)] if c.experts else []
    network = [(c.width, c.ffn_width)] * (1 + c.gated) + [(c.ffn_width, c.width)]
    rest += network * (c.experts_per_token or 1)
    return [(c.width, shared), (c.width, shared)], rest


def layer_weights(config: DecoderConfig) -> int:
    """Elements of the matrices of one layer, with all experts of a mixture."""
    passed = sum(k * n for each in matrices(config) for k, n in each)
    of_expert = (2 + config.gated) * config.width * config.ffn_width
    return passed + (config.experts - config.experts_per_token) * of_expert


def response(config: DecoderConfig, positions: int, before: int) -> float:
    """Operations of one candidate of `positions` tokens behind `before` shared ones."""
    keys_values, rest, key = _of_position(config)
    last = positions * keys_values + rest + key * (before + positions)
    return extension(config, positions, before) * (1 - 1 / config.num_layers) + last


def gradient(config: DecoderConfig, length: int, positions: int, before: int) -> float:
    """Operations of a reward and its gradient with respect to the one-hot rows of `length` tokens.

    `positions` are those of the reply and the suffix; `before`, those of the prefix.
    """
    to_rows = 2 * length * config.vocab_size * config.width
    return 2 * response(config, positions, before) + to_rows


def extension(config: DecoderConfig, positions: int, before: int) -> float:
    """Operations of appending `positions` tokens to a prefix of `before` positions."""
    keys_values, rest, key = _of_position(config)
    seen = before + (positions + 1) / 2  # on average, by a causal mask
    return config.num_layers * positions * (keys_values + rest + key * seen)


def step_operations(
    config: DecoderConfig,
    first: Iterable[int],
    length: int,
    prefixes: Iterable[int],
    suffix: int,
    *,
    with_gradient: bool,
) -> float:
    """Operations of one step of one attempt, for prompts of `prefixes` positions.

    Of each candidate, positions from `first` on are computed: the rest of the `length` tokens of
    the reply, and the suffix.
    """
    total, prefixes, starts = 0.0, list(prefixes), Counter(first)
    for before in prefixes:
        for start, count in starts.items():
            total += count * response(config, length - start + suffix, before + start)
    for before in prefixes:
        total += extension(config, length, before)
        if with_gradient:
            total += gradient(config, length, length + suffix, before)
    return total


def _of_position(config: DecoderConfig) -> tuple[int, int, int]:
    """Operations of one position in one layer: keys and values, other weights, each key read."""
    keys_values, rest = (sum(2 * k * n for k, n in each) for each in matrices(config))
    return keys_values, rest, 4 * config.num_heads * config.head_size
