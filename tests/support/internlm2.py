"""InternLM2 reward models in torch: a Llama whose weights are split from the published tensors.

The published class is custom code, which is never executed. Its formulas: `wqkv` holds, a
key/value head after another, the rows of that head's queries, then of its key, then of its value;
RoPE is half-split; the reward is `v_head` at the last position, where the template has put
`<|reward|>`. config.json and key names are those of internlm2-1_8b-reward.
"""

import functools
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken
from transformers import LlamaForSequenceClassification

from tests.support import folders, tiny, torch_models

WIDTH, FFN = torch_models.SHAPE["hidden_size"], torch_models.SHAPE["intermediate_size"]
HEADS, KV_HEADS = (torch_models.SHAPE[f"num_{n}_heads"] for n in ("attention", "key_value"))
LAYERS = torch_models.SHAPE["num_hidden_layers"]
HEAD_SIZE = WIDTH // HEADS
REWARD = "<|reward|>"
REWARD_ID = 259  # the tokenizer's next free id
CONFIG = {
    **{"architectures": ["InternLM2ForRewardModel"], "model_type": "internlm2"},
    "auto_map": {
        "AutoConfig": "configuration_internlm2.InternLM2Config",
        "AutoModel": "modeling_internlm2.InternLM2ForRewardModel",
    },
    **{"attn_implementation": "eager", "bias": False, "hidden_act": "silu", "use_cache": True},
    **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "reward_token_id": REWARD_ID},
    **{"hidden_size": WIDTH, "intermediate_size": FFN, "vocab_size": torch_models.VOCAB_SIZE},
    **{"num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS},
    **{"max_position_embeddings": 256, "rms_norm_eps": 1e-05, "initializer_range": 0.02},
    **{"rope_scaling": None, "rope_theta": 1000000, "tie_word_embeddings": False},
    **{"torch_dtype": "float16", "transformers_version": "4.41.2"},
}
_NAMES = {  # of a layer, in the published file -> in LlamaForSequenceClassification
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w3": "mlp.up_proj",
    "feed_forward.w2": "mlp.down_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


@functools.cache
def build() -> LlamaForSequenceClassification:
    """The model as transformers has it."""
    rope = {"rope_theta": 1e6}
    return torch_models.enlarged(torch_models.llama(HEADS, KV_HEADS, HEAD_SIZE, rope=rope))


def tensors() -> dict[str, torch.Tensor]:
    """Its weights under the published names."""
    state = build().state_dict()
    published = {
        "model.tok_embeddings.weight": state["model.embed_tokens.weight"],
        "model.norm.weight": state["model.norm.weight"],
        "v_head.weight": state["score.weight"],
    }
    for layer in (f"model.layers.{i}." for i in range(LAYERS)):
        for name, llama in _NAMES.items():
            published[f"{layer}{name}.weight"] = state[f"{layer}{llama}.weight"]
        rows = [
            state[f"{layer}self_attn.{name}_proj.weight"].reshape(KV_HEADS, -1, HEAD_SIZE, WIDTH)
            for name in "qkv"
        ]
        fused = torch.cat(rows, dim=1).reshape(-1, WIDTH)
        published[f"{layer}attention.wqkv.weight"] = fused
    return published


def save(folder: Path, template: str | None = None) -> Path:
    """As published: config.json, tensors, and a tokenizer that knows `<|reward|>`."""
    tokenizer = torch_models.tokenizer()
    tokenizer.add_tokens([AddedToken(REWARD, special=True)], special_tokens=True)
    assert tokenizer.convert_tokens_to_ids(REWARD) == REWARD_ID
    tokenizer.chat_template = template or tiny.CHATML + "{{ '" + REWARD + "' }}"
    tokenizer.save_pretrained(folder)
    save_file(tensors(), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text("{}")
    folders.edit_json(folder / "config.json", **CONFIG)
    return folder
