"""The decoder families whose config.json is understood, and what is special about each."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from engine.convert.hf_values import Json, boolean, integer, number, optional, positive, short
from engine.errors import AssayError
from engine.models.config import Rope

# Fields of DecoderConfig by name, with values of several types.
Fields = dict[str, Any]  # Any: fields of DecoderConfig are of several types
# Attribute -> allowed values.
Values = dict[str, tuple[object, ...]]

# First part of a class's name -> decoder family (`model_type`).
_NAMES = {
    "Llama": "llama",
    "Gemma": "gemma",
    "Gemma2": "gemma2",
    "Gemma3": "gemma3_text",
    "Qwen2": "qwen2",
    "Qwen3": "qwen3",
    "Mistral": "mistral",
    "Olmo1124": "olmo_1124",
    "Olmo2": "olmo2",
    "Olmo3": "olmo3",
    "SmolLM3": "smollm3",
    "Phi3": "phi3",
    "GPTNeoX": "gpt_neox",
    "GPT2": "gpt2",
    "Mixtral": "mixtral",
    "Qwen3Moe": "qwen3_moe",
    "Qwen3_5": "qwen3_5_text",
    "Qwen3_5Text": "qwen3_5_text",
    "Arcee": "arcee",
    "SeedOss": "seed_oss",
    "Qwen2_5_VL": "qwen2_5_vl_text",
    "Qwen3VL": "qwen3_vl_text",
}
LANGUAGE_MODELS = {
    **{f"{name}ForCausalLM": family for name, family in _NAMES.items()},
    **{
        f"{name}ForConditionalGeneration": _NAMES[name]
        for name in ("Gemma3", "Qwen3_5", "Qwen2_5_VL", "Qwen3VL")
    },
    "GPT2LMHeadModel": "gpt2",
}
# Class name -> decoder family, or `*` for any of `FAMILIES`. The head is recognised by its tensors
# (checkpoint/layouts.py), since one class name is published with different heads.
_TOKENS = {f"{name}ForTokenClassification": family for name, family in _NAMES.items()}  # verl
ARCHITECTURES = {
    **{f"{name}ForSequenceClassification": family for name, family in _NAMES.items()},
    **_TOKENS,
    "Gemma3TextForSequenceClassification": "gemma3_text",  # without `Text`: beside a vision tower
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
    "GPTNeoXRewardModel": "gpt_neox_reward_model",  # OpenAssistant's Pythia: `out_proj`
    "GRewardModel": "*",  # GRM sftreg in RewardBench; its files say LlamaForCausalLM
    "RewardModel": "*",  # OpenRLHF: the decoder that `model_type` names
}
# Classes that read the reward at the last position that is attended to, whatever token it holds, or
# at a token of their own (convert/templates.py). Those of language models hold a value head of TRL,
# LLaMA-Factory or GRM sftreg.
READ_BY_POSITION = frozenset(
    {"GRewardModel", "InternLM2ForRewardModel", "RewardModel", "EurusRewardModel"}
    | {"LlamaRewardModel", "AtheneForSequenceClassification", "Qwen2ForProcessRewardModel"}
    | {"GPTNeoXRewardModel"}
    | {*_TOKENS, *LANGUAGE_MODELS}
)
# Class -> which rows of its head are the reward (`hf_heads.read_head`): log-odds of a good step.
REWARDS = {"Qwen2ForProcessRewardModel": "1 - 0"}
# Family -> the date that its published templates fall back to, for those that ask for today's.
DATES = {
    "llama": "26 Jul 2024",
    "smollm3": "08 Jul 2025",  # its template has no date to fall back to: the day of its release
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """How config.json is read for one `model_type`, beyond what all families share."""

    fixed: Values  # attribute -> the values that this decoder implements; others are refused
    read: frozenset[str] = frozenset()  # attributes that `fields` reads
    fields: Callable[[Json], Fields] = lambda hf: {}  # those of DecoderConfig that the family sets
    # Attributes that must be present, even if null: libraries disagree on what absence means.
    required: tuple[str, ...] = ()
    head_size: int | None = None  # without head_dim; None: hidden_size // num_attention_heads
    # Name of an attribute that all families share -> the name in this family's files.
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ffn_factor: int | None = None  # without intermediate_size: a multiple of the width
    # The part of each head that is rotated, if config.json does not say; None: always the whole.
    rotary: float | None = None
    # Whether a language model's output head is its embedding, if config.json does not say: files
    # leave out an attribute that has its class's default value.
    tied: bool = False
    theta: float = 10_000.0  # without rope_theta
    # The rotary embedding of layers with a window, where they have another one and the file does
    # not give it by kind of layer; it may depend on that of the others.
    window_rope: Callable[[Json, Rope], Rope] | None = None

    def name(self, shared: str) -> str:
        """The name in this family's files of an attribute that all families share."""
        return self.names.get(shared, shared)


_SILU: Values = {"hidden_act": ("silu",)}
_NO_BIAS: Values = {"attention_bias": (False, None), "mlp_bias": (False, None)}
_WINDOW = frozenset({"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"})
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
_OLMO3_THETA = 500_000.0
_OLMO = {
    **{"post_norms": True, "pre_norms": False, "norm_float32": True},
    **{"qk_norm": True, "qk_norm_whole": True},
}


# Layers of LayerNorm, biases on every matrix, and no gate.
_GPT = {"norm": "layer", "qkv_bias": True, "biases": True, "gated": False}
_GELU = {
    "gelu": "gelu",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh"),
}


def _qwen_window(hf: Json) -> Fields:
    if not hf.get("use_sliding_window") or not hf.get("sliding_window"):
        return {}
    # Layers below `max_window_layers` attend to all positions, if `layer_types` does not decide.
    return _window(hf, lambda layer: layer >= number(hf, "max_window_layers"))


# Field of the gated delta rule -> its name in config.json, and the default of Qwen 3.5.
_DELTA = {
    "delta_key_heads": ("linear_num_key_heads", 16),
    "delta_value_heads": ("linear_num_value_heads", 32),
    "delta_key_size": ("linear_key_head_dim", 128),
    "delta_value_size": ("linear_value_head_dim", 128),
    "delta_taps": ("linear_conv_kernel_dim", 4),
}


def _qwen3_5(hf: Json) -> Fields:
    """Three in four layers have the gated delta rule; its norms of x are Gemma's, 1 + weight."""
    count, interval = integer(hf, "num_hidden_layers"), integer(hf, "full_attention_interval", 4)
    kinds = {"linear_attention": True, "full_attention": False}
    layers = hf.get("layer_types") or [
        [*kinds][(layer + 1) % max(interval, 1) == 0] for layer in range(count)
    ]
    if unknown := [kind for kind in layers if kind not in kinds]:
        raise AssayError(
            f"config.json: layer_types holds {short(unknown[0])}; "
            f"allowed: {', '.join(map(repr, kinds))}"
        )
    return {
        "norm_offset": True,
        "qk_norm": True,
        "attention_gate": True,
        "delta_layers": tuple(kinds[kind] for kind in layers),
        **{field: integer(hf, *attribute) for field, attribute in _DELTA.items()},
    }


def _window(hf: Json, slides: Callable[[int], bool]) -> Fields:
    """Fields of the sliding window of layers that `slides`, or `layer_types` if it is there."""
    if hf.get("sliding_window") is None:
        return {}
    layers = range(integer(hf, "num_hidden_layers"))
    kinds = hf.get("layer_types") or [
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
    name = "num_experts" if hf.get("num_local_experts") is None else "num_local_experts"
    return {
        "experts": integer(hf, name),
        "experts_per_token": integer(hf, "num_experts_per_tok"),
        "experts_renormalised": boolean(hf, "norm_topk_prob", False),
    }


def _gemma2(hf: Json) -> Fields:
    return {
        **_GEMMA,
        "post_norms": True,
        "query_scale": positive(hf, "query_pre_attn_scalar") ** -0.5,
        "attention_softcap": optional(hf, "attn_logit_softcapping"),
        **_window(hf, lambda layer: layer % 2 == 0),
    }


def _olmo3_window_rope(hf: Json, rope: Rope) -> Rope:
    """Layers with a window are not scaled; releases of transformers differ on another base."""
    if rope.theta != _OLMO3_THETA and "full_attention" not in (hf.get("rope_parameters") or {}):
        raise AssayError(
            f"config.json: rope_theta={rope.theta}; allowed: {_OLMO3_THETA}, or rope_parameters by "
            "kind of layer"
        )
    return Rope(theta=_OLMO3_THETA)


def _smollm3(hf: Json) -> Fields:
    layers = range(integer(hf, "num_hidden_layers"))
    interval = integer(hf, "no_rope_layer_interval", 4)
    rotates = hf.get("no_rope_layers")  # despite its name, 1 where a layer rotates
    if rotates is None and interval > 0:
        rotates = [int((layer + 1) % interval != 0) for layer in layers]
    if not isinstance(rotates, list) or len(rotates) < len(layers) or {*rotates} - {0, 1}:
        raise AssayError(
            f"config.json: no_rope_layers={short(rotates)}; allowed: a list of 0 and 1, one per "
            "layer, or null with no_rope_layer_interval above 0"
        )
    if (kinds := hf.get("layer_types")) not in (None, ["full_attention"] * len(layers)):
        raise AssayError(
            f"config.json: layer_types={short(kinds)}; allowed: 'full_attention' for every layer"
        )
    # The list may be longer than the model.
    return {"no_rope_layers": tuple(not rotated for rotated in rotates[: len(layers)])}


def _gemma3(hf: Json) -> Fields:
    pattern = integer(hf, "sliding_window_pattern", integer(hf, "_sliding_window_pattern", 6))
    return {
        **_GEMMA,
        "post_norms": True,
        "qk_norm": True,
        "query_scale": positive(hf, "query_pre_attn_scalar") ** -0.5,
        **_window(hf, lambda layer: (layer + 1) % pattern != 0),
    }


def _gemma3_window_rope(hf: Json, rope: Rope) -> Rope:
    theta = "rope_local_base_freq"
    return Rope(theta=positive({theta: 10_000.0, **hf}, theta))


FAMILIES = {
    "llama": Family(fixed=_SILU | _NO_BIAS),
    "arcee": Family(
        fixed={"hidden_act": ("relu2",)} | _NO_BIAS,
        fields=lambda hf: {"activation": "relu2", "gated": False},
    ),
    "seed_oss": Family(
        fixed=_SILU
        | {"attention_bias": (True,), "attention_out_bias": (False,)}
        | {"mlp_bias": (False,)},
        read=frozenset({"residual_dropout"}),  # of training
        fields=lambda hf: {"qkv_bias": True},
        head_size=128,
    ),
    # A Llama with other tensor names (checkpoint/layouts.py).
    "internlm2": Family(fixed=_SILU | {"bias": (False, None)}, read=frozenset({"reward_token_id"})),
    "mistral": Family(
        # With `layer_types`, AutoModel reads the file as a Ministral, whose layers may differ.
        fixed=_SILU | _NO_BIAS,
        read=frozenset({"sliding_window", "layer_types"}),
        fields=lambda hf: _window(hf, lambda layer: True),
        required=("sliding_window",),
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
    # The text of Qwen2.5-VL and Qwen3-VL: positions of a text are equal in all sections of M-RoPE.
    "qwen2_5_vl_text": Family(
        fixed=_SILU,
        read=_WINDOW,
        fields=lambda hf: {"qkv_bias": True, **_qwen_window(hf)},
        theta=1_000_000.0,
    ),
    "qwen3_vl_text": Family(
        fixed=_SILU | _NO_BIAS,
        fields=lambda hf: {"qk_norm": True},
        head_size=128,
        theta=500_000.0,
    ),
    "qwen3_5_text": Family(
        fixed=_SILU
        | _NO_BIAS
        | {"attn_output_gate": (True,), "output_gate_type": ("swish", None)}
        | {"mlp_only_layers": ([], None)},
        read=frozenset(
            {"layer_types", "full_attention_interval", *(name for name, _ in _DELTA.values())}
            # Of the state, which is float32 here, and of predictions that no reward reads.
            | {"mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"}
        ),
        fields=_qwen3_5,
        head_size=256,
        rotary=0.25,
    ),
    "olmo2": Family(fixed=_SILU | {"attention_bias": (False, None)}, fields=lambda hf: dict(_OLMO)),
    "olmo3": Family(
        fixed=_SILU | {"attention_bias": (False, None)},
        read=frozenset({"sliding_window", "layer_types"}),
        fields=lambda hf: {**_OLMO, **_window(hf, lambda layer: (layer + 1) % 4 != 0)},
        theta=_OLMO3_THETA,
        window_rope=_olmo3_window_rope,
    ),
    "smollm3": Family(
        fixed=_SILU | _NO_BIAS | _NO_WINDOW,
        read=_WINDOW | {"no_rope_layers", "no_rope_layer_interval"},
        fields=_smollm3,
        tied=True,
        theta=2_000_000.0,
    ),
    "mixtral": Family(
        fixed=_SILU,
        read=_EXPERTS | {"sliding_window"},
        fields=lambda hf: {
            **_experts(hf),
            "experts_renormalised": True,
            **_window(hf, lambda layer: True),
        },
        required=("sliding_window",),
        theta=1_000_000.0,
    ),
    "qwen3_moe": Family(
        # With a window the class slides in all layers, whatever `max_window_layers` says; no
        # published file turns it on.
        fixed=_SILU | _NO_BIAS | _NO_WINDOW | _ALL_MIXTURES,
        names={"intermediate_size": "moe_intermediate_size"},
        # The width of layers without experts, of which there are none, may be stated too.
        read=_EXPERTS | {"intermediate_size", "norm_topk_prob"} | _WINDOW,
        fields=lambda hf: {"qk_norm": True, **_experts(hf)},
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
        required=("sliding_window", "attn_logit_softcapping"),
        head_size=256,
        tied=True,
    ),
    "gemma3_text": Family(
        # transformers reads this soft-cap and does not apply it.
        fixed=_GEMMA_FIXED | {"attn_logit_softcapping": (None,)},
        read=frozenset(
            {"query_pre_attn_scalar", "final_logit_softcapping", "sliding_window", "layer_types"}
            | {"sliding_window_pattern", "_sliding_window_pattern", "rope_local_base_freq"}
        ),
        fields=_gemma3,
        head_size=256,
        tied=True,
        theta=1_000_000.0,
        window_rope=_gemma3_window_rope,
    ),
    # Phi-4 too; the last four attributes are those of Phi-4-mini.
    "phi3": Family(
        fixed=_SILU
        | _NO_BIAS
        | {"lm_head_bias": (False,), "full_attn_mod": (1,), "interpolate_factor": (1,)},
        read=frozenset({"sliding_window", "original_max_position_embeddings"}),
        fields=lambda hf: _window(hf, lambda layer: True),
        rotary=1.0,
    ),
    "gpt_neox": Family(
        fixed={
            "hidden_act": tuple(_GELU),
            "attention_bias": (True,),
            "use_parallel_residual": (True, False),
        },
        names={"rms_norm_eps": "layer_norm_eps"},
        read=frozenset({"rotary_pct", "rotary_emb_base"}),
        fields=lambda hf: {
            **_GPT,
            "activation": _GELU[hf.get("hidden_act", "gelu")],
            "parallel": bool(hf.get("use_parallel_residual", True)),
        },
        rotary=0.25,
    ),
    "gpt2": Family(
        fixed={
            "activation_function": tuple(_GELU),
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
        },
        names={
            "hidden_size": "n_embd",
            "intermediate_size": "n_inner",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "max_position_embeddings": "n_positions",
            "rms_norm_eps": "layer_norm_epsilon",
        },
        read=frozenset({"n_ctx"}),  # the older name of n_positions, beside it
        fields=lambda hf: {
            **_GPT,
            "activation": _GELU[hf.get("activation_function", "gelu_new")],
            "learned_positions": True,
        },
        ffn_factor=4,
        tied=True,
    ),
}
# The class also averages over a reply, where `pooling` says so.
FAMILIES["gpt_neox_reward_model"] = dataclasses.replace(
    FAMILIES["gpt_neox"], fixed={**FAMILIES["gpt_neox"].fixed, "pooling": ("last",)}
)
FAMILIES["olmo_1124"] = FAMILIES["olmo2"]  # its name before its release

# What a Gemma 3 with images leaves out of its `text_config`: the defaults of transformers' class.
_GEMMA3_TEXT = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 131_072,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "pad_token_id": 0,
}
# `model_type` of a model with images -> that of its text, and what its `text_config` leaves out.
TEXTS: dict[str, tuple[str, Json]] = {
    "gemma3": ("gemma3_text", _GEMMA3_TEXT),
    "qwen2_5_vl": ("qwen2_5_vl_text", {}),
    "qwen3_vl": ("qwen3_vl_text", {}),
    "qwen3_5": ("qwen3_5_text", {}),
}
