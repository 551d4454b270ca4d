"""Which Hugging Face tensor fills which parameter: the table that conversion reads.

A rule names a tensor, its layout as axis letters in file order (`(NH)D` is one dimension of N·H
rows; `1` is a dimension of size one), and the parameter it fills. The parameter's own `axes` say
the order there, so transposition follows from the letters.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping

import numpy as np

from engine.errors import AssayError
from engine.models.config import DecoderConfig


@dataclasses.dataclass(frozen=True)
class Rule:
    """`{l}` in `key` stands for a layer, whose slices are stacked along a leading L.

    `part` is `q`, `k` or `v` where the tensor holds all three: a key/value head after another, the
    rows of its queries, then of its key, then of its value. `layout` is that of the part.
    """

    key: str
    layout: str
    parameter: str
    part: str = ""


_LAYER = "model.layers.{l}."
_COMMON = (
    Rule("model.embed_tokens.weight", "VD", "decoder.embedding"),
    Rule(_LAYER + "input_layernorm.weight", "D", "decoder.layers.attention_norm"),
    Rule(_LAYER + "self_attn.q_proj.weight", "(NH)D", "decoder.layers.q"),
    Rule(_LAYER + "self_attn.k_proj.weight", "(KH)D", "decoder.layers.k"),
    Rule(_LAYER + "self_attn.v_proj.weight", "(KH)D", "decoder.layers.v"),
    Rule(_LAYER + "self_attn.o_proj.weight", "D(NH)", "decoder.layers.o"),
    Rule(_LAYER + "mlp.gate_proj.weight", "FD", "decoder.layers.gate"),
    Rule(_LAYER + "mlp.up_proj.weight", "FD", "decoder.layers.up"),
    Rule(_LAYER + "mlp.down_proj.weight", "DF", "decoder.layers.down"),
)
# The one name with two meanings: Llama's pre-MLP norm, Gemma's post-attention norm.
_TWO_NORMS = (Rule(_LAYER + "post_attention_layernorm.weight", "D", "decoder.layers.ffn_norm"),)
_FOUR_NORMS = (
    Rule(_LAYER + "post_attention_layernorm.weight", "D", "decoder.layers.post_attention_norm"),
    Rule(_LAYER + "pre_feedforward_layernorm.weight", "D", "decoder.layers.ffn_norm"),
    Rule(_LAYER + "post_feedforward_layernorm.weight", "D", "decoder.layers.post_ffn_norm"),
)
_QKV_BIAS = (
    Rule(_LAYER + "self_attn.q_proj.bias", "(NH)", "decoder.layers.q_bias"),
    Rule(_LAYER + "self_attn.k_proj.bias", "(KH)", "decoder.layers.k_bias"),
    Rule(_LAYER + "self_attn.v_proj.bias", "(KH)", "decoder.layers.v_bias"),
)
_QK_NORM = (
    Rule(_LAYER + "self_attn.q_norm.weight", "H", "decoder.layers.q_norm"),
    Rule(_LAYER + "self_attn.k_norm.weight", "H", "decoder.layers.k_norm"),
)

# InternLM2 names everything in its own way, and holds q, k and v in one tensor.
_WQKV = _LAYER + "attention.wqkv.weight"
_INTERNLM2 = (
    Rule("model.tok_embeddings.weight", "VD", "decoder.embedding"),
    Rule(_LAYER + "attention_norm.weight", "D", "decoder.layers.attention_norm"),
    Rule(_WQKV, "(NH)D", "decoder.layers.q", part="q"),
    Rule(_WQKV, "(KH)D", "decoder.layers.k", part="k"),
    Rule(_WQKV, "(KH)D", "decoder.layers.v", part="v"),
    Rule(_LAYER + "attention.wo.weight", "D(NH)", "decoder.layers.o"),
    Rule(_LAYER + "feed_forward.w1.weight", "FD", "decoder.layers.gate"),
    Rule(_LAYER + "feed_forward.w3.weight", "FD", "decoder.layers.up"),
    Rule(_LAYER + "feed_forward.w2.weight", "DF", "decoder.layers.down"),
    Rule(_LAYER + "ffn_norm.weight", "D", "decoder.layers.ffn_norm"),
)

NORM = Rule("model.norm.weight", "D", "readout.norm")
REGRESSION = Rule("regression_layer.weight", "(RQ)D", "readout.head.weight")
TRANSFORM = Rule("reward_transform_matrix", "RR", "readout.head.transform")
LM_HEAD = Rule("lm_head.weight", "VD", "readout.weight")


def _mlp(prefix: str) -> tuple[Rule, ...]:
    return (
        Rule(f"{prefix}.0.weight", "ED", "readout.head.weight_in"),
        Rule(f"{prefix}.0.bias", "E", "readout.head.bias_in"),
        Rule(f"{prefix}.2.weight", "1E", "readout.head.weight_out"),
        Rule(f"{prefix}.2.bias", "1", "readout.head.bias_out"),
    )


# Rules of the heads that are plain tables; gated heads are read by convert/gates.py.
LINEAR = (Rule("score.weight", "1D", "readout.head.weight"),)
VALUE = (Rule("v_head.weight", "1D", "readout.head.weight"),)  # InternLM2
URM = (
    Rule("score.weight", "(RS)D", "readout.head.weight"),
    Rule("weights.fc.0.weight", "ID", "readout.head.weight_in"),
    Rule("weights.fc.0.bias", "I", "readout.head.bias_in"),
    Rule("weights.fc.2.weight", "EI", "readout.head.weight_mid"),
    Rule("weights.fc.2.bias", "E", "readout.head.bias_mid"),
    Rule("weights.fc.4.weight", "RE", "readout.head.weight_out"),
    Rule("weights.fc.4.bias", "R", "readout.head.bias_out"),
)
HEADS = {"linear": (LINEAR,), "mlp": (_mlp("score"), _mlp("v_head.summary")), "urm": (URM,)}

# The modules of a decoder; what stands before them in a file's names may differ.
_DECODER = re.compile(r"(embed_tokens|tok_embeddings|layers|norm)\.")
_EMBEDDING = re.compile(r"(.*\.|)(?:embed_tokens|tok_embeddings)\.weight")

# Buffers that hold nothing learned.
_IGNORED = re.compile(r"(^|\.)(rotary_emb\.inv_freq|num_batches_tracked)$")


def decoder_rules(config: DecoderConfig, keys: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules of a decoder's parameters; InternLM2's where its embedding is among `keys`."""
    if _INTERNLM2[0].key in keys:
        return _INTERNLM2
    rules = _COMMON + (_FOUR_NORMS if config.post_norms else _TWO_NORMS)
    return rules + _QKV_BIAS * config.qkv_bias + _QK_NORM * config.qk_norm


def learned(keys: Iterable[str]) -> set[str]:
    """The tensors that hold something learned."""
    return {key for key in keys if not _IGNORED.search(key)}


def canonical_names(keys: Iterable[str]) -> dict[str, str]:
    """Each name of a file -> the name that the rules have for it.

    Some repositories hold a wrapped model (`module.model.layers…`; `pretrained_model.model.layers…`
    beside `v_head…`) or a decoder without its `model.`. What precedes the embedding's name precedes
    all names of the decoder, and may precede those of the head.
    """
    keys = list(keys)
    embeddings = [found for key in keys if (found := _EMBEDDING.fullmatch(key))]
    if len(embeddings) != 1:  # for `check_keys` to refuse
        return {key: key for key in keys}
    before = embeddings[0][1]
    wrapper = re.sub(r"(^|\.)model\.$", r"\1", before)

    def canonical(key: str) -> str:
        inner = key.removeprefix(before)
        if key.startswith(before) and _DECODER.match(inner):
            return "model." + inner
        return key.removeprefix(wrapper)

    return {key: canonical(key) for key in keys}


def plain_head(keys: Iterable[str]) -> tuple[str, tuple[Rule, ...]]:
    """Kind and rules of the head whose keys are there, or of the one that comes nearest."""
    keys = set(keys)
    if _INTERNLM2[0].key in keys:
        return "linear", (NORM, *VALUE)
    present = {key for key in keys if not key.startswith("model.")}
    named = [(kind, rules) for kind, variants in HEADS.items() for rules in variants]
    kind, rules = min(named, key=lambda entry: len({rule.key for rule in entry[1]} ^ present))
    return kind, (NORM, *rules)


def check_keys(rules: Iterable[Rule], extra: Iterable[str], keys: set[str], layers: int) -> None:
    """Every key used exactly once.

    Raises:
      AssayError: keys that neither a rule nor `extra` uses, or that are used and missing; by name.
    """
    wanted = {key for rule in rules for key in layer_keys(rule, layers)} | set(extra)
    if missing := sorted(wanted - keys):
        raise AssayError(f"missing tensor {_listed(missing)}")
    if unused := sorted(keys - wanted):
        raise AssayError(f"tensor that nothing uses: {_listed(unused)}")


def layer_keys(rule: Rule, num_layers: int) -> list[str]:
    """The tensors of a rule: one a layer, or one."""
    if "{l}" not in rule.key:
        return [rule.key]
    return [rule.key.replace("{l}", str(layer)) for layer in range(num_layers)]


def file_shape(layout: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Shape of the tensor in the file: `(NH)D` -> (N·H, D)."""
    shape = []
    for merged in _dimensions(layout):
        size = 1
        for letter in merged:
            size *= sizes[letter]
        shape.append(size)
    return tuple(shape)


def fused_shape(rule: Rule, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Shape of the tensor of a rule in the file, with the parts that other rules take."""
    rows, *rest = file_shape(rule.layout, sizes)
    if rule.part:
        rows = (sizes["N"] + 2 * sizes["K"]) * sizes["H"]
    return (rows, *rest)


def part_of(rule: Rule, tensor: np.ndarray, sizes: Mapping[str, int]) -> np.ndarray:
    """The rows of a tensor that are the rule's: all of them, but for a part of q, k and v."""
    if not rule.part:
        return tensor
    heads = tensor.reshape(sizes["K"], -1, sizes["H"], *tensor.shape[1:])  # [K, q…q k v, H, D]
    slots = {"q": slice(0, -2), "k": slice(-2, -1), "v": slice(-1, None)}[rule.part]
    return heads[:, slots]


def split_shape(layout: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Shape with merged dimensions split and ones dropped: `(NH)D` -> (N, H, D)."""
    return tuple(sizes[letter] for letter in letters(layout))


def permutation(layout: str, axes: str) -> tuple[int, ...]:
    """Which split dimension each parameter axis is: `(NH)D` into `DNH` -> (2, 0, 1)."""
    split = letters(layout)
    if split == axes:  # a square matrix repeats its letter
        return tuple(range(len(axes)))
    return tuple(split.index(letter) for letter in axes)


def _dimensions(layout: str) -> list[str]:
    return [merged or single for merged, single in re.findall(r"\((\w+)\)|(\w)", layout)]


def letters(layout: str) -> str:
    """Axis letters of a layout with merged dimensions split and ones dropped: `NHD`."""
    return re.sub(r"[()1]", "", layout)


def _listed(names: list[str]) -> str:
    return f"{names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
