"""Ten folders that stand in for the paper's models: their classes, key names and templates.

Templates are the published ones; those of three models, which were published without the BOS, have
it taken out. One model's weights are in several files with an index, as all large ones are. Sizes
are shrunken, weights random, and the tokenizers are tiny ones that know the words of a lexicon and
the markers of turns, so no number is the paper's.
"""

import dataclasses
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken
from torch import nn
from transformers import PreTrainedTokenizerBase

from analysis.words import lexicons
from configs import known_models, known_shapes
from engine.text.tokenizer import load_tokenizer
from tests.support import heads, published, tiny

WIDTH, FFN, LAYERS, HEADS, KEYS, SIZE = 16, 16, 1, 2, 1, 8
# What closes the user's turn and opens the assistant's, where a gate reads.
TURNS = {
    "gemma2": "<end_of_turn>\n<start_of_turn>model\n",
    "llama": "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
}
_MARKERS = (
    *("<start_of_turn>", "<end_of_turn>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
)


@dataclasses.dataclass(frozen=True)
class StandIn:
    """A published model, as its folder has it."""

    head: str  # kind of its tensors, one of `_HEADS`
    template: str  # name of its template in `published.USES`
    more: int = 0  # rows of the embedding beyond the tokenizer's
    bos: bool = True  # whether the template writes the BOS
    shards: int = 1  # files of the weights


_HEADS: Mapping[str, Callable[[int], nn.Module]] = {
    "linear": lambda width: heads.Rows(width, "score"),
    "urm": heads.URM,
    "armorm": heads.armorm,
    "qrm-llama": heads.qrm_llama,
    "qrm-gemma": heads.qrm_gemma,
}
MODELS: Mapping[str, StandIn] = {
    "qrm-gemma-2-27b": StandIn("qrm-gemma", "gemma"),
    "skywork-reward-gemma-2-27b-v0.2": StandIn("linear", "gemma", shards=3),
    "skywork-reward-gemma-2-27b": StandIn("linear", "gemma", bos=False),
    "skywork-reward-llama-3.1-8b-v0.2": StandIn("linear", "llama3-date"),
    "qrm-llama3.1-8b": StandIn("qrm-llama", "llama3-date", 1, bos=False),
    # Whether this one's template writes the BOS could not be confirmed; its base's does not.
    "urm-llama-3.1-8b": StandIn("urm", "llama3-date", 1, bos=False),
    "grm-llama3-8b-rewardmodel-ft": StandIn("linear", "llama3"),
    "grm-llama3.2-3b-rewardmodel-ft": StandIn("linear", "llama3-date", 1),
    "armorm-llama3-8b-v0.1": StandIn("armorm", "llama3", 1),
    "grm-gemma2-2b-rewardmodel-ft": StandIn("linear", "gemma"),
}


def write(folder: Path, slug: str) -> Path:
    """Writes a model of `MODELS` below a folder, named owner--name as the command looks for it."""
    stand_in, spec = MODELS[slug], known_models.KNOWN[slug]
    own = folder / spec.hub_id.replace("/", "--")
    own.mkdir(parents=True)
    tokenizer = _tokenizer(stand_in)
    tokenizer.save_pretrained(own)
    config = known_shapes.config_json(spec) | {
        "vocab_size": len(tokenizer) + stand_in.more,
        "hidden_size": WIDTH,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "head_dim": SIZE,
        "pad_token_id": tokenizer.convert_tokens_to_ids(tiny.ORPHAN),
        "torch_dtype": "float16" if slug == "grm-gemma2-2b-rewardmodel-ft" else "bfloat16",
        "id2label": {"0": "LABEL_0"},
    }
    if stand_in.template == "gemma":
        config["query_pre_attn_scalar"] = SIZE
    (own / "config.json").write_text(json.dumps(config))
    write_weights(own, _tensors(stand_in, config, slug), stand_in.shards)
    return own


def write_weights(folder: Path, tensors: Mapping[str, np.ndarray], shards: int) -> None:
    """Writes tensors as one file, or as several with an index, as published models have them."""
    if shards == 1:
        save_file(dict(tensors), folder / "model.safetensors")
        return
    names = sorted(tensors)
    files = {f"model-{i + 1:05}-of-{shards:05}.safetensors": i for i in range(shards)}
    for file, i in files.items():
        save_file({name: tensors[name] for name in names[i::shards]}, folder / file)
    where = {name: file for file, i in files.items() for name in names[i::shards]}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def pattern(folder: Path, family: str) -> tuple[int, ...]:
    """The ids at which a gate reads, in the tokenizer of a folder."""
    return tuple(load_tokenizer(folder)(TURNS[family], add_special_tokens=False)["input_ids"])


def _tokenizer(stand_in: StandIn) -> PreTrainedTokenizerBase:
    """It puts its own BOS in front of a text, as the published ones do."""
    template = (published.TEMPLATES / f"{stand_in.template}.jinja").read_text(encoding="utf-8")
    if not stand_in.bos:  # which stands at the start
        assert template.startswith(("{{ bos_token }}", "{{- bos_token }}"))
        template = template.partition("}}")[2].lstrip()
    words = lexicons.afinn("").sort("word").gather_every(8)["word"].to_list()
    words = words[::-1] if stand_in.template == "gemma" else words
    made = tiny.tokenizer(template, words=words, adds_bos=True)
    made.add_tokens([AddedToken(one, special=True) for one in _MARKERS], special_tokens=True)
    return made


def _tensors(stand_in: StandIn, config: Mapping[str, object], slug: str) -> dict[str, np.ndarray]:
    """Random tensors by Hugging Face name; two models with one trunk still differ."""
    gemma = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
    shapes = tiny.decoder_shapes(config, gemma if stand_in.template == "gemma" else ())
    shapes |= _head(stand_in.head)
    dtype = np.float16
    return {n: np.asarray(_draw(f"{slug} {n}", shape), dtype) for n, shape in shapes.items()}


def _head(kind: str) -> dict[str, Sequence[int]]:
    """Shapes of a head's tensors, with the module indices of the published gates."""
    tensors = _HEADS[kind](WIDTH).state_dict()
    return {name: tensor.shape for name, tensor in tensors.items() if tensor.is_floating_point()}


def _draw(name: str, shape: Sequence[int]) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = rng.standard_normal(tuple(shape), np.float32)
    if "running_var" in name:
        return 1 + np.abs(drawn)
    if "norm" in name:
        return (1 if "gemma" not in name else 0) + 0.1 * drawn
    scale = 1.0 if len(shape) < 2 or "embed" in name else 1.5 / shape[-1] ** 0.5
    return scale * drawn
