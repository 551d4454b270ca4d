"""Which Hugging Face tensor fills which parameter: the table that conversion reads.

A rule names a tensor, its layout as axis letters in file order (`(NH)D` is one dimension of N·H
rows; `1` is a dimension of size one), and the parameter it fills. The parameter's own `axes` say
the order there, so transposition follows from the letters.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping

from engine.errors import AssayError


@dataclasses.dataclass(frozen=True)
class Rule:
    """`{l}` in `key` stands for a layer, whose slices are stacked along a leading L."""

    key: str
    layout: str
    parameter: str


DECODER_RULES = (
    Rule("model.embed_tokens.weight", "VD", "decoder.embedding"),
    Rule("model.layers.{l}.input_layernorm.weight", "D", "decoder.layers.attention_norm"),
    Rule("model.layers.{l}.self_attn.q_proj.weight", "(NH)D", "decoder.layers.q"),
    Rule("model.layers.{l}.self_attn.k_proj.weight", "(KH)D", "decoder.layers.k"),
    Rule("model.layers.{l}.self_attn.v_proj.weight", "(KH)D", "decoder.layers.v"),
    Rule("model.layers.{l}.self_attn.o_proj.weight", "D(NH)", "decoder.layers.o"),
    Rule("model.layers.{l}.post_attention_layernorm.weight", "D", "decoder.layers.ffn_norm"),
    Rule("model.layers.{l}.mlp.gate_proj.weight", "FD", "decoder.layers.gate"),
    Rule("model.layers.{l}.mlp.up_proj.weight", "FD", "decoder.layers.up"),
    Rule("model.layers.{l}.mlp.down_proj.weight", "DF", "decoder.layers.down"),
)
_NORM = Rule("model.norm.weight", "D", "readout.norm")


def _mlp(prefix: str) -> tuple[Rule, ...]:
    return (
        _NORM,
        Rule(f"{prefix}.0.weight", "ED", "readout.head.weight_in"),
        Rule(f"{prefix}.0.bias", "E", "readout.head.bias_in"),
        Rule(f"{prefix}.2.weight", "1E", "readout.head.weight_out"),
        Rule(f"{prefix}.2.bias", "1", "readout.head.bias_out"),
    )


# Head kind and its rules; a checkpoint's head is the one whose keys it has.
HEAD_RULES = (
    ("linear", (_NORM, Rule("score.weight", "1D", "readout.head.weight"))),
    ("mlp", _mlp("score")),
    ("mlp", _mlp("v_head.summary")),
)

# Buffers that hold nothing learned.
_IGNORED = re.compile(r"\.(rotary_emb\.inv_freq|num_batches_tracked)$")


def match(keys: Iterable[str], num_layers: int) -> tuple[str, tuple[Rule, ...]]:
    """Head kind and the rules that use every key exactly once.

    Raises:
      AssayError: keys that no rule uses, or rules whose key is missing; by name.
    """
    present = {k for k in keys if not _IGNORED.search(k)}
    kind, head = min(HEAD_RULES, key=lambda entry: _absent(entry[1], present))
    rules = (*DECODER_RULES, *head)
    wanted = {key for rule in rules for key in layer_keys(rule, num_layers)}
    if missing := sorted(wanted - present):
        raise AssayError(f"missing tensor {_listed(missing)}")
    if unused := sorted(present - wanted):
        raise AssayError(f"tensor that nothing uses: {_listed(unused)}")
    return kind, rules


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


def split_shape(layout: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Shape with merged dimensions split and ones dropped: `(NH)D` -> (N, H, D)."""
    return tuple(sizes[letter] for letter in _letters(layout))


def permutation(layout: str, axes: str) -> tuple[int, ...]:
    """Which split dimension each parameter axis is: `(NH)D` into `DNH` -> (2, 0, 1)."""
    return tuple(_letters(layout).index(letter) for letter in axes)


def _absent(rules: tuple[Rule, ...], present: set[str]) -> float:
    return sum(rule.key not in present for rule in rules) / len(rules)


def _dimensions(layout: str) -> list[str]:
    return [merged or single for merged, single in re.findall(r"\((\w+)\)|(\w)", layout)]


def _letters(layout: str) -> str:
    return re.sub(r"[()1]", "", layout)


def _listed(names: list[str]) -> str:
    return f"{names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
