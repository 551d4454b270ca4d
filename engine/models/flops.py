"""Floating-point operations of passes and searches, from the shapes of a model. The only count.

A position costs, in each layer, 2 operations per weight (q, k, v, o and the feed-forward; of a
mixture the router and the experts that it chooses) and 4·N·H operations per key that it attends to
(logits and mixing). In the last layer only the reward position needs q, o and the feed-forward.
Padding is left out, and so are norms, rotations, softmax and heads (below 1 % for published sizes).
"""

from engine.models.encoder_config import NetworkConfig


def matrices(c: NetworkConfig) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Rows and columns of the matrices of a layer that a position passes.

    Of keys and values, and of everything else: of a mixture, its router and the chosen experts.
    """
    query, shared = c.num_heads * c.head_size, c.num_kv_heads * c.head_size
    rest = [(c.width, query), (query, c.width)]
    rest += [(c.width, c.experts)] if c.experts else []
    network = [(c.width, c.ffn_width)] * (1 + c.gated) + [(c.ffn_width, c.width)]
    rest += network * (c.experts_per_token or 1)
    return [(c.width, shared), (c.width, shared)], rest


def response(config: NetworkConfig, positions: int, before: int) -> float:
    """Operations of one candidate of `positions` tokens behind `before` shared ones."""
    keys_values, rest, key = _of_position(config)
    last = positions * keys_values + rest + key * (before + positions)
    return extension(config, positions, before) * (1 - 1 / config.num_layers) + last


def gradient(config: NetworkConfig, length: int, positions: int, before: int) -> float:
    """Operations of a reward and its gradient with respect to the one-hot rows of `length` tokens.

    `positions` are those of the reply and the suffix; `before`, those of the prefix. The backward
    pass goes through activations, which costs as much as the forward one, then to the rows.
    """
    return 2 * response(config, positions, before) + 2 * length * config.vocab_size * config.width


def extension(config: NetworkConfig, positions: int, before: int) -> float:
    """Operations of appending `positions` tokens to a prefix of `before` positions."""
    keys_values, rest, key = _of_position(config)
    seen = before + (positions + 1) / 2  # on average, by a causal mask
    return config.num_layers * positions * (keys_values + rest + key * seen)


def _of_position(config: NetworkConfig) -> tuple[int, int, int]:
    """Operations of one position in one layer: keys and values, other weights, each key read."""
    keys_values, rest = (sum(2 * k * n for k, n in each) for each in matrices(config))
    return keys_values, rest, 4 * config.num_heads * config.head_size
