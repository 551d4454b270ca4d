"""config.json: read where it is understood, refused by name where it is not."""

import itertools
from typing import Any

import pytest
from transformers import GenerationConfig

from engine.convert import hf_keys
from engine.convert.hf_config import decoder_config
from engine.errors import AssayError
from engine.models.config import DecoderConfig, Rope
from tests.support.parity import LLAMA3

# As published with Skywork-Reward-Llama-3.1-8B.
PUBLISHED: dict[str, Any] = {
    "_name_or_path": "meta-llama/Llama-3.1-8B-Instruct",
    "architectures": ["LlamaForSequenceClassification"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "id2label": {"0": "LABEL_0"},
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "label2id": {"LABEL_0": 0},
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pad_token_id": 128256,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.44.2",
    "use_cache": False,
    "vocab_size": 128257,
}


def without(*names: str) -> dict:
    return {name: value for name, value in PUBLISHED.items() if name not in names}


def test_a_published_config_is_read():
    assert decoder_config(PUBLISHED) == DecoderConfig(
        vocab_size=128257,
        width=4096,
        ffn_width=14336,
        num_layers=32,
        num_heads=32,
        num_kv_heads=8,
        head_size=128,
        rms_eps=1e-5,
        rope=LLAMA3,
        max_positions=131072,
    )


SCALING = PUBLISHED["rope_scaling"]
OLDER = {("type" if name == "rope_type" else name): value for name, value in SCALING.items()}
SAME = {
    "rope as transformers 5 writes it": {
        **{"rope_scaling": None, "rope_theta": None},
        "rope_parameters": SCALING | {"rope_theta": 500000.0},
    },
    "the older name of the rope type": {"rope_scaling": OLDER},
    **{
        f"rope written twice with {sorted({'type', 'rope_type'} & {*rope})}, {theta}": {
            "rope_parameters": rope | {"factor": 8} | theta
        }
        for rope in (SCALING, OLDER)
        for theta in ({}, {"rope_theta": 500000})
    },
    "a value head on a Llama": {"architectures": ["GRewardModel"]},
    "training and bookkeeping": {
        **{"use_mrope": False, "use_bfloat16": False, "unsloth_version": "2025.3.19"},
        **{"unsloth_fixed": True, "_commit_hash": "0" * 40, "gradient_checkpointing": False},
        **{"tf_legacy_loss": False, "summary_dropout_prob": 0.1},
    },
    # As transformers 4 wrote them, and those of the installed one, which drops them on reading.
    "defaults of generation": {
        **GenerationConfig._get_default_generation_params(),
        **{"do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 4096},
    },
    "what is refused, switched off": {
        **{"num_local_experts": 0, "quantization_config": None, "do_normalize": False},
    },
    "the head and its normalisation": {"normalize_reward": True, "mean": 0.5, "std": 2.0},
    "the name of custom code, which is never executed": {"auto_map": {"AutoModel": "m.M"}},
}


@pytest.mark.parametrize("what", SAME)
def test_the_decoder_is_the_same_with(what):
    config = decoder_config({**PUBLISHED, **SAME[what]})
    assert repr(config) == repr(decoder_config(PUBLISHED))


PLAIN = Rope(theta=500_000.0)


@pytest.mark.parametrize(
    ("scaling", "rope"),
    [
        (None, PLAIN),
        ({}, PLAIN),
        ({"rope_type": "default"}, PLAIN),
        ({"type": "dynamic", "factor": 2.0}, PLAIN),  # it acts beyond the context alone
        ({"type": "linear", "factor": 4.0}, Rope(theta=500_000.0, kind="linear", factor=4.0)),
    ],
)
def test_scaling_is_read(scaling, rope):
    assert decoder_config({**PUBLISHED, "rope_scaling": scaling}).rope == rope


def test_a_config_before_grouped_heads_has_as_many_as_query_heads():
    config = decoder_config(without("num_key_value_heads", "rope_theta", "rope_scaling"))
    assert config.num_kv_heads == config.num_heads
    assert config.rope.theta == 10_000.0


@pytest.mark.parametrize("head_dim", [None, 128])
def test_a_qwen_3_has_heads_of_128_whatever_its_width(head_dim):
    qwen = {
        "architectures": ["Qwen3ForSequenceClassification"],
        "model_type": "qwen3",
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "head_dim": head_dim,
        "rope_scaling": None,
    }
    config = decoder_config({**PUBLISHED, **qwen})
    assert (config.head_size, config.qk_norm) == (128, True)


# Of Qwen/Qwen3-30B-A3B, but for the class and what all families share.
QWEN3_MOE = {
    "architectures": ["Qwen3MoeForSequenceClassification"],
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_window_layers": 48,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 4,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
    "rope_scaling": None,
    "sliding_window": None,
    "use_sliding_window": False,
}


@pytest.mark.parametrize("name", ["num_experts", "num_local_experts"])
def test_the_experts_of_a_mixture_are_read_under_both_names(name):
    given = {key: value for key, value in QWEN3_MOE.items() if key != "num_experts"}
    config = decoder_config({**PUBLISHED, **given, name: 128})
    assert (config.experts, config.experts_per_token, config.ffn_width) == (128, 8, 768)
    assert config.experts_renormalised and config.qk_norm and config.window is None


def test_a_qwen_3_mixture_that_does_not_say_so_is_not_renormalised():
    given = {key: value for key, value in QWEN3_MOE.items() if key != "norm_topk_prob"}
    assert not decoder_config({**PUBLISHED, **given}).experts_renormalised


MISTRAL = {"architectures": ["MistralForSequenceClassification"], "model_type": "mistral"}
GEMMA2 = {
    "architectures": ["Gemma2ForSequenceClassification"],
    "model_type": "gemma2",
    "hidden_act": "gelu_pytorch_tanh",
    "rope_scaling": None,
    "query_pre_attn_scalar": 256,
    "attn_logit_softcapping": 50.0,
    "sliding_window": 4096,
}


def gemma2_without(name):
    return {key: value for key, value in GEMMA2.items() if key != name}


REFUSED = {
    "a Gemma 2 that says nothing of its soft-cap": (
        gemma2_without("attn_logit_softcapping"),
        "no attn_logit_softcapping; allowed: a number, or null for none$",
    ),
    "a Mistral that says nothing of its window": (
        MISTRAL,
        "no sliding_window; allowed: a number, or null for none$",
    ),
    "a rotation that does not turn": (
        {"rope_theta": 0},
        r"rope_theta=0\.0; allowed: numbers above 0$",
    ),
    "an unknown architecture": (
        {"architectures": ["GPT2ForSequenceClassification"]},
        r"unknown architecture 'GPT2ForSequenceClassification'; allowed: .*LlamaForSequenceClass",
    ),
    "another decoder under a known architecture": (
        {"model_type": "qwen2"},
        r"model_type='qwen2' under LlamaForSequenceClassification; allowed: 'llama'$",
    ),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act='gelu' is not .* allowed: 'silu'$"),
    "quantized weights": (
        {"quantization_config": {"bits": 4}},
        r"quantization_config=\{'bits': 4\}: quantised weights: save the model whole \(model\.dequ",
    ),
    "a rope attribute too many": (
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta": 1.0}},
        r"rope type 'linear' has \['beta', 'factor'\]; allowed: exactly \['factor'\]$",
    ),
    "all that is wrong with it at once": (
        {
            "novelty": 1,
            "other": "x" * 99,
            "attention_bias": True,
            "use_mrope": True,
            "rope_scaling": {"rope_type": "yarn"},
        },
        r"^config\.json: not understood, and may change the rewards: "
        r"'novelty' \(= 1\), 'other' \(= 'x{49}…\); "
        r"also use_mrope=True is not implemented \(positions of images and video, as in Qwen2\.5-VL"
        r"\); allowed: False, None; "
        r"also attention_bias=True is not implemented; allowed: False, None; "
        r"also rope type 'yarn' is not implemented; allowed: 'default', 'dynamic', 'linear', ",
    ),
    "a mixture of experts": (
        {"num_experts": 8},
        r"num_experts=8: a mixture of experts is not implemented for this model_type$",
    ),
    "layers without experts": (
        {**QWEN3_MOE, "mlp_only_layers": [0], "decoder_sparse_step": 2},
        r"decoder_sparse_step=2 is not implemented; allowed: 1, None; "
        r"also mlp_only_layers=\[0\] is not implemented; allowed: \[\], None$",
    ),
    "a mixture's window": (
        {**QWEN3_MOE, "use_sliding_window": True},
        r"use_sliding_window=True is not implemented; allowed: False, None$",
    ),
    "two numbers of experts": (
        {**QWEN3_MOE, "num_local_experts": 8},
        r"num_experts and num_local_experts are 128 and 8; allowed: one integer, under either",
    ),
    "no number of experts": (
        {**QWEN3_MOE, "num_experts": None},
        r"num_experts=None; allowed: an integer$",
    ),
    "more experts per token than there are": (
        {**QWEN3_MOE, "num_experts_per_tok": 129},
        r"decoder\.experts_per_token=129; allowed: integers from 1 to experts=128$",
    ),
    "two ropes of other factors": (
        {"rope_parameters": {**PUBLISHED["rope_scaling"], "factor": 4.0}},
        "rope_parameters and rope_scaling differ; allowed: one of them, or both with the same val",
    ),
    "two thetas": (
        {"rope_scaling": None, "rope_parameters": {"rope_theta": 1e4}},
        r"rope_theta is both 10000\.0 and 500000\.0$",
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_config_is_refused_by_name_for(reason):
    changes, message = REFUSED[reason]
    with pytest.raises(AssayError, match=message):
        decoder_config({**PUBLISHED, **changes})


def test_every_attribute_is_in_one_list():
    groups = [*map(set, hf_keys.FIXED.values()), *hf_keys.HARMLESS.values()]
    names = [*hf_keys.READ, *itertools.chain(*groups, *hf_keys.REFUSED.values())]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", ["hidden_size", "rms_norm_eps"])
def test_a_missing_attribute_is_refused_by_name(name):
    with pytest.raises(
        AssayError, match=rf"^config\.json: {name}=None; allowed: (a number|an integer)$"
    ):
        decoder_config(without(name))
