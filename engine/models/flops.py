"""Floating-point operations of passes and searches, from the shapes of a model. The only count.

A position costs, in each layer, 2 operations per weight (q, k, v, o and the feed-forward; of a
mixture the router and the experts that it chooses) and 4·N·H operations per key that it attends to
(logits and mixing), in a layer of the gated delta rule twice as many of its own sizes. In the last
layer only the reward position needs q, o and the feed-forward; where layers are of two kinds, it
counts as their mean.
Padding is left out, and so are norms, rotations, softmax and heads (below 1 % for published sizes).
"""

from engine.models.encoder_config import NetworkConfig


def matrices(
    c: NetworkConfig, of_delta: bool = False
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Rows and columns of the matrices of a layer that a position passes.

    Of keys and values, and of everything else: of a mixture, its router and the chosen experts.
    A layer of the gated delta rule needs its queries and decays with its keys.
    """
    query, shared = c.num_heads * c.head_size, c.num_kv_heads * c.head_size
    before, rest = [shared, shared], [(c.width, query)] * (1 + c.attention_gate)
    if of_delta:
        keys, query = c.delta_key_heads * c.delta_key_size, c.delta_value_heads * c.delta_value_size
        before = [keys, keys, query, c.delta_value_heads, c.delta_value_heads]
        rest = [(c.width, query)]
    rest += [(query, c.width)]
    rest += [(c.width, c.experts)] if c.experts else []
    network = [(c.width, c.ffn_width)] * (1 + c.gated) + [(c.ffn_width, c.width)]
    rest += network * (c.experts_per_token or 1)
    return [(c.width, columns) for columns in before], rest


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


def _of_position(config: NetworkConfig) -> tuple[float, float, float]:
    """Operations of one position in a layer, the mean of all: keys and values, others, each key."""
    layers = []
    for of_delta in config.deltas:
        keys_values, rest = (sum(2 * k * n for k, n in e) for e in matrices(config, of_delta))
        key = config.num_heads * config.head_size
        if of_delta:
            key = config.delta_value_heads * (config.delta_key_size + config.delta_value_size)
        layers.append((keys_values, rest, 4 * key))
    keys_values, rest, key = (sum(counts) / len(layers) for counts in zip(*layers, strict=True))
    return keys_values, rest, key
