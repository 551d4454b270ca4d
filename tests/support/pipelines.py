"""Tokenizers with the pipelines that published reward models have, as the files people save.

Each is trained on a few sentences, so that its words are tokens, and written as `tokenizer.json`
beside a `tokenizer_config.json` that names the class for which published files have that pipeline.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.support import tiny

ROWS = 512  # of the embedding: more than the ids of any of them
CLOSES, OPENS, BOS = "<|im_end|>", "<|im_start|>", "<|endoftext|>"
SPECIAL = (BOS, OPENS, CLOSES)
CORPUS = [
    "What, in one word, is the greatest thing ever? Love and truth, war and peace.",
    "The user asks, and the assistant answers: love love love, 7 lovely things.",
    "In 2024 there were 365 days, in 2025 365 too; 1 2 3 4 5 6 7 8 9 0 10 20 24 42.",
    "é café naïve Ünïcode  double  spaces\n\nnew lines\ttabs don't can't it's",
] * 4
TEXTS = (
    "love",
    " love",
    "in 2024",
    "365 days 1234567890",
    "  two  spaces ",
    "don't can't",
    "naïve café e\u0301",
    "\n\nnew\nlines\n",
    "日本 🙂",
    f"a {CLOSES} inside",
    "x",
)
SPLIT = Regex(r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+")


def _byte_level(digits: bool = False) -> Tokenizer:
    made = Tokenizer(models.BPE())
    own = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    split = [pre_tokenizers.Digits(individual_digits=True), own]
    made.pre_tokenizer = pre_tokenizers.Sequence(split) if digits else own
    made.decoder = decoders.ByteLevel()
    return _trained(made, pre_tokenizers.ByteLevel.alphabet())


def _qwen() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    own = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(SPLIT, "isolated"), own])
    made.decoder = decoders.ByteLevel()
    return _trained(made, pre_tokenizers.ByteLevel.alphabet())


def _metaspace(scheme: str) -> Tokenizer:
    """Mistral and Llama 2 as they are saved today: `always`, `first` or `never` a leading space."""
    made = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=True)
    replace, strip = decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)
    ends = [strip] if scheme != "never" else []
    made.decoder = decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse(), *ends])
    return _with_bytes(_trained(made, ["▁"], ["<unk>"]))


def _gemma() -> Tokenizer:
    """Spaces are replaced and nothing is split before the merges."""
    made = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    made = _trained(made, ["▁"], ["<unk>"])
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    replace = decoders.Replace("▁", " ")
    made.decoder = decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse()])
    return _with_bytes(made)


def _gaps() -> Tokenizer:
    """Tokens were removed, and others were added behind reserved rows."""
    made = _byte_level()
    model = json.loads(made.to_str())["model"]
    pieces = {piece for merge in model["merges"] for piece in merge} | {*SPECIAL}
    removed = [token for token in model["vocab"] if len(token) > 1 and token not in pieces][-5:]
    return tiny.changed(made, removed, {"<|first|>": 480, "<|second|>": 500, "<|image|>": ROWS + 8})


def _trained(made: Tokenizer, alphabet: list[str], special: list[str] | None = None) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=alphabet,
        special_tokens=[*SPECIAL, *(special or [])],
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


def _with_bytes(made: Tokenizer) -> Tokenizer:
    """With the 256 tokens that unknown characters fall back to: a few fit beside the words."""
    fields = json.loads(made.to_str())
    vocab = fields["model"]["vocab"]
    for byte in range(256):
        vocab.setdefault(f"<0x{byte:02X}>", len(vocab))
    return Tokenizer.from_str(json.dumps(fields))


# Name -> the tokenizer, and what tokenizer_config.json says.
PIPELINES: dict[str, tuple[Callable[[], Tokenizer], dict[str, Any]]] = {
    "byte level": (_byte_level, {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "digits, GPT-2's class": (
        lambda: _byte_level(digits=True),
        {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True},
    ),
    "digits, a class of its own": (
        lambda: _byte_level(digits=True),
        {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": [None, "own.Own"]}},
    ),
    "split and NFC, Qwen's class": (_qwen, {"tokenizer_class": "Qwen2Tokenizer"}),
    "Metaspace always, Llama's class": (
        lambda: _metaspace("always"),
        {"tokenizer_class": "LlamaTokenizer", "legacy": False, "add_prefix_space": False},
    ),
    "Metaspace first, Llama's class": (
        lambda: _metaspace("first"),
        {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, "add_eos_token": True},
    ),
    "Metaspace never, no class": (
        lambda: _metaspace("never"),
        {"clean_up_tokenization_spaces": True},
    ),
    "Gemma's class": (_gemma, {"tokenizer_class": "GemmaTokenizer"}),
    "gaps": (_gaps, {"tokenizer_class": "PreTrainedTokenizerFast"}),
}


def write(name: str, folder: Path, template: str | None) -> Tokenizer:
    """Writes a tokenizer's files; returns the one that its `tokenizer.json` is.

    The file also asks for truncation and padding, as some published files do by mistake.
    """
    make, config = PIPELINES[name]
    made = make()
    made.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, made.token_to_id(BOS))]
    )
    plain = Tokenizer.from_str(made.to_str())
    made.enable_truncation(4)
    made.enable_padding(length=8, pad_token=CLOSES, pad_id=made.token_to_id(CLOSES))
    made.save(str(folder / "tokenizer.json"))
    fields = {"bos_token": BOS, "eos_token": CLOSES, "pad_token": CLOSES}
    fields |= {"chat_template": template} if template else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(fields | config))
    return plain
