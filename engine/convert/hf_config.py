"""Hugging Face config.json -> DecoderConfig; refuses what it does not understand."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import AssayError
from engine.models.config import DecoderConfig, Rope
from engine.models.language_model import OutputConfig

Json = Mapping[str, Any]

# Class name -> decoder family (`model_type`), or `*` for any of `FAMILIES`. The head is recognised
# by its keys (checkpoint/layouts.py), because one class name is published with different heads.
ARCHITECTURES = {
    "LlamaForSequenceClassification": "llama",
    "LlamaForRewardModelWithGating": "llama",  # ArmoRM, QRM-Llama
    "LlamaForSequenceClassificationWithNormal_Weights": "llama",  # URM
    "INFORMForSequenceClassification": "llama",  # INF-ORM: an MLP under `score`
    "InternLM2ForRewardModel": "internlm2",
    "GRewardModel": "*",  # GRM sftreg: a value head on whatever decoder `model_type` names
    "GemmaForSequenceClassification": "gemma",
    "Gemma2ForSequenceClassification": "gemma2",
    "Gemma2ForRewardModelWithGating": "gemma2",  # QRM-Gemma
    "Qwen2ForSequenceClassification": "qwen2",
    "Qwen2ForRewardModel": "qwen2",  # an MLP under `score`
    "Qwen3ForSequenceClassification": "qwen3",
    "MistralForSequenceClassification": "mistral",
}
LANGUAGE_MODELS = {
    "LlamaForCausalLM": "llama",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "MistralForCausalLM": "mistral",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """What a `model_type` adds to the common reading of config.json.

    fixed: attributes with the values that this decoder implements; any other is refused.
    read: attributes that `fields` reads.
    fields: config.json -> the DecoderConfig fields that the family sets.
    named: attributes that must be there, if only as null: readers disagree on what their absence
      means.
    head_size: where config.json has no head_dim; None: hidden_size // num_attention_heads.
    tied: whether a language model's output head is its embedding where config.json does not say;
      files leave out what is the class's default.
    """

    fixed: Mapping[str, tuple]
    read: frozenset[str]
    fields: Callable[[Json], dict[str, Any]]
    named: tuple[str, ...] = ()
    head_size: int | None = None
    tied: bool = False


_SILU = {"hidden_act": ("silu",)}
_NO_BIAS = {"attention_bias": (False, None), "mlp_bias": (False, None)}
_ATTENTION = ("eager", "sdpa", "flash_attention_2", None)  # ways to compute the same
_WINDOW = frozenset({"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"})


_GEMMA = {"activation": "gelu_tanh", "norm_offset": True, "embedding_scale": True}


def _qwen_window(hf: Json) -> dict[str, Any]:
    if not hf.get("use_sliding_window") or not hf.get("sliding_window"):
        return {}
    first = _require(hf, "max_window_layers")  # lower layers see everything
    return _window(hf, lambda layer: layer >= first)


def _window(hf: Json, slides: Callable[[int], bool]) -> dict[str, Any]:
    """The sliding window; `layer_types`, where a file has it, says which layers slide."""
    if hf.get("sliding_window") is None:
        return {}
    layers = range(_require(hf, "num_hidden_layers"))
    kinds = hf.get("layer_types")
    if kinds is not None and not isinstance(kinds, list):
        raise AssayError(f"config.json: layer_types={kinds!r}; allowed: a list, one kind a layer")
    kinds = kinds or [
        "sliding_attention" if slides(layer) else "full_attention" for layer in layers
    ]
    known = ("sliding_attention", "full_attention")
    if unknown := [kind for kind in kinds if kind not in known]:
        raise AssayError(
            f"config.json: layer_types holds {unknown[0]!r}; "
            "allowed: 'sliding_attention', 'full_attention'"
        )
    sliding = tuple(kind == "sliding_attention" for kind in kinds)
    return {"window": _integer(hf, "sliding_window"), "window_layers": sliding}


def _gemma2(hf: Json) -> dict[str, Any]:
    if (size := hf.get("sliding_window_size", hf.get("sliding_window"))) != hf["sliding_window"]:
        raise AssayError(
            f"config.json: sliding_window_size={size!r}; allowed: sliding_window's "
            f"{hf['sliding_window']!r}"
        )
    return {
        **_GEMMA,
        "post_norms": True,
        "query_scale": _positive(hf, "query_pre_attn_scalar") ** -0.5,
        "attention_softcap": _optional(hf, "attn_logit_softcapping"),
        **_window(hf, lambda layer: layer % 2 == 0),
    }


FAMILIES = {
    "llama": Family(fixed=_SILU | _NO_BIAS, read=frozenset(), fields=lambda hf: {}),
    # A Llama under other key names (checkpoint/layouts.py).
    "internlm2": Family(
        fixed=_SILU | {"bias": (False, None), "attn_implementation": _ATTENTION},
        read=frozenset({"reward_token_id"}),
        fields=lambda hf: {},
    ),
    "mistral": Family(
        fixed=_SILU | _NO_BIAS,
        read=frozenset({"sliding_window", "layer_types"}),
        fields=lambda hf: _window(hf, lambda layer: True),
        named=("sliding_window",),
    ),
    "qwen2": Family(
        fixed=_SILU, read=_WINDOW, fields=lambda hf: {"qkv_bias": True, **_qwen_window(hf)}
    ),
    "qwen3": Family(
        fixed=_SILU | _NO_BIAS,
        read=_WINDOW,
        fields=lambda hf: {"qk_norm": True, **_qwen_window(hf)},
        head_size=128,
    ),
    # `gelu` in the first published files meant its tanh form, in which the models were trained.
    "gemma": Family(
        fixed=_NO_BIAS
        | {
            "hidden_act": ("gelu", "gelu_pytorch_tanh", None),
            "hidden_activation": ("gelu_pytorch_tanh", None),
            "use_bidirectional_attention": (False, None),
        },
        read=frozenset(),
        fields=lambda hf: dict(_GEMMA),
        head_size=256,
        tied=True,
    ),
    "gemma2": Family(
        fixed=_NO_BIAS
        | {
            "hidden_act": ("gelu_pytorch_tanh", None),
            "hidden_activation": ("gelu_pytorch_tanh", None),
            "use_bidirectional_attention": (False, None),
        },
        read=frozenset(
            {
                "query_pre_attn_scalar",
                "attn_logit_softcapping",
                "final_logit_softcapping",
                "sliding_window",
                "sliding_window_size",
                "layer_types",
            }
        ),
        fields=_gemma2,
        named=("sliding_window", "attn_logit_softcapping"),
        head_size=256,
        tied=True,
    ),
}

# Attributes that change the computation unless they hold the value that this decoder implements.
_FIXED = {
    "pretraining_tp": (1, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({}, None),
    "tie_encoder_decoder": (False, None),
    "quantization_config": (None,),
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
    # Of the gate (convert/gates.py).
    "num_objectives",
    "num_quantiles",
    "gating_temperature",
    "gating_hidden_dim",
    "gating_n_hidden",
    "tie_word_embeddings",
}
# Attributes that say nothing about a forward pass in evaluation mode: training, generation,
# bookkeeping, file format, special ids (the reward position is explicit here), custom code (never
# executed), and the `vhead_*` fields that GRM configs carry from another head.
_HARMLESS = {
    "_name_or_path",
    "_attn_implementation_autoset",
    "transformers_version",
    "auto_map",
    "torch_dtype",
    "dtype",
    "initializer_range",
    "attention_dropout",
    "gating_dropout",
    "use_cache",
    "cache_implementation",
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
    "num_labels",  # of which gated heads have several a reward; the tensors show a head's sizes
    "id2label",
    "is_decoder",
    "is_llama_config",
    "rope_interleaved",  # a stale marker in SmolLM configs: the weights are half-split
    "transformers.js_config",
    "pretrained_config",
    "vhead_layer_type",
    "vhead_num_neurons",
    "vhead_num_layers",
}


_LARGEST = 2**40  # of any number that means something
_MOST_LAYERS = 1000


def decoder_config(hf: Json) -> DecoderConfig:
    """Reads a parsed config.json.

    Raises:
      AssayError: unknown architecture, an attribute that is not understood or holds a value that
        this decoder does not implement, a missing attribute; each by name.
    """
    family = _family(hf)
    _check_attributes(hf, family)
    for name in family.named:
        if name not in hf:
            raise AssayError(f"config.json: no {name}; allowed: a number, or null for none")
    width, num_heads = _integer(hf, "hidden_size"), _integer(hf, "num_attention_heads")
    layers = _integer(hf, "num_hidden_layers")
    if not 1 <= layers <= _MOST_LAYERS:
        raise AssayError(f"config.json: num_hidden_layers={layers}; allowed: 1 to {_MOST_LAYERS}")
    return DecoderConfig(
        vocab_size=_integer(hf, "vocab_size"),
        width=width,
        ffn_width=_integer(hf, "intermediate_size"),
        num_layers=layers,
        num_heads=num_heads,
        num_kv_heads=_integer(hf, "num_key_value_heads", num_heads),
        head_size=_integer(hf, "head_dim", family.head_size or width // max(num_heads, 1)),
        rms_eps=_positive(hf, "rms_norm_eps"),
        rope=_rope(hf),
        max_positions=_integer(hf, "max_position_embeddings"),
        **family.fields(hf),
    )


def is_language_model(hf: Json) -> bool:
    """Whether config.json is that of a causal language model, not of a reward model."""
    return _architecture(hf) in LANGUAGE_MODELS


def output_config(hf: Json, decoder: DecoderConfig) -> OutputConfig:
    """Reads a language model's output head from a parsed config.json.

    Raises:
      AssayError: `tie_word_embeddings` is no boolean; a Gemma 2 that does not say whether its
        logits are capped.
    """
    tied = hf.get("tie_word_embeddings", _family(hf).tied)
    if not isinstance(tied, bool):
        raise AssayError(f"config.json: tie_word_embeddings={tied!r}; allowed: true, false")
    cap = "final_logit_softcapping"
    if hf["model_type"] == "gemma2" and cap not in hf:
        raise AssayError(f"config.json: no {cap}; allowed: a number, or null for none")
    return OutputConfig(
        vocab_size=decoder.vocab_size,
        width=decoder.width,
        rms_eps=decoder.rms_eps,
        norm_offset=decoder.norm_offset,
        tied=tied,
        softcap=_optional(hf, cap),
    )


def _require(hf: Json, name: str) -> Any:
    value = hf.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
        raise AssayError(f"config.json: {name}={_cut(value)}; allowed: a number")
    return value


def _positive(hf: Json, name: str) -> float:
    value = float(_require(hf, name))
    if not 0 < value < math.inf:
        raise AssayError(f"config.json: {name}={value}; allowed: numbers above 0")
    return value


def _integer(hf: Json, name: str, default: int | None = None) -> int:
    """A size; `default` where the file has none or null."""
    value = hf.get(name) if hf.get(name) is not None else default
    if isinstance(value, bool) or not isinstance(value, int) or not abs(value) < _LARGEST:
        raise AssayError(f"config.json: {name}={_cut(value)}; allowed: an integer")
    return value


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:50] + "…"


def _optional(hf: Json, name: str) -> float | None:
    return None if hf.get(name) is None else float(_require(hf, name))


def _architecture(hf: Json) -> str:
    listed = hf.get("architectures")
    named = listed[0] if isinstance(listed, list) and len(listed) == 1 else listed
    known = ARCHITECTURES | LANGUAGE_MODELS
    if not isinstance(named, str) or named not in known:
        allowed = ", ".join(sorted(known))
        raise AssayError(f"config.json: unknown architecture {named!r}; allowed: {allowed}")
    return named


def _family(hf: Json) -> Family:
    named = _architecture(hf)
    family, model_type = (ARCHITECTURES | LANGUAGE_MODELS)[named], hf.get("model_type")
    allowed = FAMILIES if family == "*" else (family,)
    if not isinstance(model_type, str) or model_type not in allowed:
        raise AssayError(
            f"config.json: model_type={model_type!r} under {named}; "
            f"allowed: {', '.join(map(repr, allowed))}"
        )
    return FAMILIES[model_type]


def _check_attributes(hf: Json, family: Family) -> None:
    fixed = {**_FIXED, **family.fixed}
    known = _READ | _HARMLESS | family.read
    for name, value in hf.items():
        if name in fixed:
            if value not in fixed[name]:
                raise AssayError(
                    f"config.json: {name}={value!r} is not implemented; "
                    f"allowed: {', '.join(map(repr, fixed[name]))}"
                )
        elif name not in known:
            raise AssayError(
                f"config.json: attribute {name!r} (= {value!r}) is not understood; refused because "
                "it may change the rewards"
            )


def _rope(hf: Json) -> Rope:
    # Published files say rope_theta and rope_scaling; transformers 5 writes rope_parameters.
    if hf.get("rope_parameters") and hf.get("rope_scaling"):
        raise AssayError("config.json: both rope_parameters and rope_scaling; allowed: one of them")
    given = hf.get("rope_parameters") or hf.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        raise AssayError(f"config.json: rope_scaling={given!r}; allowed: an object, or null")
    given = dict(given)
    thetas = {given.pop("rope_theta", None), hf.get("rope_theta")} - {None} or {10_000.0}
    if len(thetas) > 1:
        both = " and ".join(sorted(map(str, thetas)))
        raise AssayError(f"config.json: rope_theta is both {both}")
    kind = given.pop("rope_type", None) or given.pop("type", None) or "default"
    given.pop("type", None)
    keys = {
        "default": {},
        "dynamic": {"factor": "factor"},
        "linear": {"factor": "factor"},
        "llama3": {
            "factor": "factor",
            "low_freq_factor": "low_freq_factor",
            "high_freq_factor": "high_freq_factor",
            "original_max_position_embeddings": "original_positions",
        },
    }.get(str(kind))
    if keys is None:
        raise AssayError(
            f"config.json: rope type {kind!r} is not implemented; "
            "allowed: 'default', 'dynamic', 'linear', 'llama3'"
        )
    if set(given) != set(keys):
        raise AssayError(
            f"config.json: rope type {kind!r} has {sorted(given)}; allowed: exactly {sorted(keys)}"
        )
    if kind == "dynamic":  # acts beyond max_position_embeddings only, which nothing here exceeds
        kind, keys = "default", {}
    numbers: dict[str, Any] = {field: _positive(given, name) for name, field in keys.items()}
    if "original_positions" in numbers:
        numbers["original_positions"] = _integer(given, "original_max_position_embeddings")
    theta = _positive({"rope_theta": thetas.pop()}, "rope_theta")
    return Rope(theta=theta, kind=kind, **numbers)
