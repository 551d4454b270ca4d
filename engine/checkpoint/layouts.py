"""Tables of Hugging Face tensors: the parameter that each fills, and its layout in the file.

A layout is the axis letters of a tensor in file order: `(NH)D` is one dimension of N·H rows and one
of D; `1` is a dimension of size one. A parameter carries its axis letters (`axes`), so that the
transposition follows from the two. Decoder tensors are stored in a checkpoint in the layout of the
file and transposed on the device when they are restored, which is faster there.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from engine.errors import AssayError
from engine.models.config import DecoderConfig
from engine.types import dimensions


@dataclasses.dataclass(frozen=True)
class Rule:
    """A tensor, its layout, and the parameter that it fills.

    A tensor with the part `q`, `k` or `v` holds all three: for each key/value head in turn, the
    rows of its queries, of its key, and of its value. One with the part `gate` or `up` holds first
    all rows F of the gate, then those of up.
    """

    key: str  # name of the tensor; `{l}` and `{x}` stand for the numbers of layer and expert
    layout: str  # axis letters in file order, or those of the part; of all experts' tensors, with X
    parameter: str  # its name; one with `{l}` in `key` is stacked along a leading L
    part: str = ""  # `q`, `k`, `v`, `gate` or `up`, if the tensor holds others too


_LAYER = "model.layers.{l}."
_COMMON = (
    Rule("model.embed_tokens.weight", "VD", "decoder.embedding"),
    Rule(_LAYER + "input_layernorm.weight", "D", "decoder.layers.attention_norm"),
    Rule(_LAYER + "self_attn.q_proj.weight", "(NH)D", "decoder.layers.q"),
    Rule(_LAYER + "self_attn.k_proj.weight", "(KH)D", "decoder.layers.k"),
    Rule(_LAYER + "self_attn.v_proj.weight", "(KH)D", "decoder.layers.v"),
    Rule(_LAYER + "self_attn.o_proj.weight", "D(NH)", "decoder.layers.o"),
)
_FEED_FORWARD = (
    Rule(_LAYER + "mlp.gate_proj.weight", "FD", "decoder.layers.gate"),
    Rule(_LAYER + "mlp.up_proj.weight", "FD", "decoder.layers.up"),
    Rule(_LAYER + "mlp.down_proj.weight", "DF", "decoder.layers.down"),
)
# One name has two meanings: the norm before Llama's feed-forward, the norm after Gemma's attention.
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

# A mixture's experts, one tensor for each or one for all; transformers 5 reads and writes these.
_OF_QWEN, _OF_MIXTRAL = _LAYER + "mlp.experts.", _LAYER + "block_sparse_moe.experts."
_ROUTER = Rule(_LAYER + "mlp.gate.weight", "XD", "decoder.layers.router")
_EXPERTS = (
    (
        Rule(_OF_QWEN + "{x}.gate_proj.weight", "XFD", "decoder.layers.experts.gate"),
        Rule(_OF_QWEN + "{x}.up_proj.weight", "XFD", "decoder.layers.experts.up"),
        Rule(_OF_QWEN + "{x}.down_proj.weight", "XDF", "decoder.layers.experts.down"),
        _ROUTER,
    ),
    (
        Rule(_OF_MIXTRAL + "{x}.w1.weight", "XFD", "decoder.layers.experts.gate"),
        Rule(_OF_MIXTRAL + "{x}.w3.weight", "XFD", "decoder.layers.experts.up"),
        Rule(_OF_MIXTRAL + "{x}.w2.weight", "XDF", "decoder.layers.experts.down"),
        Rule(_LAYER + "block_sparse_moe.gate.weight", "XD", "decoder.layers.router"),
    ),
    (
        Rule(_OF_QWEN + "gate_up_proj", "XFD", "decoder.layers.experts.gate", part="gate"),
        Rule(_OF_QWEN + "gate_up_proj", "XFD", "decoder.layers.experts.up", part="up"),
        Rule(_OF_QWEN + "down_proj", "XDF", "decoder.layers.experts.down"),
        _ROUTER,
    ),
)

# InternLM2 has other names, and q, k and v in one tensor.
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


# Rules of the heads that are plain tables; gated heads are read by convert/gates.py.
LINEAR = (Rule("score.weight", "1D", "readout.head.weight"),)
MLP = (
    Rule("score.0.weight", "ED", "readout.head.weight_in"),
    Rule("score.0.bias", "E", "readout.head.bias_in"),
    Rule("score.2.weight", "1E", "readout.head.weight_out"),
    Rule("score.2.bias", "1", "readout.head.bias_out"),
)
URM = (
    Rule("score.weight", "(RZ)D", "readout.head.weight"),
    Rule("weights.fc.0.weight", "ID", "readout.head.weight_in"),
    Rule("weights.fc.0.bias", "I", "readout.head.bias_in"),
    Rule("weights.fc.2.weight", "EI", "readout.head.weight_mid"),
    Rule("weights.fc.2.bias", "E", "readout.head.bias_mid"),
    Rule("weights.fc.4.weight", "RE", "readout.head.weight_out"),
    Rule("weights.fc.4.bias", "R", "readout.head.bias_out"),
)
PLAIN_HEADS = {"linear": LINEAR, "mlp": MLP, "urm": URM}
# Published names of what the rules call `score`: the layers of a plain head.
HEAD_NAMES = ("score", "value_head", "v_head.summary", "v_head", "regression_head", "score_head")
_HEAD = re.compile(r"(score|weights\.fc|regression_layer|reward_transform_matrix|gating)(\.|$)")

# The modules of a decoder, which files name with different prefixes.
_DECODER = re.compile(r"(embed_tokens|tok_embeddings|layers|norm)\.")
_EMBEDDING = re.compile(r"(.*\.|)(?:embed_tokens|tok_embeddings)\.weight")

# Buffers that hold nothing learned.
_IGNORED = re.compile(r"(^|\.)(rotary_emb\.inv_freq|num_batches_tracked)$")


def decoder_rules(config: DecoderConfig, keys: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules of a decoder's parameters; those of InternLM2 if `keys` hold its embedding."""
    if _INTERNLM2[0].key in keys:
        return _INTERNLM2
    rules = _COMMON + (_expert_rules(keys) if config.experts else _FEED_FORWARD)
    rules += _FOUR_NORMS if config.post_norms else _TWO_NORMS
    return rules + _QKV_BIAS * config.qkv_bias + _QK_NORM * config.qk_norm


def _expert_rules(keys: Iterable[str]) -> tuple[Rule, ...]:
    """The rules of a mixture's experts under the names that `keys` hold, by default Qwen's."""
    firsts = {rules[0].key.format(l=0, x=0): rules for rules in _EXPERTS}
    return firsts[next((key for key in firsts if key in keys), next(iter(firsts)))]


def learned(keys: Iterable[str]) -> set[str]:
    """The names of tensors that hold something learned."""
    return {key for key in keys if not _IGNORED.search(key)}


def head_keys(keys: Iterable[str]) -> set[str]:
    """The names of tensors that only a reward model has."""
    return set(filter(_HEAD.match, keys))


def head_name(key: str, head: str = "") -> str:
    """The name that the rules have for a head's tensor; other names stay as they are.

    `head` is a name of the head that config.json states, beside `HEAD_NAMES`.
    """
    named = "|".join(map(re.escape, (head or "score", *HEAD_NAMES)))
    return re.sub(rf"^({named})\.", "score.", key)


def canonical_names(keys: Iterable[str], head: str = "") -> dict[str, str]:
    """Each tensor name of a file -> the name that the rules have for it (`head_name`).

    Some repositories hold a wrapped model (`module.model.layers…`; `pretrained_model.model.layers…`
    beside `v_head…`) or a decoder without `model.`. The prefix of the embedding's name is the
    prefix of all names of the decoder, and possibly of those of the head.
    """
    keys = list(keys)
    embeddings = [match for key in keys if (match := _EMBEDDING.fullmatch(key))]
    if len(embeddings) != 1:  # `check_keys` refuses the names later
        return {key: key for key in keys}
    prefix = embeddings[0][1]
    wrapper = re.sub(r"(^|\.)model\.$", r"\1", prefix)

    def canonical(key: str) -> str:
        inner = key.removeprefix(prefix)
        if key.startswith(prefix) and _DECODER.match(inner):
            return "model." + inner
        return head_name(key.removeprefix(wrapper), head)

    return {key: canonical(key) for key in keys}


def plain_head(keys: Iterable[str]) -> str:
    """Kind of a head without a gate: the one whose tensor names are closest to `keys`."""
    present = {key for key in keys if not key.startswith("model.")} - {LM_HEAD.key}
    return min(
        PLAIN_HEADS, key=lambda kind: len({rule.key for rule in PLAIN_HEADS[kind]} ^ present)
    )


def check_keys(
    rules: Iterable[Rule], extra: Iterable[str], keys: set[str], config: DecoderConfig
) -> None:
    """Raises AssayError unless each of the tensors `keys` is used, by a rule or as an `extra`."""
    wanted = {key for rule in rules for key in rule_keys(rule, config)} | set(extra)
    if missing := sorted(wanted - keys):
        raise AssayError(f"missing tensor {listed(missing)}")
    if unused := sorted(keys - wanted):
        raise AssayError(f"tensor that nothing uses: {listed(unused)}")


def rule_keys(rule: Rule, config: DecoderConfig) -> list[str]:
    """Names of a rule's tensors: one per layer, one per layer and expert, or one in all."""
    layers = range(config.num_layers if "{l}" in rule.key else 1)
    keys = [rule.key.replace("{l}", str(layer)) for layer in layers]
    return [key for one in keys for key in expert_keys(one, config)]


def expert_keys(key: str, config: DecoderConfig) -> list[str]:
    """Names of the tensors that one stack of experts is read from: one per expert, or one."""
    experts = range(config.experts if "{x}" in key else 1)
    return [key.replace("{x}", str(expert)) for expert in experts]


def file_shape(rule: Rule, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Shape of a rule's whole tensor in the file: (N·H, D) of `(NH)D`, unless it has parts."""
    axes = dimensions(rule.layout)
    shape = [math.prod(sizes[letter] for letter in merged) for merged in axes]
    if rule.part in ("gate", "up"):
        shape[axes.index("F")] *= 2
    elif rule.part:
        shape[0] = (sizes["N"] + 2 * sizes["K"]) * sizes["H"]
    return tuple(shape[1:] if "{x}" in rule.key else shape)


def part_of(rule: Rule, tensor: np.ndarray, sizes: Mapping[str, int]) -> np.ndarray:
    """The rows of a tensor that a rule uses: all of them, unless it has a `part`."""
    if not rule.part:
        return tensor
    if rule.part in ("gate", "up"):
        halves = np.split(tensor, 2, dimensions(rule.layout).index("F"))
        return np.ascontiguousarray(halves[rule.part == "up"])  # so that the other half is freed
    heads = tensor.reshape(sizes["K"], -1, sizes["H"], *tensor.shape[1:])  # [K, q…q k v, H, D]
    slots = {"q": slice(0, -2), "k": slice(-2, -1), "v": slice(-1, None)}[rule.part]
    return heads[:, slots]


def split_shape(layout: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Shape with merged dimensions split, without those of size one: `(NH)D` -> (N, H, D)."""
    return tuple(sizes[letter] for letter in letters(layout))


def permutation(layout: str, axes: str) -> tuple[int, ...]:
    """The transposition from a split layout to parameter axes: `(NH)D` to `DNH` -> (2, 0, 1).

    Merged dimensions of the parameter, as in `D(NH)`, are those of one more reshape.
    """
    split, axes = letters(layout), letters(axes)
    if split == axes:  # a square matrix has one letter twice
        return tuple(range(len(axes)))
    return tuple(split.index(letter) for letter in axes)


def letters(layout: str) -> str:
    """Axis letters of a layout, without brackets and dimensions of size one: `(NH)D` -> `NHD`."""
    return re.sub(r"[()1]", "", layout)


def listed(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    return f"{names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
