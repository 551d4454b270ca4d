"""The rule table: every tensor fills one parameter, every parameter is filled by one tensor."""

import pytest

from engine.checkpoint import layouts
from engine.checkpoint.restore import parameters
from engine.models.config import DecoderConfig, Rope
from engine.models.heads import HeadConfig

LAYERS = 2
CONFIG = DecoderConfig(
    vocab_size=11,
    width=6,
    ffn_width=5,
    num_layers=LAYERS,
    num_heads=4,
    num_kv_heads=2,
    head_size=8,
    rms_eps=1e-5,
    rope=Rope(theta=1e4),
    max_positions=16,
)
DECODER = ["model.embed_tokens.weight"] + [
    f"model.layers.{layer}.{name}.weight"
    for layer in range(LAYERS)
    for name in (
        *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        *("self_attn.o_proj", "post_attention_layernorm"),
        *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    )
]
HEADS = {
    "linear": ("linear", ["score.weight"]),
    "INF-ORM's": ("mlp", ["score.0.weight", "score.0.bias", "score.2.weight", "score.2.bias"]),
    "GRM's": (
        "mlp",
        [f"v_head.summary.{n}" for n in ("0.weight", "0.bias", "2.weight", "2.bias")],
    ),
}


def tensors(head: str) -> list[str]:
    return [*DECODER, "model.norm.weight", *HEADS[head][1]]


def match(keys: list[str], config: DecoderConfig = CONFIG):
    """Kind of the head and all rules of a checkpoint, as conversion finds them."""
    learned = layouts.learned(keys)
    kind, head_rules = layouts.plain_head(learned)
    matched = (*layouts.decoder_rules(config), *head_rules)
    layouts.check_keys(matched, (), learned, LAYERS)
    return kind, matched


@pytest.mark.parametrize("head", HEADS)
def test_every_tensor_is_used_and_every_parameter_filled_exactly_once(head):
    kind, matched = match(tensors(head))
    used = [key for rule in matched for key in layouts.layer_keys(rule, LAYERS)]
    assert kind == HEADS[head][0]
    assert sorted(used) == sorted(tensors(head))
    config = HeadConfig(kind=kind, depth=LAYERS, width=6, rms_eps=1e-5, hidden=3)
    filled = [rule.parameter for rule in matched]
    assert sorted(filled) == sorted(parameters(CONFIG, config))


@pytest.mark.parametrize(
    "key",
    [
        "model.rotary_emb.inv_freq",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "gating.2.num_batches_tracked",
    ],
)
def test_buffers_that_hold_nothing_learned_are_ignored(key):
    assert match([*tensors("linear"), key]) == match(tensors("linear"))


@pytest.mark.parametrize(
    ("layout", "file_shape", "split_shape"),
    [
        ("(NH)D", (12, 5), (3, 4, 5)),
        ("D(NH)", (5, 12), (5, 3, 4)),
        ("VD", (7, 5), (7, 5)),
        ("1D", (1, 5), (5,)),
        ("1", (1,), ()),
    ],
)
def test_a_layout_says_the_shape_in_the_file_and_after_splitting(layout, file_shape, split_shape):
    sizes = {"1": 1, "N": 3, "H": 4, "D": 5, "V": 7}
    assert layouts.file_shape(layouts.Rule("key", layout, "parameter"), sizes) == file_shape
    assert layouts.split_shape(layout, sizes) == split_shape


@pytest.mark.parametrize(
    ("layout", "axes", "permutation"),
    [
        ("(NH)D", "DNH", (2, 0, 1)),
        ("D(NH)", "NHD", (1, 2, 0)),
        ("FD", "DF", (1, 0)),
        ("VD", "VD", (0, 1)),
        ("1E", "E", (0,)),
    ],
)
def test_transposition_follows_from_the_letters(layout, axes, permutation):
    assert layouts.permutation(layout, axes) == permutation
