"""Configuration of an encoder: static numbers that determine its computation."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from engine.errors import AssayError
from engine.models.config import DecoderConfig, Rope, with_ropes, written_fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Everything that determines an encoder's computation; static and hashable under jit."""

    kind: str = "encoder"  # in model.json, where a decoder has none
    vocab_size: int  # V, rows of the embedding
    width: int  # D
    ffn_width: int  # F
    num_layers: int  # L
    num_heads: int  # N
    head_size: int  # H
    rms_eps: float  # of every LayerNorm; the name that a decoder has for it
    max_positions: int  # of a conversation
    embedding_width: int  # E; another than the width is projected to it, as in ELECTRA
    activation: str = "gelu"
    pooling: str = "first"  # position that the classifier reads, or the `mean` of all
    pooler: str = "tanh"  # activation of the layer under the classifier
    pooler_norm: bool = False  # and a norm behind it: ModernBERT
    biases: bool = True  # of all matrices, and of norms
    gated: bool = False  # down(activation(up) * gate)
    pre_norms: bool = False  # norms before attention and feed-forward, and one behind all layers
    position_rows: int = 0  # T, rows of learned positions; 0: none are added
    pad: int | None = None  # RoBERTa: positions count other ids from `pad` + 1 on; pads stay there
    token_types: int = 0  # Z, rows of their embedding; 0: none is added
    separator: int | None = None  # behind its first place the token type is 1; None: all are 0
    relative: tuple[str, ...] = ()  # DeBERTa: `c2p`, `p2c`
    relative_span: int = 0  # S / 2, of the rows for relative positions
    relative_most: int = 0  # distance of the last bucket; 0: each distance has its own row
    relative_norm: bool = False  # a norm of these rows
    relative_shared: bool = False  # they have the layer's k and q, not matrices of their own
    rope: Rope | None = None  # rotary positions; None: nothing is rotated
    window_rope: Rope | None = None  # of the layers in `window_layers`
    window: int = 0  # a query attends to keys at distances up to it …
    window_layers: tuple[bool, ...] = ()  # … in these layers; empty: in none

    # What rooms that plan and restore ask of a decoder.
    norm, norm_offset, parallel, shares_prefix = "none", False, False, False
    experts = experts_per_token = 0
    attention_gate = False
    delta_key_heads = delta_value_heads = delta_key_size = delta_value_size = 0

    def __post_init__(self) -> None:
        if self.separator is not None and self.token_types < 2:
            raise AssayError(f"encoder.token_types={self.token_types} with a separator; allowed: 2")
        if {*self.relative} - {"c2p", "p2c"} or bool(self.relative) != bool(self.relative_span):
            raise AssayError(f"encoder.relative={self.relative}; allowed: 'c2p', 'p2c', and a span")

    @property
    def num_kv_heads(self) -> int:
        """Heads of keys and values: as many as of queries."""
        return self.num_heads

    @property
    def deltas(self) -> tuple[bool, ...]:
        """Whether each layer has the gated delta rule: none has."""
        return (False,) * self.num_layers

    @property
    def sizes(self) -> dict[str, int]:
        """Axis letter -> size, for the letters of an encoder's parameters."""
        return {
            **{"L": self.num_layers, "D": self.width, "F": self.ffn_width, "V": self.vocab_size},
            **{"N": self.num_heads, "K": self.num_heads, "H": self.head_size},
            **{"E": self.embedding_width, "T": self.position_rows, "Z": self.token_types},
            "S": 2 * self.relative_span,
        }

    def first(self, layers: int) -> "EncoderConfig":
        """Itself: a classifier reads the end alone, so models of other depths share nothing."""
        return self

    # Any: what JSON holds.
    def to_json(self) -> dict[str, Any]:
        """The fields, for `model.json` and hashes; those with a default only where they differ."""
        return {"kind": self.kind} | written_fields(self, "embedding_width")

    # Any: parsed JSON.
    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "EncoderConfig":
        """The inverse of `to_json`."""
        return cls(**with_ropes(fields))


NetworkConfig = DecoderConfig | EncoderConfig


# Any: parsed JSON.
def network_from_json(fields: Mapping[str, Any]) -> NetworkConfig:
    """The inverse of `to_json` of either config."""
    kind = EncoderConfig if fields.get("kind") == EncoderConfig.kind else DecoderConfig
    return kind.from_json(fields)
