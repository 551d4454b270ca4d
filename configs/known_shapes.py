"""Shapes of the decoders of `configs/known_models.py`, as their config.json gives them.

`assay plan` reads them for a model that is named but not at hand, and benchmarks make models of
full size from them. Conversion reads the model's own file, and refuses one that says of a listed
model something else.
"""

import csv
import functools
from pathlib import Path

from configs.known_models import ModelSpec


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
# Base -> `model_type`, and other attributes that are those of all its sizes.
_FAMILIES = {
    "Llama 3": ("llama", _common("silu", 1e-5, 5e5, 8192)),
    "Llama 3.1": ("llama", _LONG_LLAMA | _llama3_rope(8.0)),
    "Llama 3.2": ("llama", _LONG_LLAMA | _llama3_rope(32.0)),
    "Llama 3.3": ("llama", _LONG_LLAMA | _llama3_rope(8.0)),
    "Gemma": ("gemma", _GEMMA),
    "Gemma 2": ("gemma2", _GEMMA2),
    "Qwen Math": ("qwen2", _common("silu", 1e-6, 1e4, 4096)),
    "Qwen 3": ("qwen3", _common("silu", 1e-6, 1e6, 40_960)),
    "OLMo 2": ("olmo2", _common("silu", 1e-6, 5e5, 4096)),
    "InternLM2": ("internlm2", _common("silu", 1e-5, 1e6, 32_768)),
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
    kind, fields = _FAMILIES[spec.base]
    of_size = _sizes()[spec.base, spec.size_b]
    return {**fields, **of_size, "architectures": [spec.architecture], "model_type": kind}


@functools.cache
def _sizes() -> dict[tuple[str, float], dict[str, int]]:
    """Base and size in 10⁹ parameters -> the attributes in known_shapes.csv."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        rows = [{name: cell for name, cell in row.items() if cell} for row in csv.DictReader(file)]
    return {
        (row.pop("base"), float(row.pop("size_b"))): {name: int(n) for name, n in row.items()}
        for row in rows
    }
