"""Random reward models of every decoder family in torch, under their real class and key names.

Sizes are tiny, but everything that a family adds acts: windows are shorter than what is scored
(and than the shared prefix), the soft-cap is near the logits, norms and biases are far from where
training starts, and no derived size is what another formula would give.
"""

import functools

import torch
from transformers import (
    AutoModelForSequenceClassification,
    Gemma2Config,
    GemmaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from tests.support import reference

WINDOW = 24
_COMMON = {
    "vocab_size": reference.VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "num_labels": 1,
    "pad_token_id": None,
    "eos_token_id": None,
    "bos_token_id": None,
}
_GEMMA2 = {
    **_COMMON,
    "head_dim": 12,
    "query_pre_attn_scalar": 6,
    "attn_logit_softcapping": 3.0,
    "sliding_window": WINDOW,
}

CONFIGS = {
    "gemma": lambda: GemmaConfig(**_COMMON, head_dim=12),
    "gemma2": lambda: Gemma2Config(**_GEMMA2),
    "gemma2, four layers": lambda: Gemma2Config(**{**_GEMMA2, "num_hidden_layers": 4}),
    "gemma2, no soft-cap": lambda: Gemma2Config(**{**_GEMMA2, "attn_logit_softcapping": None}),
    "qwen2": lambda: Qwen2Config(**_COMMON),
    "qwen2, window": lambda: Qwen2Config(
        **_COMMON, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1
    ),
    "qwen3": lambda: Qwen3Config(**_COMMON, head_dim=12),
    "mistral": lambda: MistralConfig(**_COMMON, head_dim=12, sliding_window=WINDOW),
    "mistral, no window": lambda: MistralConfig(**_COMMON, head_dim=12, sliding_window=None),
}


@functools.cache
def build(name: str) -> PreTrainedModel:
    """The random model of a name: the same one each time."""
    return enlarged(CONFIGS[name]())


def enlarged(
    config: PreTrainedConfig, auto=AutoModelForSequenceClassification, embedding: float = 0.0
) -> PreTrainedModel:
    """A model whose numbers vary with every token and with everything its family adds.

    `embedding` is the standard deviation of its embedding; by default that of training's start.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = auto.from_config(config, attn_implementation="eager").eval()
        ones = (
            0.0 if config.model_type.startswith("gemma") else 1.0
        )  # Gemma's norms multiply by 1 + w
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.data.normal_(ones, 0.3)
            elif name.endswith("bias"):
                weight.data.normal_(0.0, 0.5)
            elif "embed" in name and embedding:
                weight.data.normal_(0.0, embedding)
            elif "embed" not in name:  # small embeddings keep the eps of norms visible
                weight.data.normal_(0.0, 1.25 * weight.shape[1] ** -0.5)
    return model
