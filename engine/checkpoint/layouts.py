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
from typing import Any

import numpy as np

from engine.errors import AssayError
from engine.models.encoder_config import EncoderConfig, NetworkConfig
from engine.types import dimensions


@dataclasses.dataclass(frozen=True)
class Rule:
    """A tensor, its layout, and the parameter that it fills.

    A tensor with a `part` holds q, k and v: for each key/value head in turn, the rows of its
    queries, of its key, and of its value. One with `blocks` too holds its parts one after another.
    """

    key: str  # name of the tensor; `{l}` and `{x}` stand for the numbers of layer and expert
    layout: str  # axis letters in file order, or those of the part; of all experts' tensors, with X
    parameter: str  # its name; one with `{l}` in `key` is stacked along a leading L
    part: str = ""  # `q`, `k` or `v` if the tensor holds all three; one of `blocks`, if it has any
    blocks: tuple[tuple[str, str], ...] = ()  # each part, and the axis letters of its entries


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
# Of Qwen 3.5 each head's query and its gate, one after the other, and the gated delta rule.
_QUERY_GATE = (("q", "NH"), ("gate", "NH"))
_Q_PROJ, _DELTA = _LAYER + "self_attn.q_proj.weight", _LAYER + "linear_attn."
_GATED_QUERY = (
    Rule(_Q_PROJ, "(NH)D", "decoder.layers.q", "q", _QUERY_GATE),
    Rule(_Q_PROJ, "(NH)D", "decoder.layers.o_gate", "gate", _QUERY_GATE),
)
_DELTA_QKV = (("q", "kh"), ("k", "kh"), ("v", "nv"))
_DELTA_RULES = (
    *(
        Rule(
            _DELTA + "in_proj_qkv.weight", f"({axes})D", f"decoder.layers.delta_{p}", p, _DELTA_QKV
        )
        for p, axes in _DELTA_QKV
    ),
    *(
        Rule(
            *(_DELTA + "conv1d.weight", f"({axes})1t", f"decoder.layers.delta_{p}_taps"),
            *(p, _DELTA_QKV),
        )
        for p, axes in _DELTA_QKV
    ),
    Rule(_DELTA + "in_proj_z.weight", "(nv)D", "decoder.layers.delta_z"),
    Rule(_DELTA + "in_proj_a.weight", "nD", "decoder.layers.delta_a"),
    Rule(_DELTA + "in_proj_b.weight", "nD", "decoder.layers.delta_b"),
    Rule(_DELTA + "A_log", "n", "decoder.layers.delta_rate"),
    Rule(_DELTA + "dt_bias", "n", "decoder.layers.delta_step"),
    Rule(_DELTA + "norm.weight", "v", "decoder.layers.delta_norm"),
    Rule(_DELTA + "out_proj.weight", "D(nv)", "decoder.layers.delta_o"),
)
_QK_NORM_WHOLE = (
    Rule(_LAYER + "self_attn.q_norm.weight", "(NH)", "decoder.layers.q_norm"),
    Rule(_LAYER + "self_attn.k_norm.weight", "(KH)", "decoder.layers.k_norm"),
)
_PRE_NORMS = {"decoder.layers.attention_norm", "decoder.layers.ffn_norm"}

# Parts of a tensor, one after another.
_QKV, _GATE_UP = (("q", "NH"), ("k", "KH"), ("v", "KH")), (("gate", "F"), ("up", "F"))

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
        Rule(_OF_QWEN + "gate_up_proj", "XFD", "decoder.layers.experts.gate", "gate", _GATE_UP),
        Rule(_OF_QWEN + "gate_up_proj", "XFD", "decoder.layers.experts.up", "up", _GATE_UP),
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


# Any: fields of Rule.
def _biased(module: str, layout: str, bias: str, parameter: str, **part: Any) -> tuple[Rule, Rule]:
    """The rules of a layer's module with a weight and a bias."""
    name = "decoder.layers." + parameter
    return (
        Rule(_LAYER + module + ".weight", layout, name, **part),
        Rule(_LAYER + module + ".bias", bias, name + "_bias", **part),
    )


_NEOX = (
    _COMMON[0],
    *_biased("input_layernorm", "D", "D", "attention_norm"),
    *_biased("attention.query_key_value", "(NH)D", "(NH)", "q", part="q"),
    *_biased("attention.query_key_value", "(KH)D", "(KH)", "k", part="k"),
    *_biased("attention.query_key_value", "(KH)D", "(KH)", "v", part="v"),
    *_biased("attention.dense", "D(NH)", "D", "o"),
    *_biased("post_attention_layernorm", "D", "D", "ffn_norm"),
    *_biased("mlp.dense_h_to_4h", "FD", "F", "up"),
    *_biased("mlp.dense_4h_to_h", "DF", "D", "down"),
)

# Phi-3 is a Llama with two tensors of several parts.
_QKV_PROJ = _LAYER + "self_attn.qkv_proj.weight"
_PHI3 = (
    *(
        rule
        for rule in _COMMON + _FEED_FORWARD
        if rule.parameter.split(".")[-1] not in dict(_QKV + _GATE_UP)
    ),
    *_TWO_NORMS,
    Rule(_QKV_PROJ, "(NH)D", "decoder.layers.q", part="q", blocks=_QKV),
    Rule(_QKV_PROJ, "(KH)D", "decoder.layers.k", part="k", blocks=_QKV),
    Rule(_QKV_PROJ, "(KH)D", "decoder.layers.v", part="v", blocks=_QKV),
    *(
        Rule(_LAYER + "mlp.gate_up_proj.weight", "FD", f"decoder.layers.{name}", name, _GATE_UP)
        for name, _ in _GATE_UP
    ),
)
# GPT-2's matrices are [in, out].
_GPT2 = (
    _COMMON[0],
    Rule("model.wpe.weight", "TD", "decoder.position_embedding"),
    *_biased("ln_1", "D", "D", "attention_norm"),
    *_biased("attn.c_attn", "D(NH)", "(NH)", "q", part="q", blocks=_QKV),
    *_biased("attn.c_attn", "D(KH)", "(KH)", "k", part="k", blocks=_QKV),
    *_biased("attn.c_attn", "D(KH)", "(KH)", "v", part="v", blocks=_QKV),
    *_biased("attn.c_proj", "(NH)D", "D", "o"),
    *_biased("ln_2", "D", "D", "ffn_norm"),
    *_biased("mlp.c_fc", "DF", "F", "up"),
    *_biased("mlp.c_proj", "FD", "D", "down"),
)

NORM = Rule("model.norm.weight", "D", "readout.norm")
NORM_BIAS = Rule("model.norm.bias", "D", "readout.norm_bias")
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
HEAD_NAMES = (
    *("score", "value_head", "v_head.summary", "v_head", "regression_head", "score_head"),
    *("classifier", "out_proj"),  # of GPT-NeoX and GPT-2 for tokens; of OpenAssistant's Pythia
)
_HEAD = re.compile(r"(score|weights\.fc|regression_layer|reward_transform_matrix|gating)(\.|$)")

# What GPT-NeoX and GPT-2 call a module -> its name in the rules.
_MODULES = {
    **{"embed_in": "embed_tokens", "final_layer_norm": "norm"},
    **{"wte": "embed_tokens", "wpe": "wpe", "h": "layers", "ln_f": "norm"},
}
# The modules of a decoder, which files name with different prefixes.
_DECODER = re.compile(rf"(embed_tokens|tok_embeddings|layers|norm|{'|'.join(_MODULES)})\.")
# What peft calls a module that it trains as a whole; `original_module` is that before training.
_TRAINED = re.compile(r"\.modules_to_save(\.default)?\.")
_EMBEDDING = re.compile(r"(.*\.|)(?:embed_tokens|tok_embeddings|embed_in|wte)\.weight")
# The module of a decoder in a model with a head.
BASES = ("model", "gpt_neox", "transformer")
_BASE = re.compile(rf"(^|\.)({'|'.join(BASES)})\.$")

# What a model has for images: it acts where the text holds one.
_IMAGES = re.compile(r"(model\.)?(vision_tower|multi_modal_projector|visual)\.")
# Predictions of further tokens, which no reward reads.
_MTP = re.compile(r"mtp\.")

# Buffers that hold nothing learned.
_IGNORED = re.compile(
    r"(^|\.)(rotary_emb\.inv_freq|num_batches_tracked|(attention|attn)\.(masked_)?bias|"
    r"original_module\..+)$|^([a-z]+\.)?embeddings\.(position|token_type)_ids$"
)
# The name of ModernBERT's norms before attention, which its first layer does not have; InternLM2's
# layers all have one of that name.
NOT_FIRST = "model.layers.{l}.attention_norm.weight"


def decoder_rules(config: NetworkConfig, keys: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules of a decoder's parameters; of InternLM2 or Phi-3 if `keys` hold one of theirs.

    Those of an encoder, if the config is of one.
    """
    if isinstance(config, EncoderConfig):
        from engine.checkpoint.encoder_layouts import encoder_rules  # few models are encoders

        return encoder_rules(config)
    if _INTERNLM2[0].key in keys:
        return _INTERNLM2
    if _QKV_PROJ.format(l=0) in keys:
        return _PHI3
    if config.norm == "layer":
        return _GPT2 if config.learned_positions else _NEOX
    feed_forward = _FEED_FORWARD if config.gated else _FEED_FORWARD[1:]
    rules = _COMMON + (_expert_rules(keys) if config.experts else feed_forward)
    rules += _FOUR_NORMS if config.post_norms else _TWO_NORMS
    if not config.pre_norms:
        rules = tuple(rule for rule in rules if rule.parameter not in _PRE_NORMS)
    if config.attention_gate:
        rules = _GATED_QUERY + tuple(rule for rule in rules if rule.key != _Q_PROJ)
    rules += _DELTA_RULES * any(config.deltas)
    qk_norm = _QK_NORM_WHOLE if config.qk_norm_whole else _QK_NORM
    return rules + _QKV_BIAS * config.qkv_bias + qk_norm * config.qk_norm


def norm_rules(config: NetworkConfig) -> tuple[Rule, ...]:
    """The rules of the norm between the decoder and a readout."""
    return {"layer": (NORM, NORM_BIAS), "rms": (NORM,), "none": ()}[config.norm]


def _expert_rules(keys: Iterable[str]) -> tuple[Rule, ...]:
    """The rules of a mixture's experts under the names that `keys` hold, by default Qwen's."""
    firsts = {rules[0].key.format(l=0, x=0): rules for rules in _EXPERTS}
    return firsts[next((key for key in firsts if key in keys), next(iter(firsts)))]


def learned(key: str) -> bool:
    """Whether the tensor of a name holds something learned."""
    return not _IGNORED.search(key)


def head_keys(keys: Iterable[str]) -> set[str]:
    """The names of tensors that only a reward model has."""
    return set(filter(_HEAD.match, keys))


def image_keys(keys: Iterable[str]) -> set[str]:
    """The names of tensors that only images reach."""
    return set(filter(_IMAGES.match, keys))


def mtp_keys(keys: Iterable[str]) -> set[str]:
    """The names of tensors of multi-token prediction, beside the layers of Qwen 3.5."""
    return set(filter(_MTP.match, keys))


def head_name(key: str, head: str = "") -> str:
    """The name that the rules have for a head's tensor; other names stay as they are.

    `head` is a name of the head that config.json states, beside `HEAD_NAMES`.
    """
    alternatives = "|".join(map(re.escape, (head or "score", *HEAD_NAMES)))
    key = re.sub(r"^embed_out\.", "lm_head.", key)  # of GPT-NeoX
    return re.sub(rf"^({alternatives})\.", "score.", key)


def canonical_names(keys: Iterable[str], head: str = "") -> dict[str, str]:
    """Each tensor name of a file -> the name that the rules have for it (`head_name`).

    Some repositories hold a wrapped model (`module.model.layers…`; `pretrained_model.model.layers…`
    beside `v_head…`) or a decoder without `model.`. The prefix of the embedding's name is the
    prefix of all names of the decoder, and possibly of those of the head.
    """
    names = {key: _TRAINED.sub(".", key) for key in keys}
    embeddings = [match for name in names.values() if (match := _EMBEDDING.fullmatch(name))]
    if len(embeddings) != 1:  # `check_keys` refuses the names later
        return names
    return {key: canonical_name(name, embeddings[0][1], head) for key, name in names.items()}


def canonical_name(key: str, prefix: str, head: str = "") -> str:
    """The name that the rules have for a tensor of a file whose decoder has a prefix."""
    key = _TRAINED.sub(".", key)
    inner = key.removeprefix(prefix)
    if key.startswith(prefix) and (module := _DECODER.match(inner)):
        return f"model.{_MODULES.get(module[1], module[1])}{inner[module.end(1) :]}"
    return head_name(key.removeprefix(_BASE.sub(r"\1", prefix)), head)


def plain_head(keys: Iterable[str]) -> str:
    """Kind of a head without a gate: the one whose tensor names are closest to `keys`."""
    present = {key for key in keys if not key.startswith("model.")} - {LM_HEAD.key}
    return min(
        PLAIN_HEADS, key=lambda kind: len({rule.key for rule in PLAIN_HEADS[kind]} ^ present)
    )


def check_keys(
    rules: Iterable[Rule], extra: Iterable[str], names: Mapping[str, str], config: NetworkConfig
) -> None:
    """Raises AssayError unless each tensor is used, by a rule or as an `extra`.

    `names` are those that the tensors have in the files, by those of the rules.
    """
    wanted = {key for rule in rules for key in rule_keys(rule, config)} | set(extra)
    problems = []
    if missing := sorted(wanted - names.keys()):
        problems.append(f"missing tensor {listed(missing)}")
    if unused := sorted(names.keys() - wanted):
        problems.append(f"tensor that nothing uses: {listed([names[key] for key in unused], 6)}")
    if any(not key.startswith("model.") for key in unused):  # perhaps a head
        problems.append(
            f"the layers of a head are read under the names {', '.join(HEAD_NAMES)}, alone or with "
            ".0 and .2 (docs/your-own-model.md)"
        )
    if problems:
        raise AssayError("; ".join(problems))


def rule_keys(rule: Rule, config: NetworkConfig) -> list[str]:
    """Names of a rule's tensors: one per layer, one per layer and expert, or one in all."""
    layers = layers_of(rule, config) if "{l}" in rule.key else [0]
    keys = [rule.key.replace("{l}", str(layer)) for layer in layers]
    names = [name for key in keys for name in expert_keys(key, config)]
    lacks_first = config.pre_norms and not config.shares_prefix and rule.key == NOT_FIRST
    return names[lacks_first:]


def layers_of(rule: Rule, config: NetworkConfig) -> list[int]:
    """Layers that have a rule's tensor: those of attention, of the delta rule, or all."""
    of_delta = rule.key.startswith(_DELTA)
    either = not (of_delta or rule.key.startswith(_LAYER + "self_attn."))
    return [i for i, delta in enumerate(config.deltas) if either or delta == of_delta]


def expert_keys(key: str, config: NetworkConfig) -> list[str]:
    """Names of the tensors that one stack of experts is read from: one per expert, or one."""
    experts = range(config.experts if "{x}" in key else 1)
    return [key.replace("{x}", str(expert)) for expert in experts]


def file_shape(rule: Rule, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Shape of a rule's whole tensor in the file: (N·H, D) of `(NH)D`, unless it has parts."""
    shape = [math.prod(sizes[letter] for letter in d) for d in dimensions(rule.layout)]
    if rule.part:
        blocks = rule.blocks or _QKV
        shape[_cut(rule)] = sum(math.prod(sizes[a] for a in letters) for _, letters in blocks)
    return tuple(shape[1:] if "{x}" in rule.key else shape)


def part_of(rule: Rule, tensor: np.ndarray, sizes: Mapping[str, int]) -> np.ndarray:
    """The part of a tensor that a rule uses: all of it, unless it has a `part`."""
    if not rule.part:
        return tensor
    if rule.blocks == _QUERY_GATE:
        heads = tensor.reshape(sizes["N"], 2, sizes["H"], *tensor.shape[1:])
        return np.ascontiguousarray(heads[:, int(rule.part == "gate")])
    if rule.blocks:
        ends = np.cumsum([math.prod(sizes[a] for a in letters) for _, letters in rule.blocks])
        cut = np.split(tensor, ends[:-1], axis=_cut(rule))
        part = cut[[name for name, _ in rule.blocks].index(rule.part)]
        return np.ascontiguousarray(part)  # so that the others are freed
    heads = tensor.reshape(sizes["K"], -1, sizes["H"], *tensor.shape[1:])  # [K, q…q k v, H, D]
    slots = {"q": slice(0, -2), "k": slice(-2, -1), "v": slice(-1, None)}[rule.part]
    return heads[:, slots]


def _cut(rule: Rule) -> int:
    """The dimension along which a tensor with blocks is cut into its parts."""
    return dimensions(rule.layout).index(dict(rule.blocks)[rule.part]) if rule.blocks else 0


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


def listed(names: Sequence[str], shown: int = 1) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(map(repr, names[:shown])) + more
