"""The decoder families whose config.json is understood, and what is special about each."""

import dataclasses
from collections.abc import Callable
from typing import Any

from engine.convert.hf_values import Json, integer, number, optional, positive
from engine.errors import AssayError

# Fields of DecoderConfig by name, with values of several types.
Fields = dict[str, Any]  # Any: fields of DecoderConfig are of several types
# Attribute -> allowed values.
Values = dict[str, tuple[object, ...]]

# First part of a class's name -> decoder family (`model_type`).
_NAMES = {
    "Llama": "llama",
    "Gemma": "gemma",
    "Gemma2": "gemma2",
    "Qwen2": "qwen2",
    "Qwen3": "qwen3",
    "Mistral": "mistral",
    "Mixtral": "mixtral",
    "Qwen3Moe": "qwen3_moe",
}
LANGUAGE_MODELS = {f"{name}ForCausalLM": family for name, family in _NAMES.items()}
# Class name -> decoder family, or `*` for any of `FAMILIES`. The head is recognised by its tensors
# (checkpoint/layouts.py), since one class name is published with different heads.
_TOKENS = {f"{name}ForTokenClassification": family for name, family in _NAMES.items()}  # verl
ARCHITECTURES = {
    **{f"{name}ForSequenceClassification": family for name, family in _NAMES.items()},
    **_TOKENS,
    "LlamaForRewardModelWithGating": "llama",  # ArmoRM, QRM-Llama
    "LlamaForSequenceClassificationWithNormal_Weights": "llama",  # URM
    "INFORMForSequenceClassification": "llama",  # INF-ORM: an MLP under `score`
    "InternLM2ForRewardModel": "internlm2",
    "Gemma2ForRewardModelWithGating": "gemma2",  # QRM-Gemma
    "Qwen2ForRewardModel": "qwen2",  # an MLP under `score`
    "Qwen2ForProcessRewardModel": "qwen2",  # an MLP of two classes
    "AtheneForSequenceClassification": "llama",
    "EurusRewardModel": "mistral",
    "LlamaRewardModel": "llama",  # UltraRM
    "GRewardModel": "*",  # GRM sftreg in RewardBench; its files say LlamaForCausalLM
    "RewardModel": "*",  # OpenRLHF: the decoder that `model_type` names
}
# Classes that read the reward at the last position that is attended to, whatever token it holds, or
# at a token of their own (convert/templates.py). Those of language models hold a value head of TRL,
# LLaMA-Factory or GRM sftreg.
READ_BY_POSITION = frozenset(
    {"GRewardModel", "InternLM2ForRewardModel", "RewardModel", "EurusRewardModel"}
    | {"LlamaRewardModel", "AtheneForSequenceClassification", "Qwen2ForProcessRewardModel"}
    | {*_TOKENS, *LANGUAGE_MODELS}
)
# Class -> which rows of its head are the reward (`readouts.read_head`): log-odds of a good step.
REWARDS = {"Qwen2ForProcessRewardModel": "1 - 0"}
# Family -> the date that its published templates fall back to, for those that ask for today's.
DATES = {"llama": "26 Jul 2024"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """How config.json is read for one `model_type`, beyond what all families share."""

    fixed: Values  # attribute -> the values that this decoder implements; others are refused
    read: frozenset[str] = frozenset()  # attributes that `fields` reads
    fields: Callable[[Json], Fields] = lambda hf: {}  # those of DecoderConfig that the family sets
    # Attributes that must be present, even if null: libraries disagree on what absence means.
    named: tuple[str, ...] = ()
    ffn_width: str = "intermediate_size"  # attribute of the feed-forward's width
    head_size: int | None = None  # without head_dim; None: hidden_size // num_attention_heads
    # Whether a language model's output head is its embedding, if config.json does not say: files
    # leave out an attribute that has its class's default value.
    tied: bool = False


_SILU: Values = {"hidden_act": ("silu",)}
_NO_BIAS: Values = {"attention_bias": (False, None), "mlp_bias": (False, None)}
_WINDOW = frozenset({"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"})
# The class slides in all layers, whatever `max_window_layers` says; no published file turns it on.
_NO_WINDOW: Values = {"use_sliding_window": (False, None)}
_EXPERTS = frozenset({"num_experts", "num_local_experts", "num_experts_per_tok"})
# A feed-forward without experts in some layers is not implemented.
_ALL_MIXTURES: Values = {"decoder_sparse_step": (1, None), "mlp_only_layers": ([], None)}
_GEMMA = {"activation": "gelu_tanh", "norm_offset": True, "embedding_scale": True}
_GEMMA_FIXED: Values = _NO_BIAS | {
    "hidden_act": ("gelu_pytorch_tanh", None),
    "hidden_activation": ("gelu_pytorch_tanh", None),
    "use_bidirectional_attention": (False, None),
}


def _qwen_window(hf: Json) -> Fields:
    if not hf.get("use_sliding_window") or not hf.get("sliding_window"):
        return {}
    first = number(hf, "max_window_layers")  # layers below it attend to all positions
    return _window(hf, lambda layer: layer >= first)


def _window(hf: Json, slides: Callable[[int], bool]) -> Fields:
    """Fields of the sliding window of layers that `slides`, or `layer_types` if it is there."""
    if hf.get("sliding_window") is None:
        return {}
    layers = range(integer(hf, "num_hidden_layers"))
    kinds = hf.get("layer_types")
    if kinds is not None and not isinstance(kinds, list):
        raise AssayError(f"config.json: layer_types={kinds!r}; allowed: a list, one kind per layer")
    kinds = kinds or [
        "sliding_attention" if slides(layer) else "full_attention" for layer in layers
    ]
    if unknown := [kind for kind in kinds if kind not in ("sliding_attention", "full_attention")]:
        raise AssayError(
            f"config.json: layer_types holds {unknown[0]!r}; "
            "allowed: 'sliding_attention', 'full_attention'"
        )
    sliding = tuple(kind == "sliding_attention" for kind in kinds)
    return {"window": integer(hf, "sliding_window"), "window_layers": sliding}


def _experts(hf: Json) -> Fields:
    """Fields of a mixture of experts."""
    given = {integer(hf, n) for n in ("num_experts", "num_local_experts") if hf.get(n) is not None}
    if len(given) > 1:
        said = " and ".join(str(hf[name]) for name in ("num_experts", "num_local_experts"))
        raise AssayError(
            f"config.json: num_experts and num_local_experts are {said}; allowed: one integer, "
            "under either name"
        )
    renormalised = hf.get("norm_topk_prob", False)
    if not isinstance(renormalised, bool):
        raise AssayError(f"config.json: norm_topk_prob={renormalised!r}; allowed: true, false")
    return {
        "experts": given.pop() if given else integer(hf, "num_experts"),
        "experts_per_token": integer(hf, "num_experts_per_tok"),
        "experts_renormalised": renormalised,
    }


def _gemma2(hf: Json) -> Fields:
    if (size := hf.get("sliding_window_size", hf.get("sliding_window"))) != hf["sliding_window"]:
        raise AssayError(
            f"config.json: sliding_window_size={size!r}; allowed: sliding_window's "
            f"{hf['sliding_window']!r}"
        )
    return {
        **_GEMMA,
        "post_norms": True,
        "query_scale": positive(hf, "query_pre_attn_scalar") ** -0.5,
        "attention_softcap": optional(hf, "attn_logit_softcapping"),
        **_window(hf, lambda layer: layer % 2 == 0),
    }


FAMILIES = {
    "llama": Family(fixed=_SILU | _NO_BIAS),
    # A Llama with other tensor names (checkpoint/layouts.py).
    "internlm2": Family(fixed=_SILU | {"bias": (False, None)}, read=frozenset({"reward_token_id"})),
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
    "mixtral": Family(
        fixed=_SILU,
        read=_EXPERTS | {"sliding_window"},
        fields=lambda hf: {
            **_experts(hf),
            "experts_renormalised": True,
            **_window(hf, lambda layer: True),
        },
        named=("sliding_window",),
    ),
    "qwen3_moe": Family(
        fixed=_SILU | _NO_BIAS | _NO_WINDOW | _ALL_MIXTURES,
        read=_EXPERTS | {"moe_intermediate_size", "norm_topk_prob"} | _WINDOW,
        fields=lambda hf: {"qk_norm": True, **_experts(hf)},
        ffn_width="moe_intermediate_size",
    ),
    # `gelu` in the first published files means its tanh form, with which the models were trained.
    "gemma": Family(
        fixed=_GEMMA_FIXED | {"hidden_act": ("gelu", "gelu_pytorch_tanh", None)},
        fields=lambda hf: dict(_GEMMA),
        head_size=256,
        tied=True,
    ),
    "gemma2": Family(
        fixed=_GEMMA_FIXED,
        read=frozenset(
            {"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"}
            | {"sliding_window", "sliding_window_size", "layer_types"}
        ),
        fields=_gemma2,
        named=("sliding_window", "attn_logit_softcapping"),
        head_size=256,
        tied=True,
    ),
}
