"""A tiny model as a Hugging Face folder, made of numpy and tokenizers alone: torch is not imported.

Its tokenizer is a byte-level BPE whose merges are the words below, so that a test knows how every
text tokenises: bytes stand alone, a word of `WORDS` is one token, with or without its space.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tokenizers
from safetensors.numpy import save_file
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WORDS = (
    "love",
    " love",
    "war",
    " war",
    "truth",
    "<script>",
    "the",
    " the",
    " zq",
    "user\n",
    "\n\n",
)
QUANTILES = 3  # of each objective of the head `qrm`
GATE = (2, 201, 1)  # where its gate reads: `<|im_end|>`, a line end, `<|im_start|>`
ORPHAN = "qj"  # a token that no merge makes: its text tokenises as two

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
)
TRIMMED = CHATML.replace("message['content']", "message['content'] | trim")


def tokenizer(
    template: str | None = CHATML, *, words: Sequence[str] = WORDS, adds_bos: bool = False
) -> PreTrainedTokenizerFast:
    """Specials, the 256 bytes, each word and what its merges pass through, `ORPHAN`.

    Without words, every byte stands alone. `adds_bos`: the tokenizer puts its own BOS in front of a
    text, as Llama 3's does.
    """
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    merges: dict[tuple[str, str], None] = {}
    for word in map(_byte_level, words):
        core = word.removeprefix("Ġ")
        ends = range(1, len(core))
        pairs = [(core[:end], core[end]) for end in ends]
        pairs += [("Ġ", core)] if core != word else []
        for left, right in pairs:
            merges[left, right] = None
            vocab.setdefault(left + right, len(vocab))
    if words:
        vocab[ORPHAN] = len(vocab)
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=list(merges)))
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    bpe.add_special_tokens(list(SPECIAL))
    if adds_bos:
        bpe.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{SPECIAL[0]} $A", special_tokens=[(SPECIAL[0], 0)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        pad_token=SPECIAL[0],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def changed(
    made: tokenizers.Tokenizer, removed: Sequence[str], added: Mapping[str, int]
) -> tokenizers.Tokenizer:
    """A tokenizer without some tokens, and with others that were added (token -> id)."""
    fields = json.loads(made.to_str())
    model, own = fields["model"], fields["added_tokens"]
    for token in removed:
        del model["vocab"][token]
    model["merges"] = [merge for merge in model["merges"] if "".join(merge) not in removed]
    model["vocab"] |= added  # else the library gives it the next free id
    own += [own[-1] | {"id": i, "content": t, "special": False} for t, i in added.items()]
    return tokenizers.Tokenizer.from_str(json.dumps(fields))


def config(**changes) -> dict:
    """config.json of a Llama with grouped queries; its embedding has rows the tokenizer lacks.

    It has one layer, because each is compiled by itself; tests of layers ask for more.
    """
    return {
        "architectures": ["LlamaForSequenceClassification"],
        "model_type": "llama",
        "vocab_size": 320,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 128,
        "id2label": {"0": "LABEL_0"},
        **changes,
    }


def decoder_shapes(config: dict, norms: Sequence[str] = ()) -> dict[str, tuple[int, ...]]:
    """Hugging Face name -> shape of a decoder's tensors; `norms` are a layer's further ones."""
    width, ffn, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    layer = {
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, queries),
        "mlp.gate_proj": (ffn, width),
        "mlp.up_proj": (ffn, width),
        "mlp.down_proj": (width, ffn),
        **{name: (width,) for name in ("input_layernorm", "post_attention_layernorm", *norms)},
    }
    shapes = {
        f"model.layers.{i}.{name}.weight": shape
        for i in range(config["num_hidden_layers"])
        for name, shape in layer.items()
    }
    return shapes | {
        "model.embed_tokens.weight": (config["vocab_size"], width),
        "model.norm.weight": (width,),
    }


def tensors(config: dict, *, seed: int = 0, head: str = "linear", head_seed: int = 0) -> dict:
    """Random float32 tensors by Hugging Face name.

    Each is drawn from its own name and `seed`, so a model of fewer layers is the first layers of a
    deeper one; the head alone follows `head_seed`. Large enough for rewards that vary.
    """
    width = config["hidden_size"]
    heads = {
        "linear": {"score.weight": (1, width)},
        "mlp": {
            "score.0.weight": (width, width),
            "score.0.bias": (width,),
            "score.2.weight": (1, width),
            "score.2.bias": (1,),
        },
        "urm": {
            "score.weight": (10, width),
            "weights.fc.0.weight": (8, width),
            "weights.fc.0.bias": (8,),
            "weights.fc.2.weight": (6, 8),
            "weights.fc.2.bias": (6,),
            "weights.fc.4.weight": (5, 6),
            "weights.fc.4.bias": (5,),
        },
        "qrm": {
            "regression_layer.weight": (5 * QUANTILES, width),
            "gating.layers.0.weight": (8, width),
            "gating.layers.0.bias": (8,),
            "gating.layers.1.weight": (5, 8),
            "gating.layers.1.bias": (5,),
            "gating.logit_scale": (1,),
        },
        "lm": {"lm_head.weight": (config["vocab_size"], width)},
    }
    drawn = {name: _draw(name, shape, seed) for name, shape in decoder_shapes(config).items()}
    return drawn | {name: _draw(name, s, head_seed) for name, s in heads[head].items()}


def write_model(
    folder: Path,
    *,
    seed: int = 0,
    head: str = "linear",
    head_seed: int = 0,
    template: str | None = CHATML,
    nan_token: int | None = None,
    nan_head: bool = False,
    **changes,
) -> Path:
    """Writes the folder and returns it.

    Args:
      folder: to be made.
      seed: of the decoder.
      head: `linear`, `mlp`, `urm`, `qrm`, whose gate wants `gates.PATTERNS` to know `GATE`, or
        `lm` for a language model.
      head_seed: of the head.
      template: chat template; None leaves it out.
      nan_token: a row of the embedding that becomes NaN.
      nan_head: the linear head has a NaN.
      **changes: to `config`.
    """
    if head == "lm":
        changes = {"architectures": ["LlamaForCausalLM"], **changes}
    hf = config(**changes)
    weights = tensors(hf, seed=seed, head=head, head_seed=head_seed)
    if nan_token is not None:
        weights["model.embed_tokens.weight"][nan_token] = np.nan
    if nan_head:
        weights["score.weight"][0, 0] = np.nan
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(hf))
    tokenizer(template).save_pretrained(folder)
    return folder


def _byte_level(text: str) -> str:
    [(token, _)] = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    ).pre_tokenize_str(text)
    return token


def _draw(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    drawn = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape)
    if "norm" in name:
        return (1 + 0.1 * drawn).astype(np.float32)
    scale = 1.0 if len(shape) == 1 or "embed" in name else 1.5 / shape[-1] ** 0.5
    return (scale * drawn).astype(np.float32)
