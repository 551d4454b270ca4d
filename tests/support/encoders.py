"""Random encoders in torch under their real classes and key names, with tokenizers of their kinds.

Sizes are tiny, but everything that a family adds acts: relative positions reach past their buckets,
windows are shorter than what is scored, epsilons and token types are far from no effect.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    XLMRobertaConfig,
)

from engine.checkpoint.card import Checkpoint

WORDS = ("what", "is", "a", "good", "film", "bad", "it", "love", "war", "?", ".", "un", "very")
_SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "num_labels": 1,
    "layer_norm_eps": 0.02,  # an epsilon that acts
}
_DISTIL = {
    **{"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 64},
    **{"max_position_embeddings": 256, "num_labels": 1},
}
_DEBERTA = {
    **{"relative_attention": True, "position_buckets": 8, "max_relative_positions": -1},
    **{"pos_att_type": ["p2c", "c2p"], "share_att_key": True, "norm_rel_ebd": "layer_norm"},
    **{"position_biased_input": False, "type_vocab_size": 0, "pad_token_id": 0},
}
_MODERN = {
    **{"norm_eps": 0.02, "local_attention": 12, "global_attn_every_n_layers": 2},
    **{"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
}
FAMILIES = {
    "deberta-v3": lambda **more: DebertaV2Config(**{**_SHAPE, **_DEBERTA, **more}),
    # Of DeBERTa v2 in its first form: matrices of their own for positions, without buckets.
    "deberta-v2": lambda **more: DebertaV2Config(
        **{
            **_SHAPE,
            **_DEBERTA,
            **{"share_att_key": False, "position_buckets": -1, "max_relative_positions": 24},
            **{"norm_rel_ebd": "none", "position_biased_input": True, "type_vocab_size": 2},
            **more,
        }
    ),
    "electra": lambda **more: ElectraConfig(**{**_SHAPE, "embedding_size": 16, **more}),
    "roberta": lambda **more: RobertaConfig(**{**_SHAPE, "type_vocab_size": 1, **more}),
    "xlm-roberta": lambda **more: XLMRobertaConfig(**{**_SHAPE, "type_vocab_size": 1, **more}),
    "bert": lambda **more: BertConfig(**{**_SHAPE, **more}),
    "distilbert": lambda **more: DistilBertConfig(**{**_DISTIL, **more}),
    "modernbert": lambda **more: ModernBertConfig(**{**_SHAPE, **_MODERN, **more}),
    "modernbert, mean": lambda **more: ModernBertConfig(
        **{**_SHAPE, **_MODERN, "classifier_pooling": "mean", **more}
    ),
}


def build(name: str, **more) -> PreTrainedModel:
    """A random model whose rewards vary with every input."""
    torch.manual_seed(sum(map(ord, name)))
    model = AutoModelForSequenceClassification.from_config(FAMILIES[name](**more)).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            scale = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.3
            if any(part in key for part in ("query", "key_proj", "key.", "q_lin", "k_lin", "Wqkv")):
                scale *= 3  # attention that looks at few positions
            if "embedding" in key:  # the tokens of a reply count for more than their places
                scale = 0.3 if "position" in key else 1.0
            parameter.copy_(torch.randn(parameter.shape) * scale)
            if key.endswith("weight") and parameter.ndim == 1:  # of norms
                parameter.add_(1)
    return model


def tokenizer(name: str) -> PreTrainedTokenizerFast:
    """WordPiece, Unigram with metaspace, or byte-level BPE, with the family's separators."""
    if name.startswith(("bert", "electra", "distilbert")):
        return _wordpiece()
    return _unigram(name) if name.startswith(("deberta", "xlm")) else _bytes(name)


def _wordpiece() -> PreTrainedTokenizerFast:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *"abcdefghijklm", "##s", "##ly", "##ed"]
    made = tokenizers.Tokenizer(
        models.WordPiece(
            {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}, unk_token="[UNK]"
        )
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return _special(made, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", *pieces[:4])


def _unigram(name: str) -> PreTrainedTokenizerFast:
    roberta = name == "xlm-roberta"
    special = ["<s>", "<pad>", "</s>", "<unk>"] if roberta else ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    pieces = [*special, *(f"▁{word}" for word in WORDS), *WORDS, "▁", *"bcdefghij"]
    scores = [(piece, -float(i) / 8) for i, piece in enumerate(dict.fromkeys(pieces))]
    made = tokenizers.Tokenizer(models.Unigram(scores, unk_id=3, byte_fallback=False))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    if roberta:
        start, pad, end, unknown = special
        pair = f"{start} $A {end} {end} $B {end}"
        return _special(made, f"{start} $A {end}", pair, pad, unknown, start, end)
    pad, start, end, unknown = special
    pair = f"{start} $A {end} $B:1 {end}:1"
    return _special(made, f"{start} $A {end}", pair, pad, unknown, start, end)


def _bytes(name: str) -> PreTrainedTokenizerFast:
    roberta = name == "roberta"
    special = ["<s>", "<pad>", "</s>", "<unk>"] if roberta else ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    letters = [*"abcdefghijklmnopqrstuvwxyz?.", "Ġ"]
    pieces = [*special, *letters, "lo", "ve", "love", "Ġlove", "fi", "lm", "film", "Ġa"]
    merges = [("l", "o"), ("v", "e"), ("lo", "ve"), ("Ġ", "love"), ("f", "i"), ("l", "m")]
    merges += [("fi", "lm"), ("Ġ", "a")]
    made = tokenizers.Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    if roberta:
        start, pad, end, unknown = special
        made.post_processor = processors.RobertaProcessing((end, 2), (start, 0))
        return _special(made, "", "", pad, unknown, start, end)
    return _special(made, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", *special)


def _special(made, single, pair, pad, unknown, start, end) -> PreTrainedTokenizerFast:
    made.add_special_tokens([pad, unknown, start, end])
    ids = [(token, made.token_to_id(token)) for token in (start, end)]
    if single:
        made.post_processor = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=ids
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        **{"pad_token": pad, "unk_token": unknown, "cls_token": start, "sep_token": end},
    )


def save(model: PreTrainedModel, name: str, folder: Path, **config) -> Path:
    """A folder as transformers saves it, with changes of config.json."""
    model.save_pretrained(folder)
    tokenizer(name).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return folder


def text(words: int, seed: int = 0) -> str:
    """A text of so many words that all of the tokenizers know."""
    chosen = np.random.default_rng(seed).choice(["love", "film", "a", "bad"], words)
    return " ".join(chosen)


def prompt(checkpoint: Checkpoint, tokens: int) -> str:
    """A prompt whose conversation with an empty reply has about so many tokens."""
    words = 1
    while len(checkpoint.template.sequences(text(words), [""])[0]) < tokens:
        words += 1
    return text(words)


def outputs(model: PreTrainedModel, backend, prompt: str, replies: Sequence[str]) -> np.ndarray:
    """Logits of a prompt with each reply, as pairs of texts: [replies, labels]."""
    encoded = backend.backend_tokenizer.encode_batch([(prompt, reply) for reply in replies])
    return of_ids(model, [e.ids for e in encoded], [e.type_ids for e in encoded])


def of_ids(model, ids: list[list[int]], kinds: list[list[int]]) -> np.ndarray:
    """Logits of sequences of ids and their token types, in one padded batch."""
    most, pad = max(map(len, ids)), model.config.pad_token_id

    def filled(rows, value):
        return torch.tensor([[*row, *[value] * (most - len(row))] for row in rows])

    given = {
        "input_ids": filled(ids, pad),
        "attention_mask": filled([[1] * len(row) for row in ids], 0),
    }
    if getattr(model.config, "type_vocab_size", 0) > 1:
        given["token_type_ids"] = filled(kinds, 0)
    with torch.no_grad():
        return model(**given).logits.numpy()
