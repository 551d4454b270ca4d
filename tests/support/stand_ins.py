"""Ten folders that stand in for the paper's models: their classes, key names and real tokenizers.

Templates are the published ones; those of three models, which were published without the BOS, have
it taken out. One model's weights are in several files with an index, as all large ones are.

Sizes are shrunken and weights random, so no number is the paper's. A whole vocabulary takes half a
minute of CPU time per model and prompt. A cut one keeps the first ids of the published tokenizer,
its rules and its special tokens. Those of Gemma keep their ids; Llama's, which follow the others,
move down, and with them the ids at which a gate reads (`pattern`).
"""

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from torch import nn

from configs import known_models, known_shapes
from engine.text.tokenizer import load_tokenizer
from tests.support import heads, published

WIDTH, FFN, LAYERS, HEADS, KEYS, SIZE = 16, 16, 1, 2, 1, 8
CUT = 3000  # ids that a cut vocabulary keeps
_CHARACTERS = 400  # beyond them: Gemma's characters are its last ids


@dataclasses.dataclass(frozen=True)
class StandIn:
    """A published model, as its folder has it.

    Attributes:
      head: kind of its tensors, one of `_HEADS`.
      template: name of its template and tokenizer in `published.USES`.
      pad: pad_token_id of its config.json.
      more: rows of the embedding beyond the tokenizer's.
      bos: whether the template writes the BOS.
      shards: files of the weights.
    """

    head: str
    template: str
    pad: int
    more: int = 0
    bos: bool = True
    shards: int = 1


def _linear(width: int) -> nn.Module:
    head = nn.Module()
    head.score = nn.Linear(width, 1, bias=False)
    return head


_HEADS: Mapping[str, Callable[[int], nn.Module]] = {
    "linear": _linear,
    "urm": heads.URM,
    "armorm": heads.armorm,
    "qrm-llama": heads.qrm_llama,
    "qrm-gemma": heads.qrm_gemma,
}
MODELS: Mapping[str, StandIn] = {
    "qrm-gemma-2-27b": StandIn("qrm-gemma", "gemma", 0),
    "skywork-reward-gemma-2-27b-v0.2": StandIn("linear", "gemma", 0, shards=3),
    "skywork-reward-gemma-2-27b": StandIn("linear", "gemma", 0, bos=False),
    "skywork-reward-llama-3.1-8b-v0.2": StandIn("linear", "llama3-date", 128_004),
    "qrm-llama3.1-8b": StandIn("qrm-llama", "llama3-date", 128_256, 1, bos=False),
    # Whether this one's template writes the BOS could not be confirmed; its base's does not.
    "urm-llama-3.1-8b": StandIn("urm", "llama3-date", 128_256, 1, bos=False),
    "grm-llama3-8b-rewardmodel-ft": StandIn("linear", "llama3", 128_001),
    "grm-llama3.2-3b-rewardmodel-ft": StandIn("linear", "llama3-date", 128_256, 1),
    "armorm-llama3-8b-v0.1": StandIn("armorm", "llama3", 128_256, 1),
    "grm-gemma2-2b-rewardmodel-ft": StandIn("linear", "gemma", 1),
}


def write(folder: Path, slug: str, cache: Path) -> Path:
    """Writes the folder of a model below `folder`, named owner--name as the command looks for it.

    Args:
      folder: of all models.
      slug: one of `MODELS`.
      cache: folder of the published tokenizers.
    """
    stand_in, spec = MODELS[slug], known_models.KNOWN[slug]
    own = folder / spec.hub_id.replace("/", "--")
    folder.mkdir(parents=True, exist_ok=True)
    published.write(stand_in.template, own, cache)
    (own / "tokenizer.json").write_text(_cut_text(own / "tokenizer.json"))
    tokenizer = json.loads((own / "tokenizer.json").read_text(encoding="utf-8"))
    config = _config(stand_in, slug, tokenizer)
    (own / "config.json").write_text(json.dumps(config))
    if not stand_in.bos:
        _remove_bos(own / "chat_template.jinja")
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


def _remove_bos(template: Path) -> None:
    """Takes the BOS out of a template, at whose start it stands."""
    text = template.read_text(encoding="utf-8")
    assert text.startswith(("{{ bos_token }}", "{{- bos_token }}")), template
    template.write_text(text.partition("}}")[2].lstrip(), encoding="utf-8")


def pattern(folder: Path) -> tuple[int, ...]:
    """The ids that close the user's turn and open the assistant's, in a cut Llama vocabulary."""
    tokenizer = load_tokenizer(folder)
    text = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _cut_text(path: Path) -> str:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest not in _CUTS:
        _CUTS[digest] = json.dumps(_cut(json.loads(content)))
    return _CUTS[digest]


_CUTS: dict[str, str] = {}  # sha256 of a tokenizer.json -> the cut one


def _cut(tokenizer: dict[str, Any]) -> dict[str, Any]:  # Any: parsed JSON
    """A tokenizer.json with the first `CUT` ids; more characters and special tokens follow them."""
    model = tokenizer["model"]
    vocab = {token: i for token, i in model["vocab"].items() if i < CUT}
    beyond = sorted((i, token) for token, i in model["vocab"].items() if i >= CUT)
    chars = [token for _, token in beyond if len(token) == 1][:_CHARACTERS]
    vocab |= {token: CUT + at for at, token in enumerate(chars)}
    pairs = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]
    merges = [p for p in pairs if p[0] in vocab and p[1] in vocab and p[0] + p[1] in vocab]
    added = [token for token in tokenizer["added_tokens"] if token["id"] < CUT]
    more = [t for t in tokenizer["added_tokens"] if t["id"] >= CUT and t["special"]]
    moved = {token["content"]: len(vocab) + at for at, token in enumerate(more)}
    added += [{**token, "id": moved[token["content"]]} for token in more]
    processor = json.loads(json.dumps(tokenizer["post_processor"]))
    for step in [processor, *processor.get("processors", [])] if processor else []:
        for name, special in step.get("special_tokens", {}).items():
            special["ids"] = [moved.get(name, i) for i in special["ids"]]
    model = {**model, "vocab": vocab, "merges": merges}
    return {**tokenizer, "model": model, "added_tokens": added, "post_processor": processor}


def _config(stand_in: StandIn, slug: str, tokenizer: Mapping[str, Any]) -> dict[str, object]:
    spec, gemma = known_models.KNOWN[slug], stand_in.template == "gemma"
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    size = 1 + max([*tokenizer["model"]["vocab"].values(), *added.values()])
    begin = 0 if gemma else added["<|begin_of_text|>"] - 128_000
    rows, pad = size + stand_in.more, stand_in.pad + begin
    config = known_shapes.config_json(spec) | {
        "vocab_size": rows,
        "hidden_size": WIDTH,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "head_dim": SIZE,
        "pad_token_id": pad,
        "torch_dtype": "float16" if slug == "grm-gemma2-2b-rewardmodel-ft" else "bfloat16",
    }
    if stand_in.template == "gemma":
        config["query_pre_attn_scalar"] = SIZE
    return config | {"id2label": {"0": "LABEL_0"}}


def _tensors(stand_in: StandIn, config: Mapping[str, object], slug: str) -> dict[str, np.ndarray]:
    """Random tensors by Hugging Face name; two models with one trunk still differ."""
    rows = config["vocab_size"]
    layer = {
        "self_attn.q_proj": (HEADS * SIZE, WIDTH),
        "self_attn.k_proj": (KEYS * SIZE, WIDTH),
        "self_attn.v_proj": (KEYS * SIZE, WIDTH),
        "self_attn.o_proj": (WIDTH, HEADS * SIZE),
        "mlp.gate_proj": (FFN, WIDTH),
        "mlp.up_proj": (FFN, WIDTH),
        "mlp.down_proj": (WIDTH, FFN),
        "input_layernorm": (WIDTH,),
        "post_attention_layernorm": (WIDTH,),
    }
    if stand_in.template == "gemma":
        layer |= {f"{name}_feedforward_layernorm": (WIDTH,) for name in ("pre", "post")}
    shapes = {f"model.layers.0.{name}.weight": shape for name, shape in layer.items()}
    shapes |= {"model.embed_tokens.weight": (rows, WIDTH), "model.norm.weight": (WIDTH,)}
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
