"""Configuration of a decoder: static numbers that determine its computation; rotary frequencies."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from engine.errors import AssayError

ACTIVATIONS, NORMS = ("silu", "gelu_tanh", "gelu"), ("rms", "layer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary position embedding.

    Attributes:
      theta: base of the frequencies.
      kind: `default`; `linear` divides all frequencies by `factor`; `llama3` divides low
        frequencies by `factor`, keeps high ones, and blends linearly between them; `longrope`
        divides each by its own one of `divisors`.
      factor: see `kind`.
      low_freq_factor: turns over `original_positions` below which a frequency is low.
      high_freq_factor: turns over `original_positions` above which a frequency is high.
      original_positions: context length before scaling.
      attention_factor: factor of cosine and sine, so that its square is one of attention logits.
      divisors: one for each rotated pair, of `longrope`.
    """

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_positions: int = 0
    # Younger than the fields above, as those of `DecoderConfig`.
    attention_factor: float = 1.0
    divisors: tuple[float, ...] = ()

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
    activation: str = "silu"  # of the feed-forward: `silu`, `gelu_tanh`, or `gelu` by erf
    norm_offset: bool = False  # Gemma: normed * (1 + weight), all in float32, then cast
    post_norms: bool = False  # Gemma: a norm after attention and after feed-forward too
    embedding_scale: bool = False  # Gemma: times sqrt(width), rounded to the parameters' dtype
    query_scale: float | None = None  # factor of attention logits; None: head_size ** -0.5
    attention_softcap: float | None = None  # cap * tanh(logits / cap), before the mask
    qkv_bias: bool = False  # Qwen 2
    qk_norm: bool = False  # Qwen 3: RMSNorm over the head size of q and k, before RoPE
    window: int | None = None  # a query attends to keys at distance 0 <= q - k < window …
    window_layers: tuple[bool, ...] = ()  # … in these layers; empty: in none
    # Younger than the fields above: model.json states them where they are not neutral.
    norm: str = "rms"  # or `layer`: LayerNorm with a bias, of every layer and of the readout
    biases: bool = False  # GPT: of o, up and down
    gated: bool = True  # False: down(activation(up))
    parallel: bool = False  # GPT-NeoX: attention and feed-forward read the same residual stream
    rotary_size: int | None = None  # first dimensions of a head that are rotated; None: all
    learned_positions: bool = False  # GPT-2: added to the embedding; nothing is rotated

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
        for field, allowed in (("activation", ACTIVATIONS), ("norm", NORMS)):
            if (value := getattr(self, field)) not in allowed:
                raise AssayError(
                    f"decoder.{field}={value!r}; allowed: {', '.join(map(repr, allowed))}"
                )
        if self.window_layers and len(self.window_layers) != self.num_layers:
            raise AssayError(
                f"decoder.window_layers has {len(self.window_layers)} entries; allowed: one per "
                f"layer, {self.num_layers}"
            )
        if self.head_size % 2:
            raise AssayError(f"decoder.head_size={self.head_size}; allowed: even integers")
        if self.rotated % 2 or not 0 <= self.rotated <= self.head_size:
            raise AssayError(
                f"decoder.rotary_size={self.rotary_size}; allowed: even integers up to "
                f"head_size={self.head_size}"
            )
        if self.rope.kind == "longrope" and len(self.rope.divisors) != self.rotated // 2:
            raise AssayError(
                f"decoder.rope has {len(self.rope.divisors)} divisors; allowed: one for each of "
                f"the {self.rotated // 2} pairs that are rotated"
            )

    @property
    def rotated(self) -> int:
        """Dimensions of a head that are rotated: its first ones."""
        if self.learned_positions:
            return 0
        return self.head_size if self.rotary_size is None else self.rotary_size

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
            "T": self.max_positions,
        }

    # Any: what JSON holds.
    def to_json(self) -> dict[str, Any]:
        """The fields, for `model.json` and hashes; the younger ones where they are not neutral."""
        return stated(self, "window_layers") | {"rope": stated(self.rope, "original_positions")}

    # Any: parsed JSON.
    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "DecoderConfig":
        """The inverse of `to_json`."""
        layers = tuple(fields["window_layers"])
        rope = Rope(**{**fields["rope"], "divisors": tuple(fields["rope"].get("divisors", ()))})
        return cls(**{**fields, "rope": rope, "window_layers": layers})


# Any: a frozen dataclass, and what JSON holds.
def stated(config: Any, last: str) -> dict[str, Any]:
    """The fields of a config; those after `last` only where they differ from their default."""
    fields = dataclasses.fields(config)
    first = [field.name for field in fields].index(last) + 1
    neutral = {f.name for f in fields[first:] if getattr(config, f.name) == f.default}
    return {k: v for k, v in dataclasses.asdict(config).items() if k not in neutral}


def inverse_frequencies(rope: Rope, size: int) -> list[float]:
    """Angle in radians per position of each pair of `size` rotated dimensions, in double precision.

    Checked against `transformers` 5.23 `ROPE_INIT_FUNCTIONS` and the constants published with
    Llama 3.1 and 3.2.
    """
    plain = [rope.theta ** (-2 * i / size) for i in range(size // 2)]
    match rope.kind:
        case "default":
            return plain
        case "linear":
            return [f / rope.factor for f in plain]
        case "llama3":
            return [_llama3_frequency(f, rope) for f in plain]
        case "longrope":
            return [f / divisor for f, divisor in zip(plain, rope.divisors, strict=True)]
    raise AssayError(f"rope.kind={rope.kind!r}; allowed: 'default', 'linear', 'llama3', 'longrope'")


def _llama3_frequency(frequency: float, rope: Rope) -> float:
    # keep: 1 for short wavelengths (unchanged), 0 for long ones (divided), linear between.
    turns = rope.original_positions * frequency / (2 * math.pi)
    keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    keep = min(max(keep, 0.0), 1.0)
    return keep * frequency + (1 - keep) * frequency / rope.factor
