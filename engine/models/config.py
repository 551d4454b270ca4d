"""Configuration of a decoder: static numbers that determine its computation; rotary frequencies."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from engine.errors import AssayError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary position embedding."""

    theta: float  # base of the frequencies
    # `default`; `linear` divides all frequencies by `factor`; `llama3` divides low frequencies by
    # `factor`, keeps high ones, and blends linearly between them; `yarn` does so too, with limits
    # at whole numbers of pairs; `longrope` divides each by its own one of `divisors`.
    kind: str = "default"
    factor: float = 1.0  # see `kind`
    low_freq_factor: float = 1.0  # turns over `original_positions` below which a frequency is low
    high_freq_factor: float = 1.0  # turns over `original_positions` above which a frequency is high
    original_positions: int = 0  # context length before scaling
    # Added later, as in `DecoderConfig`.
    # Factor of cosine and sine, so that its square is one of attention logits.
    attention_factor: float = 1.0
    divisors: tuple[float, ...] = ()  # one for each rotated pair, of `longrope`

    def __post_init__(self) -> None:
        if self.kind in ("llama3", "yarn") and not self.low_freq_factor < self.high_freq_factor:
            raise AssayError(
                f"rope.low_freq_factor={self.low_freq_factor}; allowed: below "
                f"high_freq_factor={self.high_freq_factor}"
            )
        if self.kind == "yarn" and not self.theta > 1:
            raise AssayError(f"rope.theta={self.theta} of YaRN; allowed: above 1")


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
    activation: str = "silu"  # of the feed-forward: `silu`, `relu2`, `gelu_tanh`, `gelu` by erf
    norm_offset: bool = False  # Gemma: normed * (1 + weight), all in float32, then cast
    post_norms: bool = False  # Gemma: a norm after attention and after feed-forward too
    embedding_scale: bool = False  # Gemma: times sqrt(width), rounded to the parameters' dtype
    query_scale: float | None = None  # factor of attention logits; None: head_size ** -0.5
    attention_softcap: float | None = None  # cap * tanh(logits / cap), before the mask
    qkv_bias: bool = False  # Qwen 2
    qk_norm: bool = False  # Qwen 3: RMSNorm over the head size of q and k, before RoPE
    window: int | None = None  # a query attends to keys at distance 0 <= q - k < window …
    window_layers: tuple[bool, ...] = ()  # … in these layers; empty: in none
    # Added later: model.json has only those that differ from their defaults.
    norm: str = "rms"  # or `layer`: LayerNorm with a bias, of every layer and of the readout
    biases: bool = False  # GPT: of o, up and down
    gated: bool = True  # False: down(activation(up))
    parallel: bool = False  # GPT-NeoX: attention and feed-forward read the same residual stream
    rotary_size: int | None = None  # first dimensions of a head that are rotated; None: all
    learned_positions: bool = False  # GPT-2: added to the embedding; nothing is rotated
    window_rope: Rope | None = None  # Gemma 3: of the layers in `window_layers`; None: `rope`
    pre_norms: bool = True  # OLMo 2 has no norms before attention and feed-forward
    qk_norm_whole: bool = False  # OLMo 2: `qk_norm` is over all heads together
    norm_float32: bool = False  # OLMo 2: normed * weight in float32, then cast
    no_rope_layers: tuple[bool, ...] = ()  # SmolLM3 does not rotate in these layers; empty: in all
    experts: int = 0  # X, feed-forwards of width F of a mixture; 0: one feed-forward, no mixture
    experts_per_token: int = 0  # which the router chooses for each position
    experts_renormalised: bool = True  # whether the weights of the chosen ones sum to 1
    attention_gate: bool = False  # Qwen 3.5: mixed values times the sigmoid of a product with x
    delta_layers: tuple[bool, ...] = ()  # Qwen 3.5: the gated delta rule in place of attention …
    delta_key_heads: int = 0  # … with this number of heads of queries and keys, …
    delta_value_heads: int = 0  # … a multiple of it of values, each with a state, …
    delta_key_size: int = 0  # … the sizes of a head of keys, …
    delta_value_size: int = 0  # … and of values, …
    delta_taps: int = 0  # … and positions that the convolution before it reads

    shares_prefix = True  # candidates of one prompt; an `EncoderConfig` shares none

    def __post_init__(self) -> None:
        sizes = ["vocab_size", "width", "ffn_width", "num_layers", "num_heads", "head_size"]
        sizes += ["max_positions", *(["window"] if self.window is not None else [])]
        if any(self.delta_layers):
            sizes += ["delta_key_heads", "delta_value_heads", "delta_key_size", "delta_value_size"]
            sizes += ["delta_taps"]
        for field in sizes:
            if getattr(self, field) < 1:
                raise AssayError(f"decoder.{field}={getattr(self, field)}; allowed: integers >= 1")
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads:
            raise AssayError(
                f"decoder.num_kv_heads={self.num_kv_heads}; "
                f"allowed: divisors of num_heads={self.num_heads}"
            )
        for field in ("window_layers", "no_rope_layers", "delta_layers"):
            if (entries := len(getattr(self, field))) not in (0, self.num_layers):
                raise AssayError(
                    f"decoder.{field} has {entries} entries; allowed: one per layer, "
                    f"{self.num_layers}"
                )
        if self.window_rope and not self.window_layers:
            raise AssayError("decoder.window_rope without window_layers; allowed: one per layer")
        if not min(self.experts, 1) <= self.experts_per_token <= self.experts:
            raise AssayError(
                f"decoder.experts_per_token={self.experts_per_token}; allowed: integers from 1 to "
                f"experts={self.experts}"
            )
        if self.delta_key_heads and self.delta_value_heads % self.delta_key_heads:
            raise AssayError(
                f"decoder.delta_key_heads={self.delta_key_heads}; "
                f"allowed: divisors of delta_value_heads={self.delta_value_heads}"
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
            "X": self.experts,
            "k": self.delta_key_heads,
            "n": self.delta_value_heads,
            "h": self.delta_key_size,
            "v": self.delta_value_size,
            "t": self.delta_taps,
        }

    @property
    def deltas(self) -> tuple[bool, ...]:
        """Whether each layer has the gated delta rule in place of attention."""
        return self.delta_layers or (False,) * self.num_layers

    @property
    def period(self) -> int:
        """Layers after which their kinds repeat: 1 where all are of one kind."""
        kinds, lengths = self.deltas, range(1, self.num_layers + 1)
        return next(n for n in lengths if kinds[n:] == kinds[: self.num_layers - n])

    @property
    def layer_ropes(self) -> tuple[Rope | None, ...]:
        """The rotary embedding of each layer; None in one that does not rotate."""
        slides = self.window_layers or (False,) * self.num_layers
        still = self.no_rope_layers or (False,) * self.num_layers
        of_window = self.window_rope or self.rope
        return tuple(
            None if still[layer] else of_window if slides[layer] else self.rope
            for layer in range(self.num_layers)
        )

    def first(self, layers: int) -> "DecoderConfig":
        """The config of a decoder's first layers."""
        return dataclasses.replace(
            self,
            num_layers=layers,
            window_layers=self.window_layers[:layers],
            no_rope_layers=self.no_rope_layers[:layers],
            delta_layers=self.delta_layers[:layers],
        )

    # Any: what JSON holds.
    def to_json(self) -> dict[str, Any]:
        """The fields, for `model.json` and hashes; later ones only where set."""
        ropes = {"rope": self.rope, "window_rope": self.window_rope}
        written = {
            name: written_fields(rope, "original_positions") for name, rope in ropes.items() if rope
        }
        return written_fields(self, "window_layers") | written

    # Any: parsed JSON.
    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "DecoderConfig":
        """The inverse of `to_json`."""
        return cls(**with_ropes(fields))


# Any: a frozen dataclass, and what JSON holds.
def written_fields(config: Any, last: str) -> dict[str, Any]:
    """The fields of a config; those after `last` only where they differ from their default."""
    fields = dataclasses.fields(config)
    first = [field.name for field in fields].index(last) + 1
    neutral = {f.name for f in fields[first:] if getattr(config, f.name) == f.default}
    return {k: v for k, v in dataclasses.asdict(config).items() if k not in neutral}


# Any: what JSON holds.
def with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a config that was read from JSON, with tuples in place of lists."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}


def inverse_frequencies(rope: Rope | None, size: int) -> list[float]:
    """Angle in radians per position of each pair of `size` rotated dimensions, in double precision.

    Without a rope all are 0: nothing is rotated, exactly.

    Checked against `transformers` 5.23 `ROPE_INIT_FUNCTIONS` and the constants published with
    Llama 3.1 and 3.2.
    """
    if rope is None:
        return [0.0] * (size // 2)
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
        case "yarn":
            return _yarn_frequencies(plain, rope, size)
    raise AssayError(
        f"rope.kind={rope.kind!r}; allowed: 'default', 'linear', 'llama3', 'longrope', 'yarn'"
    )


def _llama3_frequency(frequency: float, rope: Rope) -> float:
    # keep: 1 for short wavelengths (unchanged), 0 for long ones (divided), linear between.
    turns = rope.original_positions * frequency / (2 * math.pi)
    keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    keep = min(max(keep, 0.0), 1.0)
    return keep * frequency + (1 - keep) * frequency / rope.factor


def _yarn_frequencies(plain: list[float], rope: Rope, size: int) -> list[float]:
    # The numbers of the pairs that make so many turns: before the first one frequencies are kept,
    # from the second one on they are divided, and linear between.
    first, second = (
        size * math.log(rope.original_positions / (2 * math.pi * turns)) / 2 / math.log(rope.theta)
        for turns in (rope.high_freq_factor, rope.low_freq_factor)
    )
    low, high = max(math.floor(first), 0), min(math.ceil(second), size - 1)
    span = high - low or 0.001
    divided = [min(max((i - low) / span, 0.0), 1.0) for i in range(len(plain))]
    return [f * (1 - d) + f / rope.factor * d for f, d in zip(plain, divided, strict=True)]


# Any: parsed JSON.
def with_ropes(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a decoder or an encoder as its constructor takes them."""
    read = with_tuples(fields)
    for name in ("rope", "window_rope"):
        if read.get(name):
            read[name] = Rope(**with_tuples(read[name]))
    return read
