"""Reads a Hugging Face config.json as DecoderConfig; refuses attributes it does not understand."""

from collections.abc import Iterator, Mapping

from engine.convert.hf_families import ARCHITECTURES, FAMILIES, LANGUAGE_MODELS, Family, Fields
from engine.convert.hf_values import Json, integer, optional, positive, short
from engine.errors import AssayError
from engine.models.config import DecoderConfig, Rope
from engine.models.language_model import OutputConfig

# Attributes of all families with the values that this decoder implements; other values are refused.
_FIXED = {
    "pretraining_tp": (1, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({}, None),
    "tie_encoder_decoder": (False, None),
    "quantization_config": (None,),
    "partial_rotary_factor": (1, 1.0, None),
    "use_mrope": (False, None),  # Qwen2.5: rotary positions of images and video
    "use_bfloat16": (False, None),
    "normalize_reward": (True, False, None),  # OpenRLHF: (reward - mean) / std
}
_READ = {
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "max_position_embeddings", "model_type", "architectures",
    "tie_word_embeddings",
    "num_objectives", "num_quantiles", "gating_temperature", "gating_hidden_dim",
    "gating_n_hidden",  # of a gate (convert/gates.py)
}  # fmt: skip
# Attributes without influence on a forward pass in evaluation mode: training, generation,
# bookkeeping, file format, special ids (the reward position is explicit here), custom code (never
# executed), and `vhead_*` fields of GRM configs, which describe another head.
_HARMLESS = {
    "_name_or_path", "_commit_hash", "_attn_implementation_autoset", "attn_implementation",
    "_flash_attn_2_enabled", "transformers_version", "auto_map", "torch_dtype", "dtype",
    "initializer_range", "attention_dropout", "gating_dropout", "use_cache",
    "cache_implementation", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
    "decoder_start_token_id", "label2id", "problem_type", "classifier_dropout",
    "summary_dropout_prob", "gradient_checkpointing", "unsloth_version", "unsloth_fixed",
    "tf_legacy_loss", "return_dict", "output_attentions", "output_hidden_states", "torchscript",
    "chunk_size_feed_forward", "finetuning_task", "task_specific_params", "tokenizer_class",
    "prefix", "id2label", "is_decoder", "is_llama_config", "transformers.js_config",
    "pretrained_config", "vhead_layer_type", "vhead_num_neurons", "vhead_num_layers",
    "_attn_implementation",  # all are implementations of one computation
    "value_head_prefix",  # OpenRLHF: the head is recognised by its tensors
    "num_labels",  # the sizes of a head are read from its tensors
    "rope_interleaved",  # stale in SmolLM configs, whose weights are half-split
}  # fmt: skip
# Settings of `generate`, which transformers 4 wrote into config.json. transformers 5.23 drops these
# when it reads one (GenerationConfig._get_default_generation_params).
_GENERATION = {
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "epsilon_cutoff",
    "eta_cutoff", "repetition_penalty", "encoder_repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "output_scores",
    "num_return_sequences", "return_dict_in_generate", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_lookbehind",
    "target_lookbehind",
}  # fmt: skip

_MOST_LAYERS = 1000


def decoder_config(hf: Json) -> DecoderConfig:
    """Reads the decoder from a parsed config.json.

    Raises:
      AssayError: an unknown architecture; an attribute that is not understood, holds a value that
        this decoder does not implement, or is missing. The message names it.
    """
    family = _family(hf)
    if problems := list(_problems(hf, family)):
        raise AssayError("config.json: " + "; also ".join(problems))
    for name in family.named:
        if name not in hf:
            raise AssayError(f"config.json: no {name}; allowed: a number, or null for none")
    width, num_heads = integer(hf, "hidden_size"), integer(hf, "num_attention_heads")
    layers = integer(hf, "num_hidden_layers")
    if not 1 <= layers <= _MOST_LAYERS:
        raise AssayError(f"config.json: num_hidden_layers={layers}; allowed: 1 to {_MOST_LAYERS}")
    return DecoderConfig(
        vocab_size=integer(hf, "vocab_size"),
        width=width,
        ffn_width=integer(hf, "intermediate_size"),
        num_layers=layers,
        num_heads=num_heads,
        num_kv_heads=integer(hf, "num_key_value_heads", num_heads),
        head_size=integer(hf, "head_dim", family.head_size or width // max(num_heads, 1)),
        rms_eps=positive(hf, "rms_norm_eps"),
        rope=_rope(hf),
        max_positions=integer(hf, "max_position_embeddings"),
        **family.fields(hf),
    )


def is_language_model(hf: Json) -> bool:
    """Whether config.json names a class of causal language models: without a reward head, it is."""
    return _architecture(hf) in LANGUAGE_MODELS


def output_config(hf: Json, decoder: DecoderConfig) -> OutputConfig:
    """Reads a language model's output head from a parsed config.json."""
    tied = hf.get("tie_word_embeddings", _family(hf).tied)
    if not isinstance(tied, bool):
        raise AssayError(f"config.json: tie_word_embeddings={tied!r}; allowed: true, false")
    cap = "final_logit_softcapping"
    if hf["model_type"] == "gemma2" and cap not in hf:
        raise AssayError(f"config.json: no {cap}; allowed: a number, or null for none")
    return OutputConfig(
        vocab_size=decoder.vocab_size,
        width=decoder.width,
        rms_eps=decoder.rms_eps,
        norm_offset=decoder.norm_offset,
        tied=tied,
        softcap=optional(hf, cap),
    )


def _architecture(hf: Json) -> str:
    """The class name in `architectures`, which must be known."""
    listed = hf.get("architectures")
    named = listed[0] if isinstance(listed, list) and len(listed) == 1 else listed
    known = ARCHITECTURES | LANGUAGE_MODELS
    if not isinstance(named, str) or named not in known:
        allowed = ", ".join(sorted(known))
        raise AssayError(f"config.json: unknown architecture {named!r}; allowed: {allowed}")
    return named


def _family(hf: Json) -> Family:
    named = _architecture(hf)
    family, model_type = (ARCHITECTURES | LANGUAGE_MODELS)[named], hf.get("model_type")
    allowed = FAMILIES if family == "*" else (family,)
    if not isinstance(model_type, str) or model_type not in allowed:
        raise AssayError(
            f"config.json: model_type={model_type!r} under {named}; "
            f"allowed: {', '.join(map(repr, allowed))}"
        )
    return FAMILIES[model_type]


def _problems(hf: Json, family: Family) -> Iterator[str]:
    """What is wrong with attributes that may change the rewards in a way not implemented."""
    fixed = {**_FIXED, **family.fixed}
    known = _READ | _HARMLESS | _GENERATION | family.read | set(fixed)
    if "normalize_reward" in hf:
        known |= {"mean", "std"}
    if unknown := [f"{name!r} (= {short(hf[name])})" for name in hf if name not in known]:
        yield f"not understood, and may change the rewards: {', '.join(unknown)}"
    for name, allowed in fixed.items():
        if name in hf and hf[name] not in allowed:
            yield (
                f"{name}={short(hf[name])} is not implemented; "
                f"allowed: {', '.join(map(repr, allowed))}"
            )
    try:
        _rope(hf)
    except AssayError as error:
        yield str(error).removeprefix("config.json: ")


def _rope(hf: Json) -> Rope:
    """Rotary embedding: base and scaling, from any of the published forms of the attributes."""
    # Published files say rope_theta and rope_scaling; transformers 5 writes rope_parameters.
    given = {name: hf[name] for name in ("rope_parameters", "rope_scaling") if hf.get(name)}
    for name, value in given.items():
        if not isinstance(value, Mapping):
            raise AssayError(f"config.json: {name}={short(value)}; allowed: an object, or null")
    stated = [place["rope_theta"] for place in (hf, *given.values()) if "rope_theta" in place]
    thetas = {
        positive({"rope_theta": theta}, "rope_theta") for theta in stated if theta is not None
    }
    if len(thetas) > 1:
        both = " and ".join(sorted(map(str, thetas)))
        raise AssayError(f"config.json: rope_theta is both {both}")
    theta = thetas.pop() if thetas else 10_000.0
    ropes = [_scaled(theta, value) for value in given.values()] or [Rope(theta=theta)]
    if ropes[0] != ropes[-1]:
        raise AssayError(
            "config.json: rope_parameters and rope_scaling differ; allowed: one of them, or both "
            "with the same values"
        )
    return ropes[0]


def _scaled(theta: float, rope: Json) -> Rope:
    """The rotary embedding of one `rope_parameters` or `rope_scaling`."""
    given = {name: value for name, value in rope.items() if name != "rope_theta"}
    kind = given.pop("rope_type", None) or given.pop("type", None) or "default"
    given.pop("type", None)
    keys = {
        "default": {},
        "dynamic": {"factor": "factor"},
        "linear": {"factor": "factor"},
        "llama3": {
            "factor": "factor",
            "low_freq_factor": "low_freq_factor",
            "high_freq_factor": "high_freq_factor",
            "original_max_position_embeddings": "original_positions",
        },
    }.get(str(kind))
    if keys is None:
        raise AssayError(
            f"config.json: rope type {kind!r} is not implemented; "
            "allowed: 'default', 'dynamic', 'linear', 'llama3'"
        )
    if set(given) != set(keys):
        raise AssayError(
            f"config.json: rope type {kind!r} has {sorted(given)}; allowed: exactly {sorted(keys)}"
        )
    if kind == "dynamic":  # only acts beyond max_position_embeddings, which is refused
        kind, keys = "default", {}
    numbers: Fields = {field: positive(given, name) for name, field in keys.items()}
    if "original_positions" in numbers:
        numbers["original_positions"] = integer(given, "original_max_position_embeddings")
    return Rope(theta=theta, kind=kind, **numbers)
