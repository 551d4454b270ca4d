"""The prompt gates of ArmoRM and QRM: read from their tensors and folded to linear layers.

A published gate is a list of modules with batch norms and dropout between the linear layers. The
indices differ (ArmoRM: linear 0-3; QRM-Llama: linear 0, 3, 6, 9 and batch norm 2, 5, 8; QRM-Gemma:
linear 0, 4, 8, 11 and batch norm 2, 6, 10), so each module is recognised by its tensors.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np

from engine.convert.hf_values import Json, positive
from engine.errors import AssayError

_KEY = re.compile(r"gating\.layers\.(\d+)\.(\w+)$")
_BATCH_NORM_EPS = 1e-5
LOGIT_SCALE = "gating.logit_scale"

# Token ids behind which the gate reads the prompt: closing of the user's turn and opening of
# the assistant's turn, in the tokenizer of each decoder family.
PATTERNS = {"llama": (128009, 128006, 78191, 128007, 271), "gemma2": (107, 108, 106, 2516, 108)}

HELPSTEER = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
_ARMORM = (
    *(f"helpsteer-{name}" for name in HELPSTEER),
    *("ultrafeedback-overall_score", "ultrafeedback-instruction_following"),
    *("ultrafeedback-truthfulness", "ultrafeedback-honesty", "ultrafeedback-helpfulness"),
    *("beavertails-is_safe", "prometheus-score", "argilla-overall_quality", "argilla-judge_lm"),
    *("code-complexity", "code-style", "code-explanation", "code-instruction-following"),
    "code-readability",
)


Layers = list[tuple[np.ndarray, np.ndarray]]  # weights [in, out] and biases [out]


def gate_keys(keys: set[str]) -> set[str]:
    """Names of the tensors that belong to a gate."""
    return {key for key in keys if key.startswith("gating.")}


def read_gate(keys: set[str], read: Callable[[str], np.ndarray]) -> tuple[Layers, bool]:
    """Reads a gate; batch norms, affine in evaluation mode, are folded into the next layer.

    Returns:
      Its linear layers, float32, with ReLU between them; whether it has batch norms.

    Raises:
      AssayError: a module is neither a linear layer nor a batch norm, or no linear layer follows a
        norm.
    """
    modules: dict[int, dict[str, np.ndarray]] = {}
    for key in sorted(gate_keys(keys) - {LOGIT_SCALE}):
        if not (match := _KEY.fullmatch(key)):
            raise AssayError(f"tensor {key!r} is part of no gate that is understood")
        modules.setdefault(int(match[1]), {})[match[2]] = read(key).astype(np.float64)
    layers: Layers = []
    scale, shift = np.ones(1), np.zeros(1)  # the pending batch norm: x -> x * scale + shift
    norms = 0
    for index, module in sorted(modules.items()):
        if "running_mean" in module:
            if scale.size > 1:
                raise AssayError(f"gating.layers.{index}: a norm of a norm; allowed: of a layer")
            scale, shift = _affine(index, module)
            norms += 1
        else:
            layers.append(_linear(index, module, scale, shift))
            scale, shift = np.ones(1), np.zeros(1)
    if len(layers) < 2 or scale.size > 1:
        raise AssayError("gating.layers: allowed: linear layers, the last of them after any norm")
    sizes = [weight.shape for weight, _ in layers]
    hidden = sizes[0][1]
    if any(shape != (hidden, hidden) for shape in sizes[1:-1]) or sizes[-1][0] != hidden:
        raise AssayError(f"gating.layers: sizes {sizes}; allowed: one hidden width throughout")
    return [(w.astype(np.float32), b.astype(np.float32)) for w, b in layers], norms > 0


def temperature(hf: Json, normed: bool, transform: bool) -> float:
    """The gate's softmax temperature, from config.json or the default of the published class.

    `normed` says whether the gate has batch norms, and `transform` whether the head has a
    `reward_transform_matrix`.
    """
    if hf.get("gating_temperature") is not None:
        return positive(hf, "gating_temperature")
    if not normed:
        return 10.0  # ArmoRM
    return 5.0 if transform else 1.0  # QRM-Llama, QRM-Gemma


def objective_names(count: int) -> tuple[str, ...]:
    """Names of `count` objectives, in the order of the head's rows."""
    known = {len(HELPSTEER): HELPSTEER, len(_ARMORM): _ARMORM}
    return known.get(count) or tuple(f"objective_{k}" for k in range(count))


def _linear(
    index: int, module: Mapping[str, np.ndarray], scale: np.ndarray, shift: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if not {"weight"} <= set(module) <= {"weight", "bias"} or module["weight"].ndim != 2:
        raise AssayError(f"gating.layers.{index}: {sorted(module)} is no linear layer")
    weight = module["weight"].T  # [in, out]
    bias = (
        module.get("bias", np.zeros(weight.shape[1])) + np.broadcast_to(shift, len(weight)) @ weight
    )
    return weight * np.broadcast_to(scale, len(weight))[:, None], bias


def _affine(index: int, module: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    if set(module) != {"weight", "bias", "running_mean", "running_var"}:
        raise AssayError(f"gating.layers.{index}: {sorted(module)} is no batch norm")
    scale = module["weight"] / np.sqrt(module["running_var"] + _BATCH_NORM_EPS)
    return scale, module["bias"] - module["running_mean"] * scale
