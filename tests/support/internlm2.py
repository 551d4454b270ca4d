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
HEAD_SIZE, GROUPS = WIDTH // HEADS, HEADS // KV_HEADS
REWARD = "<|reward|>"
REWARD_ID = 259  # the tokenizer's next free id
CONFIG = {
    "architectures": ["InternLM2ForRewardModel"],
    "attn_implementation": "eager",
    "auto_map": {
        "AutoConfig": "configuration_internlm2.InternLM2Config",
        "AutoModel": "modeling_internlm2.InternLM2ForRewardModel",
    },
    "bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": WIDTH,
    "initializer_range": 0.02,
    "intermediate_size": FFN,
    "max_position_embeddings": 256,
    "model_type": "internlm2",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "pad_token_id": 2,
    "reward_token_id": REWARD_ID,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "transformers_version": "4.41.2",
    "use_cache": True,
    "vocab_size": torch_models.VOCAB_SIZE,
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
def tensors() -> dict[str, torch.Tensor]:
    """Random tensors under the published names, so large that rewards vary with every token."""
    layer = {
        "attention.wqkv": ((HEADS + 2 * KV_HEADS) * HEAD_SIZE, WIDTH),
        "attention.wo": (WIDTH, HEADS * HEAD_SIZE),
        "feed_forward.w1": (FFN, WIDTH),
        "feed_forward.w3": (FFN, WIDTH),
        "feed_forward.w2": (WIDTH, FFN),
        "attention_norm": (WIDTH,),
        "ffn_norm": (WIDTH,),
    }
    shapes = {
        "model.tok_embeddings": (torch_models.VOCAB_SIZE, WIDTH),
        "model.norm": (WIDTH,),
        "v_head": (1, WIDTH),
    }
    shapes |= {f"model.layers.{i}.{name}": s for i in range(LAYERS) for name, s in layer.items()}
    generator = torch.Generator().manual_seed(0)
    return {f"{name}.weight": _draw(name, s, generator) for name, s in shapes.items()}


def _draw(name: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    drawn = torch.randn(shape, generator=generator)
    if "norm" in name:
        return 1 + 0.3 * drawn
    return drawn * (0.02 if "embed" in name else 1.25 * shape[1] ** -0.5)


@functools.cache
def build() -> LlamaForSequenceClassification:
    """The same model as transformers has it."""
    published = tensors()
    state = {
        "model.embed_tokens.weight": published["model.tok_embeddings.weight"],
        "model.norm.weight": published["model.norm.weight"],
        "score.weight": published["v_head.weight"],
    }
    for layer in range(LAYERS):
        ours, theirs = f"model.layers.{layer}.", f"model.layers.{layer}."
        for name, llama in _NAMES.items():
            state[f"{ours}{llama}.weight"] = published[f"{theirs}{name}.weight"]
        grouped = published[f"{theirs}attention.wqkv.weight"].reshape(
            KV_HEADS, GROUPS + 2, HEAD_SIZE, WIDTH
        )
        rows = {"q": grouped[:, :GROUPS], "k": grouped[:, -2], "v": grouped[:, -1]}
        for name, part in rows.items():
            state[f"{ours}self_attn.{name}_proj.weight"] = part.reshape(-1, WIDTH)
    config = torch_models.llama(HEADS, KV_HEADS, HEAD_SIZE, rope={"rope_theta": 1e6})
    config._attn_implementation = "eager"
    model = LlamaForSequenceClassification(config).eval()
    model.load_state_dict(state)
    return model


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
