"""Shapes of the decoders of `configs/known_models.py`, as their config.json gives them.

`assay plan` reads them for a model that is named but not at hand, and benchmarks make models of
full size from them. Conversion reads the model's own file, and refuses one that says of a listed
model something else.
"""

from configs.known_models import ModelSpec

_NAMES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
)
# Base and size in 10⁹ parameters -> the numbers of `_NAMES`.
_SHAPES = {
    ("Llama 3", 8): (4096, 32, 32, 8, 128, 14336, 128256),
    ("Llama 3", 70): (8192, 80, 64, 8, 128, 28672, 128256),
    ("Llama 3.1", 8): (4096, 32, 32, 8, 128, 14336, 128256),
    ("Llama 3.1", 70): (8192, 80, 64, 8, 128, 28672, 128256),
    ("Llama 3.3", 70): (8192, 80, 64, 8, 128, 28672, 128256),
    ("Llama 3.2", 1): (2048, 16, 32, 8, 64, 8192, 128256),
    ("Llama 3.2", 3): (3072, 28, 24, 8, 128, 8192, 128256),
    ("Gemma", 2): (2048, 18, 8, 1, 256, 16384, 256000),
    ("Gemma", 7): (3072, 28, 16, 16, 256, 24576, 256000),
    ("Gemma 2", 2): (2304, 26, 8, 4, 256, 9216, 256000),
    ("Gemma 2", 9): (3584, 42, 16, 8, 256, 14336, 256000),
    ("Gemma 2", 27): (4608, 46, 32, 16, 128, 36864, 256000),
    ("Qwen 3", 0.6): (1024, 28, 16, 8, 128, 3072, 151936),
    ("Qwen 3", 1.7): (2048, 28, 16, 8, 128, 6144, 151936),
    ("Qwen 3", 4): (2560, 36, 32, 8, 128, 9728, 151936),
    ("Qwen 3", 8): (4096, 36, 32, 8, 128, 12288, 151936),
    ("Qwen 3", 32): (5120, 64, 64, 8, 128, 25600, 151936),
    ("Qwen Math", 7): (3584, 28, 28, 4, 128, 18944, 152064),
    ("Qwen Math", 72): (8192, 80, 64, 8, 128, 29568, 152064),
    ("OLMo 2", 7): (4096, 32, 32, 32, 128, 11008, 100280),
    ("OLMo 2", 13): (5120, 40, 40, 40, 128, 13824, 100280),
    ("InternLM2", 1.8): (2048, 24, 16, 8, 128, 8192, 92544),
    ("InternLM2", 7): (4096, 32, 32, 8, 128, 14336, 92544),
    ("InternLM2", 20): (6144, 48, 48, 8, 128, 16384, 92544),
}
# Rows of the embedding where a base's models differ: of those that are left out they are not known.
_ROWS = {
    "skywork-reward-llama-3.1-8b": 128257,
    "qrm-llama3.1-8b": 128257,
    "grm-llama3.2-3b-rewardmodel-ft": 128257,
    "armorm-llama3-8b-v0.1": 128257,
    "olmo-2-1124-13b-rm": 100280,
}
# What else differs between the sizes of a base.
_OF_SIZE: dict[tuple[str, float], dict[str, object]] = {
    ("Gemma 2", 2): {"query_pre_attn_scalar": 256},
    ("Gemma 2", 9): {"query_pre_attn_scalar": 256},
    ("Gemma 2", 27): {"query_pre_attn_scalar": 144},
}


def _common(activation: str, eps: float, theta: float, positions: int) -> dict[str, object]:
    return {
        "hidden_activation" if activation.startswith("gelu") else "hidden_act": activation,
        "rms_norm_eps": eps,
        "rope_theta": theta,
        "max_position_embeddings": positions,
    }


def _llama3_rope(factor: float) -> dict[str, object]:
    return {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
    }


_LONG_LLAMA = _common("silu", 1e-5, 5e5, 131_072)
_GEMMA = _common("gelu_pytorch_tanh", 1e-6, 1e4, 8192)
_GEMMA2 = {
    **_GEMMA,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "sliding_window": 4096,
}
# Base -> `model_type`, the first part of its class's name, and its other attributes.
_FAMILIES = {
    "Llama 3": ("llama", "Llama", _common("silu", 1e-5, 5e5, 8192)),
    "Llama 3.1": ("llama", "Llama", _LONG_LLAMA | _llama3_rope(8.0)),
    "Llama 3.2": ("llama", "Llama", _LONG_LLAMA | _llama3_rope(32.0)),
    "Llama 3.3": ("llama", "Llama", _LONG_LLAMA | _llama3_rope(8.0)),
    "Gemma": ("gemma", "Gemma", _GEMMA),
    "Gemma 2": ("gemma2", "Gemma2", _GEMMA2),
    "Qwen Math": ("qwen2", "Qwen2", _common("silu", 1e-6, 1e4, 4096)),
    "Qwen 3": ("qwen3", "Qwen3", _common("silu", 1e-6, 1e6, 40_960)),
    "OLMo 2": ("olmo2", "Olmo2", _common("silu", 1e-6, 5e5, 4096)),
    "InternLM2": ("internlm2", "InternLM2", _common("silu", 1e-5, 1e6, 32_768)),
}
# Reward models whose config.json names a class of their own, or of the language model before them.
_CLASSES = {
    "grm-llama3-8b-sftreg": "LlamaForCausalLM",
    "grm-llama3.2-3b-sftreg": "LlamaForCausalLM",
    "grm-gemma2-2b-sftreg": "Gemma2ForCausalLM",
    "athene-rm-8b": "AtheneForSequenceClassification",
    "athene-rm-70b": "AtheneForSequenceClassification",
    "qwen2.5-math-prm-7b": "Qwen2ForProcessRewardModel",
    "qwen2.5-math-7b-prm800k": "Qwen2ForProcessRewardModel",
    "qwen2.5-math-prm-72b": "Qwen2ForProcessRewardModel",
    "qwen2.5-math-rm-72b": "Qwen2ForRewardModel",
}

# `model_type` -> positions of a candidate: a reply of one token, and what its template puts behind.
_OWN = {"llama": 2, "gemma": 3, "gemma2": 3, "qwen2": 3, "qwen3": 3, "olmo2": 2, "internlm2": 4}


def own_positions(spec: ModelSpec) -> int:
    """Positions of a candidate of one token in the template of a listed model."""
    return _OWN[_FAMILIES[spec.base][0]]


def config_json(spec: ModelSpec) -> dict[str, object]:
    """What decides the decoder of a listed model: the attributes of its config.json, and its class.

    Special tokens are left out, and some published embeddings have one row more.
    """
    kind, name, fields = _FAMILIES[spec.base]
    classes = {"InternLM2": "ForRewardModel"}
    ending = classes.get(name, "ForSequenceClassification")
    if not spec.head or spec.reward:
        ending = "ForCausalLM"
    size = spec.base, spec.size_b
    return {
        **fields,
        **_OF_SIZE.get(size, {}),
        **dict(zip(_NAMES, _SHAPES[size], strict=True)),
        "architectures": [_CLASSES.get(spec.slug, name + ending)],
        "model_type": kind,
    }


def rows(spec: ModelSpec) -> int | None:
    """Rows of a listed model's embedding; None where they are not known."""
    if spec.base.startswith(("Llama", "OLMo")):  # some have rows more, for padding
        return _ROWS.get(spec.slug)
    return _SHAPES[spec.base, spec.size_b][_NAMES.index("vocab_size")]
