"""Random encoders in torch under their real classes and key names, with tokenizers of their kinds.

Sizes are tiny, but everything that a family adds acts: relative positions reach past their buckets,
windows are shorter than what is scored, epsilons and token types are far from no effect.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import processors
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    BertTokenizer,
    DebertaV2Tokenizer,
    PreTrainedModel,
    RobertaTokenizer,
    TokenizersBackend,
    XLMRobertaTokenizer,
)

from engine.checkpoint.card import Checkpoint

WORDS = ("what", "is", "a", "good", "film", "bad", "it", "love", "war", "?", ".", "un", "very")
BRACKETS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
ANGLES = ("<s>", "<pad>", "</s>", "<unk>")
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
# Of DeBERTa v2 in its first form: matrices of their own for positions, without buckets.
_FIRST = {
    **{"share_att_key": False, "position_buckets": -1, "max_relative_positions": 24},
    **{"norm_rel_ebd": "none", "position_biased_input": True, "type_vocab_size": 2},
}
FAMILIES = {
    "deberta-v3": ("deberta-v2", _SHAPE | _DEBERTA),
    "deberta-v2": ("deberta-v2", _SHAPE | _DEBERTA | _FIRST),
    "electra": ("electra", _SHAPE | {"embedding_size": 16}),
    "roberta": ("roberta", _SHAPE | {"type_vocab_size": 1}),
    "xlm-roberta": ("xlm-roberta", _SHAPE | {"type_vocab_size": 1}),
    "bert": ("bert", _SHAPE),
    "distilbert": ("distilbert", _DISTIL),
    "modernbert": ("modernbert", _SHAPE | _MODERN),
    "modernbert, mean": ("modernbert", _SHAPE | _MODERN | {"classifier_pooling": "mean"}),
}


def build(name: str, **more) -> PreTrainedModel:
    """A random model whose rewards vary with every input."""
    torch.manual_seed(sum(map(ord, name)))
    kind, fields = FAMILIES[name]
    model = AutoModelForSequenceClassification.from_config(
        AutoConfig.for_model(kind, **fields | more)
    ).eval()
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


def tokenizer(name: str) -> TokenizersBackend:
    """WordPiece, Unigram with metaspace, or byte-level BPE, as transformers makes the family's."""
    if name.startswith(("bert", "electra", "distilbert")):
        pieces = [*BRACKETS, *WORDS, *"abcdefghijklm", "##s", "##ly", "##ed"]
        return BertTokenizer({piece: i for i, piece in enumerate(dict.fromkeys(pieces))})
    if not name.startswith(("deberta", "xlm")):
        return _bytes(name)
    kind, special = DebertaV2Tokenizer, BRACKETS
    if name.startswith("xlm"):
        kind, special = XLMRobertaTokenizer, ANGLES
    pieces = [*special, *(f"▁{word}" for word in WORDS), *WORDS, "▁", *"bcdefghij"]
    return kind([(piece, -float(i) / 8) for i, piece in enumerate(dict.fromkeys(pieces))])


def _bytes(name: str) -> RobertaTokenizer:
    special = ANGLES if name == "roberta" else BRACKETS
    pieces = [*special, *"abcdefghijklmnopqrstuvwxyz?.", "Ġ", "lo", "ve", "love", "Ġlove"]
    vocab = {piece: i for i, piece in enumerate([*pieces, "fi", "lm", "film", "Ġa"])}
    merges = [("l", "o"), ("v", "e"), ("lo", "ve"), ("Ġ", "love"), ("f", "i"), ("l", "m")]
    merges += [("fi", "lm"), ("Ġ", "a")]
    if name == "roberta":
        return RobertaTokenizer(vocab, merges)
    roles = zip(("pad", "unk", "cls", "sep", "bos", "eos"), [*BRACKETS, *BRACKETS[2:]], strict=True)
    made = RobertaTokenizer(vocab, merges, **{f"{role}_token": token for role, token in roles})
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return made


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
    columns = {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        columns["token_type_ids"] = kinds
    fills = {"input_ids": model.config.pad_token_id}
    given = {
        name: pad_sequence([*map(torch.tensor, rows)], True, fills.get(name, 0))
        for name, rows in columns.items()
    }
    with torch.no_grad():
        return model(**given).logits.numpy()
