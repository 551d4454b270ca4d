"""The attributes of config.json that every decoder family shares: read, harmless, or fixed.

Whatever is in none of these lists, and in none of a family's, is refused by name: it may change the
rewards. A group of names has its reason as its key.
"""

from collections.abc import Iterator, Mapping

from engine.convert.hf_values import Json, short

READ = {
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "max_position_embeddings", "model_type", "architectures",
    "partial_rotary_factor", "tie_word_embeddings", "pad_token_id", "id2label",
    "value_head_prefix", "normalize_reward", "num_objectives", "num_quantiles",
    "gating_temperature", "gating_hidden_dim", "gating_n_hidden",  # of a gate (convert/gates.py)
}  # fmt: skip
# No influence on a forward pass in evaluation mode.
HARMLESS = {
    "bookkeeping of transformers and of the hub": {
        "_name_or_path", "_commit_hash", "transformers_version", "torch_dtype", "dtype",
        "tf_legacy_loss", "tokenizer_class", "transformers.js_config", "pretrained_config",
        "is_decoder", "is_llama_config", "torchscript", "finetuning_task", "task_specific_params",
    },
    "training: dropout, initialisation, losses": {
        "initializer_range", "attention_dropout", "gating_dropout", "classifier_dropout",
        "summary_dropout_prob", "hidden_dropout", "resid_pdrop", "embd_pdrop", "problem_type",
        "attn_pdrop", "summary_first_dropout",
        "gradient_checkpointing", "router_aux_loss_coef", "output_router_logits",
        "router_jitter_noise",
    },
    "implementations of one computation": {
        "_attn_implementation", "_attn_implementation_autoset", "attn_implementation",
        "_flash_attn_2_enabled", "attn_impl", "use_flash_attn", "chunk_size_feed_forward",
        "reorder_and_upcast_attn",
    },
    "marks of tools, also of those that quantise; quantised weights have `quantization_config`": {
        "unsloth_version", "unsloth_fixed", "model_name",
    },
    "outputs beside the logits": {
        "return_dict", "output_attentions", "output_hidden_states", "use_cache",
        "cache_implementation",
    },
    "special ids: the place of the reward is explicit here": {
        "bos_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id", "prefix",
    },
    "the summary of GPT2DoubleHeadsModel, which is not read": {
        "summary_activation", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    },
    "names of custom code, which is never executed": {"auto_map"},
    "the head, which is read from its tensors; `vhead_*` of GRM describe another one": {
        "num_labels", "label2id", "token_classification_bias", "vhead_layer_type",
        "vhead_num_neurons", "vhead_num_layers",
    },
    "stale in SmolLM's files, whose weights are half-split": {"rope_interleaved"},
    # transformers 5.23 drops these (GenerationConfig._get_default_generation_params).
    "settings of `generate`, which transformers 4 wrote here": {
        "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
        "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "epsilon_cutoff",
        "eta_cutoff", "repetition_penalty", "encoder_repetition_penalty", "length_penalty",
        "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "output_scores",
        "num_return_sequences", "return_dict_in_generate", "forced_bos_token_id",
        "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
        "suppress_tokens", "begin_suppress_tokens", "num_assistant_tokens",
        "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_lookbehind",
        "target_lookbehind",
    },
}  # fmt: skip
_OFF = (None, False, 0, "", [], {})
# Attribute -> values that this decoder implements.
FIXED: dict[str, dict[str, tuple[object, ...]]] = {
    "another structure": {
        "is_encoder_decoder": (False, None),
        "tie_encoder_decoder": (False, None),
        "add_cross_attention": (False, None),
        "cross_attention_hidden_size": (None,),
        "pruned_heads": ({}, None),
    },
    "split sums, which round differently": {"pretraining_tp": (1, None)},
    "another rounding": {"use_bfloat16": (False, None)},
    "positions of images and video, as in Qwen2.5-VL": {"use_mrope": (False, None)},
    "quantised: save the model whole with model.dequantize() and save_pretrained": dict.fromkeys(
        ("quantization_config", "compression_config"), _OFF
    ),
    "a mixture of experts, for this model_type": dict.fromkeys(
        ("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok"), _OFF
    ),
    "images and sound": dict.fromkeys(("vision_config", "audio_config"), _OFF),
    "attention in both directions": {"use_bidirectional_attention": _OFF},
    "the normalisation of beaver's scores": {"do_normalize": _OFF},
    "a sparse autoencoder under the head, as in SARM": {"sarm_use_topk": _OFF},
    "a function of the score, of sentence-transformers": dict.fromkeys(
        ("sbert_ce_default_activation_function", "activation_fn"),
        (None, "torch.nn.modules.linear.Identity"),
    ),
    "layers without rotary positions": {"no_rope_layers": _OFF},
    "scales of Granite": dict.fromkeys(
        ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"),
        _OFF,
    ),
}


def problems(
    hf: Json,
    fixed: Mapping[str, tuple[object, ...]],
    read: frozenset[str],
    names: Mapping[str, str],
) -> Iterator[str]:
    """What is wrong with attributes that may change the rewards in a way not implemented.

    `fixed`, `read` and `names` are those of the decoder family.
    """
    if isinstance(hf.get("sentence_transformers"), dict):  # `activation_fn` and `version`
        applied = hf["sentence_transformers"].get("activation_fn")
        rest = {name: value for name, value in hf.items() if name != "sentence_transformers"}
        hf = {**rest, "activation_fn": applied}
    shared = {name: allowed for group in FIXED.values() for name, allowed in group.items()}
    values = {name: allowed for name, allowed in shared.items() if name not in read} | dict(fixed)
    reasons = {name: reason for reason, group in FIXED.items() for name in group}
    known = (READ - set(names)).union(names.values(), read, values, *HARMLESS.values())
    if "normalize_reward" in hf:
        known |= {"mean", "std"}
    if unknown := [f"{name!r} (= {short(hf[name])})" for name in hf if name not in known]:
        yield f"not understood, and may change the rewards: {', '.join(unknown)}"
    for name, allowed in values.items():
        if name in hf and hf[name] not in allowed:
            why = f" ({reasons[name]})" if name in reasons else ""
            listed = ", ".join(map(repr, allowed))
            yield f"{name}={short(hf[name])} is not implemented{why}; allowed: {listed}"
