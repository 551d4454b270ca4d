"""Hugging Face config.json -> DecoderConfig; refuses what it does not understand."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from engine.errors import AssayError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary position embedding: base `theta` and how published configs stretch it.

    `kind` is `default`, `linear` (all frequencies divided by `factor`) or `llama3` (low
    frequencies divided by `factor`, high ones kept, linear blend between).
    """

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_positions: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Everything that shapes the decoder's computation; static and hashable under jit."""

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

    def __post_init__(self):
        for field in ("vocab_size", "width", "ffn_width", "num_layers", "num_heads", "head_size"):
            if getattr(self, field) < 1:
                raise AssayError(f"decoder.{field}={getattr(self, field)}; allowed: integers >= 1")
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads:
            raise AssayError(
                f"decoder.num_kv_heads={self.num_kv_heads}; "
                f"allowed: divisors of num_heads={self.num_heads}"
            )
        if self.head_size % 2:
            raise AssayError(f"decoder.head_size={self.head_size}; allowed: even integers")

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "DecoderConfig":
        """The inverse of `dataclasses.asdict`, for `model.json`."""
        return cls(**{**fields, "rope": Rope(**fields["rope"])})


# Class names whose `model_type` decoder this engine reads. The reward head is recognised by its
# keys (checkpoint/hf.py), because the same class name is published with different heads.
ARCHITECTURES = {
    "LlamaForSequenceClassification": "llama",
    "INFORMForSequenceClassification": "llama",  # INF-ORM-Llama3.1-70B: MLP under `score`
}

# Attributes that change the computation unless they hold the value that this decoder implements.
_FIXED = {
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "pretraining_tp": (1, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({}, None),
    "tie_encoder_decoder": (False, None),
    "quantization_config": (None,),
    "num_labels": (1, None),
    "partial_rotary_factor": (1, 1.0, None),
}
_READ = {
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "max_position_embeddings",
    "model_type",
    "architectures",
    "id2label",
}
# Attributes that say nothing about a forward pass in evaluation mode: training, generation,
# bookkeeping, file format, special ids (the reward position is explicit here) and tying (a reward
# model has no language-model head to tie).
_HARMLESS = {
    "_name_or_path",
    "_attn_implementation_autoset",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "initializer_range",
    "attention_dropout",
    "use_cache",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    "label2id",
    "problem_type",
    "classifier_dropout",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "torchscript",
    "chunk_size_feed_forward",
    "finetuning_task",
    "task_specific_params",
    "tokenizer_class",
    "prefix",
    "is_decoder",
    "is_llama_config",
    "rope_interleaved",  # a stale marker in SmolLM configs: the weights are half-split
    # Stale in GRM configs: the head is the one whose tensors are there.
    "vhead_layer_type",
    "vhead_num_layers",
    "vhead_num_neurons",
    "transformers.js_config",
    "pretrained_config",
}


def decoder_config(hf: Mapping[str, Any]) -> DecoderConfig:
    """Reads a parsed config.json.

    Raises:
      AssayError: unknown architecture, an attribute that is not understood or holds a value that
        this decoder does not implement, a missing attribute; each by name.
    """
    _check_architecture(hf)
    _check_attributes(hf)
    width, num_heads = _require(hf, "hidden_size"), _require(hf, "num_attention_heads")
    return DecoderConfig(
        vocab_size=_require(hf, "vocab_size"),
        width=width,
        ffn_width=_require(hf, "intermediate_size"),
        num_layers=_require(hf, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=hf.get("num_key_value_heads") or num_heads,
        head_size=hf.get("head_dim") or width // num_heads,
        rms_eps=float(_require(hf, "rms_norm_eps")),
        rope=_rope(hf),
        max_positions=_require(hf, "max_position_embeddings"),
    )


def inverse_frequencies(rope: Rope, head_size: int) -> list[float]:
    """Angle in radians per position of each of the H/2 rotated pairs, as double precision.

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
    # 1 where the wavelength is short (keep), 0 where it is long (divide), linear between.
    turns = rope.original_positions * frequency / (2 * math.pi)
    keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    keep = min(max(keep, 0.0), 1.0)
    return keep * frequency + (1 - keep) * frequency / rope.factor


def _require(hf: Mapping[str, Any], name: str) -> Any:
    value = hf.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AssayError(f"config.json: {name}={value!r}; allowed: a number")
    return value


def _check_architecture(hf: Mapping[str, Any]) -> None:
    named = hf.get("architectures") or [None]
    if len(named) != 1 or named[0] not in ARCHITECTURES:
        allowed = ", ".join(sorted(ARCHITECTURES))
        raise AssayError(f"config.json: unknown architecture {named[0]!r}; allowed: {allowed}")
    family = ARCHITECTURES[named[0]]
    if hf.get("model_type") != family:
        raise AssayError(
            f"config.json: model_type={hf.get('model_type')!r} under {named[0]}; "
            f"allowed: {family!r}"
        )


def _check_attributes(hf: Mapping[str, Any]) -> None:
    for name, value in hf.items():
        if name in _FIXED:
            if value not in _FIXED[name]:
                raise AssayError(
                    f"config.json: {name}={value!r} is not implemented; "
                    f"allowed: {', '.join(map(repr, _FIXED[name]))}"
                )
        elif name not in _READ and name not in _HARMLESS:
            raise AssayError(
                f"config.json: attribute {name!r} (= {value!r}) is not understood; refused because "
                "it may change the rewards"
            )
    if len(hf.get("id2label") or {"0": ""}) != 1:
        raise AssayError(
            f"config.json: id2label has {len(hf['id2label'])} labels; allowed: 1 (a reward)"
        )


def _rope(hf: Mapping[str, Any]) -> Rope:
    # Published files say rope_theta and rope_scaling; transformers 5 writes rope_parameters.
    if hf.get("rope_parameters") and hf.get("rope_scaling"):
        raise AssayError("config.json: both rope_parameters and rope_scaling; allowed: one of them")
    given = dict(hf.get("rope_parameters") or hf.get("rope_scaling") or {})
    thetas = {given.pop("rope_theta", None), hf.get("rope_theta")} - {None} or {10_000.0}
    if len(thetas) > 1:
        raise AssayError(
            f"config.json: rope_theta is both {' and '.join(map(str, sorted(thetas)))}"
        )
    kind = given.pop("rope_type", None) or given.pop("type", None) or "default"
    given.pop("type", None)
    keys = {
        "default": {},
        "linear": {"factor": "factor"},
        "llama3": {
            "factor": "factor",
            "low_freq_factor": "low_freq_factor",
            "high_freq_factor": "high_freq_factor",
            "original_max_position_embeddings": "original_positions",
        },
    }.get(kind)
    if keys is None:
        raise AssayError(
            f"config.json: rope type {kind!r} is not implemented; "
            "allowed: 'default', 'linear', 'llama3'"
        )
    if set(given) != set(keys):
        raise AssayError(
            f"config.json: rope type {kind!r} has {sorted(given)}; allowed: exactly {sorted(keys)}"
        )
    numbers: dict[str, Any] = {field: float(_require(given, name)) for name, field in keys.items()}
    if "original_positions" in numbers:
        numbers["original_positions"] = int(numbers["original_positions"])
    theta = float(_require({"rope_theta": thetas.pop()}, "rope_theta"))
    return Rope(theta=theta, kind=kind, **numbers)
