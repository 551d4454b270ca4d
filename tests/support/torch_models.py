"""Random models of every decoder family in torch, under their real classes and key names.

Sizes are tiny, but everything that a family adds acts: windows are shorter than what is scored
(and than the shared prefix), the soft-cap is near the logits, norms and biases are far from where
training starts, and no derived size is what another formula would give.
"""

import functools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    LlamaForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
)

from tests.support import tiny

of_kind = AutoConfig.for_model  # `model_type` and other fields of a config.json -> the config
WEIGHTS = "model.safetensors"
VOCAB_SIZE = 264  # the tokenizer's ids, and rows that no token has, as published models do
WINDOW = 24
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,  # so that all three of its ranges occur within 160
}

# One layer, because each is compiled by itself; two where they differ, or tests look at them.
SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_COMMON = {
    **SHAPE,
    "num_labels": 1,
    "pad_token_id": None,
    "eos_token_id": None,
    "bos_token_id": None,
}
_TWO = {**_COMMON, "num_hidden_layers": 2}
GEMMA2 = {
    **_TWO,
    "head_dim": 12,
    "query_pre_attn_scalar": 6,
    "attn_logit_softcapping": 3.0,
    "sliding_window": WINDOW,
}
# A layer with a window and one without, whose ropes differ in base and scaling.
_TWO_KINDS = {
    **_TWO,
    "head_dim": 12,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
}
GEMMA3 = {
    **_TWO_KINDS,
    "query_pre_attn_scalar": 6,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}
YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 4.0,  # so that frequencies are kept, blended and divided within so few positions
    "beta_slow": 1.0,
    "rope_theta": 5e5,
}
OLMO3 = {
    **_TWO_KINDS,
    "rope_parameters": {
        "full_attention": YARN,
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
    },
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


QWEN_VISION = {
    **{"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2},
    **{"out_hidden_size": 32, "patch_size": 4},
}
# Of models whose class has no head: one is beside it, as LLaMA-Factory saves it.
MROPE = {"rope_type": "default", "rope_theta": 3e4, "mrope_section": [1, 3, 2]}
WITH_IMAGES = {
    "qwen2_5_vl": lambda: of_kind(
        "qwen2_5_vl",
        text_config={**_COMMON, "hidden_size": 48, "rope_parameters": MROPE},
        vision_config={**QWEN_VISION, "out_hidden_size": 48, "fullatt_block_indexes": [0]},
    ),
    "qwen3_vl": lambda: of_kind(
        "qwen3_vl",
        text_config={**_COMMON, "head_dim": 12, "rope_parameters": MROPE},
        vision_config={**QWEN_VISION, "deepstack_visual_indexes": [0]},
    ),
}


def llama(heads: int, kv_heads: int, head_size: int, *, rope=None, **changes) -> PreTrainedConfig:
    """Llama with heads of a size of their own; `rope` changes what its position embedding is."""
    shape = {
        **SHAPE,
        "num_labels": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_size,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, **(rope or {})},
    }
    return of_kind("llama", **{**shape, **changes})


# Its long factors act beyond 192 positions, where the engine has none.
LONGROPE = {
    **{"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    **{"short_factor": [1.1, 1.9, 3.0], "long_factor": [1.5, 4.0, 9.0]},
    "original_max_position_embeddings": 192,
}


def phi3(**changes) -> PreTrainedConfig:
    """Phi-3 with heads of 12."""
    shape = {**_COMMON, "hidden_size": 48, "sliding_window": WINDOW, **changes}
    return of_kind("phi3", **{"original_max_position_embeddings": 192, **shape})


def gpt_neox(**changes) -> PreTrainedConfig:
    """Pythia with heads of 12, of which 6 are rotated, and a theta of its own."""
    shape = {name: size for name, size in _TWO.items() if name != "num_key_value_heads"}
    shape |= {"hidden_size": 48, "intermediate_size": 80, "layer_norm_eps": 1e-5}
    return of_kind("gpt_neox", **{**shape, "rotary_pct": 0.5, "rotary_emb_base": 5000, **changes})


def gpt2(**changes) -> PreTrainedConfig:
    """GPT-2 with heads of 12; without `n_inner`, its feed-forward is four times as wide."""
    sizes = {"vocab_size": VOCAB_SIZE, "n_embd": 48, "n_layer": 1, "n_head": 4, "n_positions": 256}
    special = {name: None for name in _COMMON if name.endswith("token_id")}
    return of_kind("gpt2", **{**sizes, **special, "num_labels": 1, **changes})


def qwen3_moe(**changes) -> PreTrainedConfig:
    shape = {**_COMMON, "head_dim": 12, "moe_intermediate_size": 24}
    return of_kind("qwen3_moe", **{**shape, "num_experts": 7, "num_experts_per_tok": 3, **changes})


# The rule's heads of values are three for each of keys, and its layers stand on both sides of the
# one with attention; the last layer has the rule.
QWEN3_5 = {
    **_COMMON,
    "head_dim": 12,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 10},
    **{"linear_value_head_dim": 7, "linear_conv_kernel_dim": 4},
    "rope_parameters": {
        **{"rope_type": "default", "rope_theta": 3e4, "partial_rotary_factor": 0.5},
        **{"mrope_section": [1, 1, 1], "mrope_interleaved": True},
    },
}

# A TPU loops over them; a layer follows.
TWO_PERIODS = QWEN3_5 | {
    "num_hidden_layers": 5,
    "layer_types": [*["linear_attention", "full_attention"] * 2, "linear_attention"],
}

# Every kind of attention with every kind of RoPE that Llama is published with; head sizes that are
# not width / heads; a theta that is not the default one.
LLAMAS = {
    "mha": lambda: llama(4, 4, 8, num_hidden_layers=2, tie_word_embeddings=True),
    "gqa": lambda: llama(8, 2, 10, rope={"rope_theta": 50_000.0}, num_hidden_layers=3),
    "gqa-llama3": lambda: llama(
        8, 4, 12, rope=LLAMA3_SCALING, num_hidden_layers=2, tie_word_embeddings=True
    ),
    "mqa-linear": lambda: llama(4, 1, 16, rope={"rope_type": "linear", "factor": 4.0}),
}
FAMILIES = {
    "gemma": lambda: of_kind("gemma", **_COMMON, head_dim=12),
    "gemma2": lambda: of_kind("gemma2", **GEMMA2),
    "gemma2, four layers": lambda: of_kind("gemma2", **{**GEMMA2, "num_hidden_layers": 4}),
    "gemma2, no soft-cap": lambda: of_kind("gemma2", **{**GEMMA2, "attn_logit_softcapping": None}),
    "gemma3": lambda: of_kind("gemma3_text", **GEMMA3),
    "gemma3, images": lambda: of_kind(
        "gemma3", text_config=GEMMA3, vision_config=VISION, mm_tokens_per_image=4, num_labels=1
    ),
    "qwen2": lambda: of_kind("qwen2", **_COMMON),
    "qwen2, window": lambda: of_kind(
        "qwen2", **_TWO, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1
    ),
    "qwen3": lambda: of_kind("qwen3", **_COMMON, head_dim=12),
    "mistral": lambda: of_kind("mistral", **_TWO, head_dim=12, sliding_window=WINDOW),
    "phi3": lambda: phi3(rope_parameters=LONGROPE, partial_rotary_factor=0.5),
    "phi3, whole heads": lambda: phi3(sliding_window=None, tie_word_embeddings=True),
    "gpt_neox": lambda: gpt_neox(),
    "gpt_neox, in turn": lambda: gpt_neox(rotary_pct=0.34, use_parallel_residual=False),
    "gpt2": lambda: gpt2(n_inner=80),
    "gpt2, erf": lambda: gpt2(activation_function="gelu", layer_norm_epsilon=1e-6),
    "olmo2": lambda: of_kind("olmo2", **_TWO),
    "olmo3": lambda: of_kind("olmo3", **OLMO3),
    "smollm3": lambda: of_kind(
        "smollm3", **_TWO, head_dim=12, no_rope_layers=[1, 0], rope_parameters={"rope_theta": 3e4}
    ),
    "mistral, no window": lambda: of_kind("mistral", **_COMMON, head_dim=12, sliding_window=None),
    "mixtral": lambda: of_kind(  # of which two for each token
        "mixtral", **_COMMON, head_dim=12, sliding_window=WINDOW, num_local_experts=4
    ),
    "arcee": lambda: of_kind("arcee", **_COMMON),
    "seed_oss": lambda: of_kind("seed_oss", **_COMMON, head_dim=12),
    "qwen3_5": lambda: of_kind("qwen3_5_text", **QWEN3_5),
    "qwen3_5, two periods": lambda: of_kind("qwen3_5_text", **TWO_PERIODS),
    "qwen3_5, images": lambda: of_kind(
        "qwen3_5", text_config=QWEN3_5, vision_config=QWEN_VISION, num_labels=1
    ),
    "qwen3_moe": lambda: qwen3_moe(norm_topk_prob=True),
    "qwen3_moe, three layers": lambda: qwen3_moe(norm_topk_prob=True, num_hidden_layers=3),
    "qwen3_moe, probabilities among all": lambda: qwen3_moe(norm_topk_prob=False),
}
CONFIGS = {**LLAMAS, **FAMILIES}
DEFAULT = "-default"  # ends the name of a model whose weights are those that training starts from


@functools.cache
def build(name: str) -> PreTrainedModel:
    """The random model of a name in `CONFIGS`, or of one that ends in `DEFAULT`."""
    config = CONFIGS[name.removesuffix(DEFAULT)]()
    if not name.endswith(DEFAULT):
        return enlarged(config)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        auto = AutoModelForSequenceClassification
        return auto.from_config(config, attn_implementation="eager").eval()


def enlarged(
    config: PreTrainedConfig, auto=AutoModelForSequenceClassification, embedding: float = 0.0
) -> PreTrainedModel:
    """A model whose numbers vary with every token and with everything its family adds.

    With the weights that training starts from, attention hardly acts.
    `embedding` is the standard deviation of its embedding; by default that of training's start.
    """
    # Norms of Gemma and Qwen 3.5 multiply by 1 + w.
    ones = 0.0 if config.model_type.startswith(("gemma", "qwen3_5")) else 1.0
    with torch.random.fork_rng():
        torch.manual_seed(0)
        # The loop over experts, which takes float64 too.
        config._experts_implementation = "eager"
        model = auto.from_config(config, attn_implementation="eager").eval()
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.data.normal_(0.0, 0.5)
            elif name.endswith("A_log"):  # of the gated delta rule: states that last
                weight.data.normal_(-3.0, 1.0)
            elif weight.ndim == 1:
                weight.data.normal_(1.0 if "linear_attn" in name else ones, 0.3)
            elif re.search("embed|wte|wpe", name):
                if embedding:  # small ones keep the eps of norms visible
                    weight.data.normal_(0.0, embedding)
            else:
                weight.data.normal_(0.0, 1.25 * weight.shape[1] ** -0.5)
    return model


def truncated(model: LlamaForSequenceClassification, layers: int) -> LlamaForSequenceClassification:
    """The first layers of a model, with a final norm and a head of its own."""
    config = type(model.config)(**{**model.config.to_dict(), "num_hidden_layers": layers})
    config._attn_implementation = "eager"
    shallow = LlamaForSequenceClassification(config).eval()
    shallow.load_state_dict(model.state_dict(), strict=False)
    with torch.random.fork_rng():
        torch.manual_seed(layers)
        shallow.model.norm.weight.data.normal_(1.0, 0.3)
        shallow.score.weight.data.normal_(0.0, 0.3)
    return shallow


def save(model: PreTrainedModel, folder: Path, **options) -> Path:
    """Saves model and tokenizer as published folders are; `options` of `save_pretrained`."""
    model.save_pretrained(folder, **options)
    tokenizer().save_pretrained(folder)
    return folder


def edit_tensors(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], object], file: str = WEIGHTS
) -> None:
    """Lets `change` alter the tensors of a file, by name."""
    tensors = load_file(folder / file)
    change(tensors)
    save_file(tensors, folder / file)


def shard(
    folder: Path, change: Callable[[dict[str, list[str]], dict[str, str]], object] | None = None
) -> None:
    """Divides the weights among two files with an index, which `change` may damage."""
    tensors = load_file(folder / WEIGHTS)
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    index = {name: file for file, members in shards.items() for name in members}
    if change:
        change(shards, index)
    for file, members in shards.items():
        save_file({name: tensors[name] for name in members}, folder / file)
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / WEIGHTS).unlink()


def tokenizer():
    """Special tokens and one token per byte, ChatML."""
    return tiny.tokenizer(words=())


@torch.no_grad()
def hidden_states(model: PreTrainedModel, ids: np.ndarray) -> list[np.ndarray]:
    """Residual stream after each layer but the last, then after the last layer and final norm."""
    out = model.base_model(torch.tensor(ids, dtype=torch.long), output_hidden_states=True)
    return [state.numpy() for state in out.hidden_states[1:]]


def rewards(model: PreTrainedModel, sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Rewards of whole sequences: nothing is padded, nothing is shared.

    Computed once for the same model, which must not change, and the same sequences.
    """
    return _rewards(model, tuple(tuple(map(int, s)) for s in sequences))


@functools.cache
@torch.no_grad()
def _rewards(model, sequences: tuple[tuple[int, ...], ...]) -> np.ndarray:
    last = last_states(model.base_model, sequences)
    rewards = np.array([model.score(hidden).item() for hidden in last])
    rewards.flags.writeable = False
    return rewards


@torch.no_grad()
def last_states(network, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
    """Hidden states [C, D] at the end of whole sequences: nothing is padded."""
    lengths, states = np.array([*map(len, sequences)]), {}
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        ids = torch.tensor([sequences[row] for row in rows])
        states |= zip(rows, network(ids).last_hidden_state[:, -1], strict=True)
    return torch.stack([states[row] for row in range(len(sequences))])
