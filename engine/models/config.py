"""Configuration of a decoder: static numbers that determine its computation; rotary frequencies."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from engine.errors import AssayError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary position embedding.

    Attributes:
      theta: base of the frequencies.
      kind: `default`; `linear` divides all frequencies by `factor`; `llama3` divides low
        frequencies by `factor`, keeps high ones, and blends linearly between them.
      factor: see `kind`.
      low_freq_factor: turns over `original_positions` below which a frequency is low.
      high_freq_factor: turns over `original_positions` above which a frequency is high.
      original_positions: context length before scaling.
    """

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_positions: int = 0

    def __post_init__(self) -> None:
        if self.kind == "llama3" and not self.low_freq_factor < self.high_freq_factor:
            raise AssayError(
                f"rope.low_freq_factor={self.low_freq_factor}; allowed: below "
                f"high_freq_factor={self.high_freq_factor}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Everything that determines a decoder's computation; static and hashable under jit."""

    vocab_size: int  # V, rows of the embedding
    width: int  # D
    ffn_width: int  # F
    num_layers: int  # L
    num_heads: int  # N
    num_kv_heads: int  # K
    head_size: int  # H
    rms_eps: float
    rope: Rope
    max_positions: int
    activation: str = "silu"  # of the gated feed-forward: `silu` or `gelu_tanh`
    norm_offset: bool = False  # Gemma: normed * (1 + weight), all in float32, then cast
    post_norms: bool = False  # Gemma: a norm after attention and after feed-forward too
    embedding_scale: bool = False  # Gemma: times sqrt(width), rounded to the parameters' dtype
    query_scale: float | None = None  # factor of attention logits; None: head_size ** -0.5
    attention_softcap: float | None = None  # cap * tanh(logits / cap), before the mask
    qkv_bias: bool = False  # Qwen 2
    qk_norm: bool = False  # Qwen 3: RMSNorm over the head size of q and k, before RoPE
    window: int | None = None  # a query attends to keys at distance 0 <= q - k < window …
    window_layers: tuple[bool, ...] = ()  # … in these layers; empty: in none
    experts: int = 0  # X, feed-forwards of width F of a mixture; 0: one feed-forward, no mixture
    experts_per_token: int = 0  # which the router chooses for each position
    experts_renormalised: bool = True  # whether the weights of the chosen ones sum to 1

    def __post_init__(self) -> None:
        sizes = ["vocab_size", "width", "ffn_width", "num_layers", "num_heads", "head_size"]
        for field in [*sizes, "max_positions", *(["window"] if self.window is not None else [])]:
            if getattr(self, field) < 1:
                raise AssayError(f"decoder.{field}={getattr(self, field)}; allowed: integers >= 1")
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads:
            raise AssayError(
                f"decoder.num_kv_heads={self.num_kv_heads}; "
                f"allowed: divisors of num_heads={self.num_heads}"
            )
        if self.activation not in ("silu", "gelu_tanh"):
            raise AssayError(
                f"decoder.activation={self.activation!r}; allowed: 'silu', 'gelu_tanh'"
            )
        if self.window_layers and len(self.window_layers) != self.num_layers:
            raise AssayError(
                f"decoder.window_layers has {len(self.window_layers)} entries; allowed: one per "
                f"layer, {self.num_layers}"
            )
        if not min(self.experts, 1) <= self.experts_per_token <= self.experts:
            raise AssayError(
                f"decoder.experts_per_token={self.experts_per_token}; allowed: integers from 1 to "
                f"experts={self.experts}"
            )
        if self.head_size % 2:
            raise AssayError(f"decoder.head_size={self.head_size}; allowed: even integers")

    @property
    def sizes(self) -> dict[str, int]:
        """Axis letter -> size, for the letters of a decoder's parameters."""
        return {
            "L": self.num_layers,
            "D": self.width,
            "F": self.ffn_width,
            "V": self.vocab_size,
            "N": self.num_heads,
            "K": self.num_kv_heads,
            "H": self.head_size,
            "X": self.experts,
        }

    # Any: JSON values.
    def to_json(self) -> dict[str, Any]:
        """The fields for `model.json`.

        Those behind `window_layers` are left out where they are neutral, so that a checkpoint has
        the hash that it had before there were such fields.
        """
        fields = dataclasses.fields(self)
        first = 1 + [field.name for field in fields].index("window_layers")
        neutral = {field.name: field.default for field in fields[first:]}
        said = dataclasses.asdict(self).items()
        return {name: v for name, v in said if name not in neutral or v != neutral[name]}

    # Any: parsed JSON.
    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "DecoderConfig":
        """The inverse of `to_json`."""
        layers = tuple(fields["window_layers"])
        return cls(**{**fields, "rope": Rope(**fields["rope"]), "window_layers": layers})


def inverse_frequencies(rope: Rope, head_size: int) -> list[float]:
    """Angle in radians per position of each of the H/2 rotated pairs, in double precision.

    Checked against `transformers` 5.23 `ROPE_INIT_FUNCTIONS` and the constants published with
    Llama 3.1 and 3.2.
    """
    plain = [rope.theta ** (-2 * i / head_size) for i in range(head_size // 2)]
    match rope.kind:
        case "default":
            return plain
        case "linear":
            return [f / rope.factor for f in plain]
        case "llama3":
            return [_llama3_frequency(f, rope) for f in plain]
    raise AssayError(f"rope.kind={rope.kind!r}; allowed: 'default', 'linear', 'llama3'")


def _llama3_frequency(frequency: float, rope: Rope) -> float:
    # keep: 1 for short wavelengths (unchanged), 0 for long ones (divided), linear between.
    turns = rope.original_positions * frequency / (2 * math.pi)
    keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    keep = min(max(keep, 0.0), 1.0)
    return keep * frequency + (1 - keep) * frequency / rope.factor
