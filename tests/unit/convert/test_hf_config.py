"""config.json: read where it is understood, refused by name where it is not."""

import dataclasses
import itertools
import json
from typing import Any

import pytest
from transformers import GenerationConfig

from engine.convert import hf_keys
from engine.convert.hf_config import decoder_config, text_model
from engine.errors import AssayError
from engine.models.config import DecoderConfig, Rope
from tests.support.parity import LLAMA3

# As published with Skywork-Reward-Llama-3.1-8B.
PUBLISHED: dict[str, Any] = {
    **{"_name_or_path": "meta-llama/Llama-3.1-8B-Instruct", "transformers_version": "4.44.2"},
    **{"architectures": ["LlamaForSequenceClassification"], "model_type": "llama"},
    **{"attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "hidden_act": "silu"},
    **{"bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "pad_token_id": 128256},
    **{"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "initializer_range": 0.02},
    **{"hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128257},
    **{"max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0},
    **{"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8},
    **{"pretraining_tp": 1, "tie_word_embeddings": False, "use_cache": False},
    "rope_scaling": {
        **{"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3"},
        "original_max_position_embeddings": 8192,
    },
    "torch_dtype": "bfloat16",
}


def without(config: dict, *names: str) -> dict:
    return {name: value for name, value in config.items() if name not in names}


def test_a_published_config_is_read():
    config = decoder_config(PUBLISHED)
    shape = {"vocab_size": 128257, "width": 4096, "ffn_width": 14336, "num_layers": 32}
    shape |= {"num_heads": 32, "num_kv_heads": 8, "head_size": 128, "max_positions": 131072}
    assert config == DecoderConfig(**shape, rms_eps=1e-5, rope=LLAMA3)
    # Another key would change the hashes of checkpoints that are there.
    assert list(config.to_json())[-1] == "window_layers"
    assert list(config.to_json()["rope"])[-1] == "original_positions"


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
        **{"num_local_experts": 0, "quantization_config": None, "do_normalize": False}
    },
    "the head and its normalisation": {"normalize_reward": True, "mean": 0.5, "std": 2.0},
    "the name of custom code, which is never executed": {"auto_map": {"AutoModel": "m.M"}},
}


@pytest.mark.parametrize("what", SAME)
def test_the_decoder_is_the_same_with(what):
    config = decoder_config({**PUBLISHED, **SAME[what]})
    assert repr(config) == repr(decoder_config(PUBLISHED))


# `dynamic` acts beyond the context alone.
@pytest.mark.parametrize(
    "scaling", [None, {}, {"rope_type": "default"}, {"type": "dynamic", "factor": 2.0}]
)
def test_a_scaling_that_changes_nothing_is_none(scaling):
    assert decoder_config({**PUBLISHED, "rope_scaling": scaling}).rope == Rope(theta=500_000.0)


def test_a_config_before_grouped_heads_has_as_many_as_query_heads():
    config = decoder_config(without(PUBLISHED, "num_key_value_heads", "rope_theta", "rope_scaling"))
    assert config.num_kv_heads == config.num_heads
    assert config.rope.theta == 10_000.0


def test_a_qwen_3_has_heads_of_128_whatever_its_width():
    qwen = {"architectures": ["Qwen3ForSequenceClassification"], "model_type": "qwen3"}
    qwen |= {"hidden_size": 1024, "num_attention_heads": 16, "rope_scaling": None}
    config = decoder_config({**PUBLISHED, **qwen})
    assert (config.head_size, config.qk_norm) == (128, True)


# As published with Pythia 70M.
PYTHIA: dict[str, Any] = {
    "architectures": ["GPTNeoXForCausalLM"],
    **{"bos_token_id": 0, "eos_token_id": 0, "use_cache": True, "vocab_size": 50304},
    **{"hidden_act": "gelu", "hidden_size": 512, "initializer_range": 0.02},
    **{"intermediate_size": 2048, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048},
    **{"model_type": "gpt_neox", "num_attention_heads": 8, "num_hidden_layers": 6},
    **{"rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": False},
    **{"torch_dtype": "float16", "use_parallel_residual": True},
}


ROTATED = {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.25}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"partial_rotary_factor": 0.25, "rope_theta": 10000, "rope_scaling": None},
        {"rope_parameters": ROTATED},
    ],
)
def test_a_published_pythia_is_read_in_each_form_that_transformers_wrote(changes):
    config = decoder_config({**PYTHIA, **changes})
    assert (config.rope, config.rotary_size) == (Rope(theta=10_000.0), 16)
    assert (config.parallel, config.qkv_bias, config.norm) == (True, True, "layer")


# Of the form of Phi-4-mini's.
PHI4_MINI: dict[str, Any] = {
    **{"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_act": "silu"},
    **{"auto_map": {"AutoConfig": "m.P"}, "attention_bias": False, "mlp_bias": False},
    **{"lm_head_bias": False, "full_attn_mod": 1, "interpolate_factor": 1, "embd_pdrop": 0.0},
    **{"hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24},
    **{"num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 200064},
    **{"max_position_embeddings": 131072, "original_max_position_embeddings": 4096},
    **{"partial_rotary_factor": 0.75, "rms_norm_eps": 1e-05, "rope_theta": 10000.0},
    **{"sliding_window": 262144, "tie_word_embeddings": True, "resid_pdrop": 0.0},
    "rope_scaling": {"long_factor": [2.0] * 48, "short_factor": [1.5] * 48, "type": "longrope"},
}


@pytest.mark.parametrize(
    ("kind", "inside"),
    [({}, False), ({"type": "su"}, True), ({"type": "longrope", "factor": 32.0}, False)],
)
def test_a_phi_is_read_up_to_the_positions_before_its_scaling(kind, inside):
    hf = {**PHI4_MINI, "rope_scaling": PHI4_MINI["rope_scaling"] | kind}
    if inside:  # of the scaling alone
        original = "original_max_position_embeddings"
        hf["rope_scaling"][original] = hf.pop(original)
    config = decoder_config(hf)
    assert (config.head_size, config.rotary_size, config.max_positions) == (128, 96, 4096)
    assert config.window_layers == (True,) * 32
    assert (config.rope.kind, config.rope.divisors) == ("longrope", (1.5,) * 48)
    assert config.rope.attention_factor == pytest.approx(1.1902380714238083)


# As published with GPT-2.
GPT2: dict[str, Any] = {
    "architectures": ["GPT2LMHeadModel"],
    **{"activation_function": "gelu_new", "attn_pdrop": 0.1, "bos_token_id": 50256},
    **{"embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02},
    **{"layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768},
    **{"n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1},
    **{"summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True},
    **{"summary_type": "cls_index", "summary_use_proj": True, "vocab_size": 50257},
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}


@pytest.mark.parametrize(
    ("fields", "width"), [({}, 3072), ({"n_inner": None}, 3072), ({"n_inner": 9}, 9)]
)
def test_the_feed_forward_of_a_published_gpt2_is_four_times_as_wide(fields, width):
    assert decoder_config({**GPT2, **fields}).ffn_width == width


# Of Qwen/Qwen3-30B-A3B, but for the class and what all families share.
QWEN3_MOE = {
    **PUBLISHED,
    **{"architectures": ["Qwen3MoeForSequenceClassification"], "model_type": "qwen3_moe"},
    **{"decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 768},
    **{"head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "max_window_layers": 48},
    **{"num_attention_heads": 32, "num_key_value_heads": 4, "norm_topk_prob": True},
    **{"num_experts": 128, "num_experts_per_tok": 8, "router_aux_loss_coef": 0.001},
    **{"output_router_logits": False, "rope_scaling": None},
    **{"sliding_window": None, "use_sliding_window": False},
}


@pytest.mark.parametrize("name", ["num_experts", "num_local_experts"])
def test_the_experts_of_a_mixture_are_read_under_both_names(name):
    config = decoder_config({**without(QWEN3_MOE, "num_experts"), name: 128})
    assert (config.experts, config.experts_per_token, config.ffn_width) == (128, 8, 768)
    assert config.experts_renormalised and config.qk_norm and config.window is None


def test_a_qwen_3_mixture_that_does_not_say_so_is_not_renormalised():
    assert not decoder_config(without(QWEN3_MOE, "norm_topk_prob")).experts_renormalised


GEMMA2 = {
    **PUBLISHED,
    **{"architectures": ["Gemma2ForSequenceClassification"], "model_type": "gemma2"},
    **{"hidden_act": "gelu_pytorch_tanh", "rope_scaling": None, "query_pre_attn_scalar": 256},
    **{"attn_logit_softcapping": 50.0, "sliding_window": 4096},
}


# As published with gemma-3-1b-it, and with the 4B model, which has images.
GEMMA3_1B: dict[str, Any] = {
    **{"architectures": ["Gemma3TextForSequenceClassification"], "model_type": "gemma3_text"},
    **{"vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912, "head_dim": 256},
    **{"num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1},
    **{"hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": None},
    **{"final_logit_softcapping": None, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6},
    **{"rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000},
    **{"sliding_window": 512, "sliding_window_pattern": 6, "max_position_embeddings": 32768},
    **{"cache_implementation": "hybrid", "attention_bias": False, "pad_token_id": 0},
}
GEMMA3_4B: dict[str, Any] = {
    **{"architectures": ["Gemma3ForSequenceClassification"], "model_type": "gemma3"},
    **{"boi_token_index": 255999, "eoi_token_index": 256000, "image_token_index": 262144},
    **{"mm_tokens_per_image": 256, "eos_token_id": [1, 106], "initializer_range": 0.02},
    "text_config": {
        **{"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text"},
        **{"num_hidden_layers": 34, "sliding_window": 1024},
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
}


def test_five_in_six_layers_of_a_gemma_3_slide_and_rotate_by_another_base():
    config = decoder_config(GEMMA3_1B)
    assert (config.window, config.qk_norm, config.post_norms) == (512, True, True)
    assert [i for i, slides in enumerate(config.window_layers) if not slides] == [5, 11, 17, 23]
    assert (config.rope, config.window_rope) == (Rope(theta=1e6), Rope(theta=1e4))
    assert config.first(6).window_layers == (True,) * 5 + (False,)


def test_the_text_of_a_gemma_3_with_images_has_the_defaults_of_its_class():
    config = decoder_config(text_model(GEMMA3_4B))
    assert (config.vocab_size, config.num_heads, config.num_kv_heads) == (262208, 8, 4)
    assert (config.window, sum(config.window_layers), config.head_size) == (1024, 29, 256)
    assert config.rope == Rope(theta=1e6, kind="linear", factor=8.0)
    assert config.window_rope == Rope(theta=1e4)


SMOLLM3 = {
    **PUBLISHED,
    **{"architectures": ["SmolLM3ForSequenceClassification"], "model_type": "smollm3"},
    **{"rope_scaling": None, "rope_theta": 5000000.0, "max_window_layers": 28},
    **{"sliding_window": None, "use_sliding_window": False},
}


@pytest.mark.parametrize(
    "fields",
    [
        {"no_rope_layers": [1, 1, 1, 0] * 9},  # of a model that was cut to 32 layers
        {"no_rope_layers": None, "no_rope_layer_interval": 4},
        {},
    ],
)
def test_every_fourth_layer_of_a_smollm3_does_not_rotate(fields):
    config = decoder_config({**SMOLLM3, **fields})
    assert config.no_rope_layers == (False, False, False, True) * 8
    assert config.layer_ropes[2:4] == (Rope(theta=5e6), None)
    assert config.first(4).no_rope_layers == (False, False, False, True)


@pytest.mark.parametrize("hf", [PYTHIA, PHI4_MINI, GPT2, QWEN3_MOE, GEMMA2, GEMMA3_1B, SMOLLM3])
def test_a_decoder_comes_back_from_its_json(hf):
    config = decoder_config(hf)
    assert DecoderConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


# As published with Olmo-3-7B-Instruct.
YARN = {
    **{"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192},
    **{"attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0},
}
OLMO3: dict[str, Any] = {
    **without(PUBLISHED, "mlp_bias", "pretraining_tp", "rope_scaling", "rope_theta"),
    **{"architectures": ["Olmo3ForSequenceClassification"], "model_type": "olmo3"},
    **{"sliding_window": 4096},
}
BY_KIND = {
    "full_attention": {**YARN, "rope_theta": 500000},
    "sliding_attention": {"rope_type": "default", "rope_theta": 500000},
}


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_parameters": BY_KIND},
        {"rope_scaling": YARN, "rope_theta": 500000},
        # Of transformers 5.0 to 5.8; later ones lose the scaling of such files.
        {"rope_parameters": {**YARN, "rope_theta": 500000}},
        {"rope_scaling": {name: YARN[name] for name in list(YARN)[:3]}, "rope_theta": 500000},
    ],
    ids=["by kind of layer", "transformers 4", "transformers 5.0", "defaults of YaRN"],
)
def test_three_in_four_layers_of_an_olmo_3_slide_and_are_not_scaled(fields):
    config = decoder_config({**OLMO3, **fields})
    assert config.window_layers == (True, True, True, False) * 8
    assert config.window_rope == Rope(theta=5e5)
    rope = dataclasses.replace(config.rope, attention_factor=1.2079441541679836)
    assert rope == Rope(
        **{"theta": 5e5, "kind": "yarn", "factor": 8.0, "original_positions": 8192},
        **{"low_freq_factor": 1.0, "high_freq_factor": 32.0},
        attention_factor=1.2079441541679836,
    )
    assert config.rope.attention_factor == pytest.approx(1.2079441541679836, rel=1e-12)


MISTRAL = {"architectures": ["MistralForSequenceClassification"], "model_type": "mistral"}
PHI4_SCALING = PHI4_MINI["rope_scaling"]
HALF = {"rope_theta": 1e6, "partial_rotary_factor": 0.5}
MSCALED = {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7, "truncate": False}
ALBERT = {"architectures": ["AlbertForSequenceClassification"]}
LINEAR = {"rope_type": "linear", "factor": 2.0, "beta": 1.0}
FULL: dict[str, Any] = {"rope_parameters": {"full_attention": {}}}
SLIDES = {"layer_types": ["sliding_attention"] * 32}
WRONG = {"novelty": 1, "other": "x" * 99, "attention_bias": True, "use_mrope": True}
# A config.json, what it has instead, and the field, its value and what is allowed in the error.
REFUSED = [
    # What is missing, or no number.
    (without(GEMMA2, "attn_logit_softcapping"), {}, "attn_logit_softcapping"),
    (PUBLISHED, MISTRAL, "sliding_window"),
    (PUBLISHED, {"hidden_size": None}, r"^config\.json: hidden_size=None"),
    (GPT2, {"layer_norm_epsilon": None}, "layer_norm_epsilon=None"),
    (QWEN3_MOE, {"num_experts": None}, "num_experts=None"),
    # What would be built for each of them, or divides.
    (GEMMA2, {"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000; allowed: 1 to 1000$"),
    (GPT2, {"n_layer": 0}, "num_hidden_layers=0; allowed: 1 to 1000$"),
    (PUBLISHED, {"rope_theta": 0}, r"rope_theta=0\.0"),
    (PUBLISHED, {"rope_scaling": [1]}, r"^config\.json: .*AttributeError"),
    (GEMMA3_1B, {"sliding_window_pattern": 0}, r"^config\.json: .*ZeroDivisionError"),
    (PHI4_MINI, {"original_max_position_embeddings": 1}, r"^config\.json: .*ZeroDivisionError"),
    # Another class, or one under another name.
    (PUBLISHED, ALBERT, r"'AlbertForSequenceClassification'.*'\w+ForSequenceC\w+'.* llama, "),
    (PUBLISHED, {"model_type": "qwen2"}, r"model_type='qwen2' .*LlamaForSeq.* 'llama'$"),
    # Values that its decoder does not have, and attributes that nobody knows.
    (PUBLISHED, {"hidden_act": "gelu"}, "hidden_act='gelu' .* 'silu'$"),
    (PUBLISHED, {"quantization_config": {"bits": 4}}, r"quantization_config=\{'bits': 4\}"),
    (PUBLISHED, WRONG, r"'novelty' \(= 1\), 'other' \(= 'x{49}…\).*use_mrope=True.*n_bias=True"),
    (PUBLISHED, {"num_experts": 8}, "num_experts=8"),
    (GEMMA3_1B, {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
    (QWEN3_MOE, {"use_sliding_window": True}, "use_sliding_window=True"),
    (
        QWEN3_MOE,
        {"mlp_only_layers": [0], "decoder_sparse_step": 2},
        r"decoder_sparse_step=2 .*mlp_only_layers=\[0\]",
    ),
    (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "attn_by_inverse_layer_idx=True .* False$"),
    (GPT2, {"add_cross_attention": True}, "add_cross_attention=True"),
    (GPT2, {"hidden_size": 1024}, r"'hidden_size' \(= 1024\)$"),
    (PYTHIA, {"attention_bias": False}, "attention_bias=False .* True$"),
    (PYTHIA, {"rms_norm_eps": 1e-6}, r"'rms_norm_eps' \(= 1e-06\)$"),
    (SMOLLM3, {"no_rope_layers": [1, 2]}, r"no_rope_layers=\[1, 2\]"),
    (SMOLLM3, {"no_rope_layers": [1, 0]}, r"no_rope_layers=\[1, 0\]"),
    (SMOLLM3, SLIDES, r"layer_types=\['sliding_attention', .*'full_attention'"),
    (PUBLISHED, {"no_rope_layers": [1, 0]}, r"no_rope_layers=\[1, 0\]"),
    # Ropes of another kind, of several kinds, or of two values.
    (PUBLISHED, {"rope_scaling": {"rope_type": "ntk"}}, "'ntk' .*'default', "),
    (PUBLISHED, {"rope_scaling": LINEAR}, r"'linear' .*\['beta', 'factor'\]; .*\['factor'\]$"),
    (
        PUBLISHED,
        {"rope_parameters": {**SCALING, "factor": 4.0}},
        "rope_parameters and rope_scaling",
    ),
    (PUBLISHED, FULL, "rope_parameters"),
    (GEMMA3_1B, FULL, r"\['full_attention'\]; .* \['full_attention', 'sliding_attention'\]$"),
    (GEMMA3_1B, {"sliding_window": None}, "window_rope .*window_layers"),
    (PUBLISHED, {"rope_scaling": MSCALED}, r"\['attention_factor', .* 'mscale_all_dim', .*"),
    (PUBLISHED, {"rope_scaling": YARN, "rope_theta": 1.0}, r"rope\.theta=1\.0"),
    (PYTHIA, {"rope_theta": 5000}, r"10000\.0 and 5000\.0$"),
    (PHI4_MINI, {"rope_scaling": PHI4_SCALING | {"short_factor": [1.5] * 47}}, "47 .* 48"),
    (PHI4_MINI, {"rope_scaling": PHI4_SCALING | {"short_factor": [0] * 48}}, r"short_factor=0\.0"),
    (
        PHI4_MINI,
        {"rope_scaling": PHI4_SCALING | {"short_mscale": 1.1}},
        r"'longrope' .*\['long_factor', .*'short_mscale'\]",
    ),
    # Parts of heads that are rotated, and numbers that do not fit one another.
    (PUBLISHED, {"partial_rotary_factor": 0.5}, r"partial_rotary_factor=0\.5, .* llama: 1$"),
    (
        GEMMA3_1B,
        {"rope_parameters": {"full_attention": HALF, "sliding_attention": {"rope_theta": 1e4}}},
        r"partial_rotary_factor=0\.5, .* gemma3_text: 1$",
    ),
    (PYTHIA, {"partial_rotary_factor": 0.5}, r"partial_rotary_factor=0\.25, 0\.5, "),
    (PYTHIA, {"rotary_pct": 0.27}, r"decoder\.rotary_size=17; .* head_size=64$"),
    (QWEN3_MOE, {"num_experts_per_tok": 129}, r"experts_per_token=129; .* experts=128$"),
]


@pytest.mark.parametrize(
    ("config", "changes", "message"), REFUSED, ids=[message for *_, message in REFUSED]
)
def test_a_config_is_refused_by_name(config, changes, message):
    with pytest.raises(AssayError, match=message):
        decoder_config({**config, **changes})


def test_every_attribute_is_in_one_list():
    groups = itertools.chain(hf_keys.FIXED.values(), hf_keys.HARMLESS.values())
    names = [*hf_keys.READ, *itertools.chain(*groups)]
    assert sorted(names) == sorted(set(names))
