"""The encoder families whose config.json is understood, and what is special about each."""

import dataclasses
from collections.abc import Callable, Mapping

from engine.convert import hf_keys
from engine.convert.hf_families import Fields, Values
from engine.convert.hf_values import MOST_LAYERS, Json, integer, positive, short
from engine.errors import AssayError
from engine.models.config import Rope
from engine.models.encoder_config import EncoderConfig

# Class name -> encoder family (`model_type`).
ENCODERS = {
    f"{name}ForSequenceClassification": family
    for name, family in {
        **{"DebertaV2": "deberta-v2", "Electra": "electra", "Roberta": "roberta"},
        **{"XLMRoberta": "xlm-roberta", "Bert": "bert", "DistilBert": "distilbert"},
        "ModernBert": "modernbert",
    }.items()
}
_ACTIVATIONS = {
    **{name: name for name in ("gelu", "relu", "silu", "tanh")},
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh"),
}
# Read here, or without influence on a forward pass in evaluation mode.
_READ = frozenset(
    {"layer_norm_eps", "type_vocab_size", "hidden_act", "embedding_size", "summary_last_dropout"}
    | {"hidden_dropout_prob", "attention_probs_dropout_prob", "pooler_dropout", "cls_dropout"}
    | {"layer_norm_type", "cls_token_id", "legacy", "gradient_checkpointing"}
    | {"dropout", "qa_dropout", "seq_classif_dropout", "output_past", "directionality"}
    # The pooler of multilingual BERT's first release, which no class reads.
    | {"pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_type"}
    | {"pooler_size_per_head"}
)
_FIXED: Values = {
    "position_embedding_type": ("absolute", None),
    "use_bidirectional_attention": (True, False, None),
    "is_decoder": (False, None),  # a mask, by which positions see no later ones
    "rope_scaling": (None,),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """How config.json is read for one `model_type`, beyond what all encoders share."""

    fields: Callable[[Json], Fields]  # those of EncoderConfig that the family sets
    fixed: Values = dataclasses.field(default_factory=dict)  # attribute -> values implemented
    read: frozenset[str] = frozenset()  # attributes that `fields` reads, or that do not matter
    # Name of an attribute that all families share -> the name in this family's files.
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    eps: float | None = None  # of norms, where the class fixes it


def encoder_config(hf: Json, model_type: str) -> EncoderConfig:
    """Reads the encoder of a family from a parsed config.json; raises AssayError as for decoders.

    `separator` is not read: the tokenizer says which id it is (`templates.separator`).
    """
    family = FAMILIES[model_type]
    fixed, read = _FIXED | family.fixed, _READ | family.read
    if problems := list(hf_keys.problems(hf, fixed, read, family.names)):
        raise AssayError("config.json: " + "; also ".join(problems))

    def size(name: str) -> int:
        return integer(hf, family.names.get(name, name))

    width, heads = size("hidden_size"), size("num_attention_heads")
    layers = size("num_hidden_layers")
    if not 1 <= layers <= MOST_LAYERS or heads < 1 or width % heads:
        raise AssayError(
            f"config.json: {layers} layers of {heads} heads in a width of {width}; allowed: 1 to "
            f"{MOST_LAYERS} layers, and heads that divide the width"
        )
    eps = family.names.get("layer_norm_eps", "layer_norm_eps")
    return EncoderConfig(
        **{
            "vocab_size": integer(hf, "vocab_size"),
            "width": width,
            "embedding_width": width,
            "ffn_width": size("intermediate_size"),
            "num_layers": layers,
            "num_heads": heads,
            "head_size": width // heads,
            "rms_eps": family.eps or positive(hf, eps),
            "max_positions": integer(hf, "max_position_embeddings"),
            "activation": activation(hf, family.names.get("hidden_act", "hidden_act")),
            **family.fields(hf),
        }
    )


def activation(hf: Json, name: str, default: str = "gelu") -> str:
    """The activation that an attribute names; raises AssayError for any other."""
    value = hf.get(name, default)
    if value not in _ACTIVATIONS:
        raise AssayError(
            f"config.json: {name}={short(value)}; allowed: {', '.join(map(repr, _ACTIVATIONS))}"
        )
    return _ACTIVATIONS[value]


def _bert(hf: Json) -> Fields:
    """Learned positions and token types."""
    types = integer(hf, "type_vocab_size", 2)
    return {"position_rows": integer(hf, "max_position_embeddings"), "token_types": types}


def _roberta(hf: Json) -> Fields:
    """Positions count from behind the pad id."""
    rows, pad = integer(hf, "max_position_embeddings"), integer(hf, "pad_token_id", 1)
    return {**_bert(hf), "pad": pad, "max_positions": rows - pad - 1}


def _deberta(hf: Json) -> Fields:
    kinds = hf.get("pos_att_type") or []
    kinds = kinds.lower().split("|") if isinstance(kinds, str) else kinds
    most = integer(hf, "max_position_embeddings")
    if (span := integer(hf, "max_relative_positions", -1)) < 1:
        span = most
    buckets = integer(hf, "position_buckets", -1)
    norms = str(hf.get("norm_rel_ebd", "none")).lower().split("|")
    if not hf.get("relative_attention") or not kinds:
        raise AssayError(
            f"config.json: relative_attention={hf.get('relative_attention')!r} with pos_att_type="
            f"{short(hf.get('pos_att_type'))}; allowed: true, with 'c2p' or 'p2c'"
        )
    return {
        "position_rows": most if hf.get("position_biased_input", True) else 0,
        "token_types": integer(hf, "type_vocab_size", 0),
        "relative": tuple(str(kind).strip() for kind in kinds),
        "relative_span": buckets if buckets > 0 else span,
        "relative_most": span if buckets > 0 else 0,
        "relative_norm": "layer_norm" in [norm.strip() for norm in norms],
        "relative_shared": bool(hf.get("share_att_key", False)),
        "pooler": activation(hf, "pooler_hidden_act"),
    }


def _modernbert(hf: Json) -> Fields:
    layers, key = range(integer(hf, "num_hidden_layers")), "global_attn_every_n_layers"
    kinds, period = hf.get("layer_types"), max(integer(hf, key, 3), 1)
    slides = [layer % period > 0 for layer in layers]
    if kinds is not None:
        slides = [kind == "sliding_attention" for kind in kinds]
        if len(kinds) != len(layers) or {*kinds} - {"sliding_attention", "full_attention"}:
            raise AssayError(f"config.json: layer_types={short(kinds)}; allowed: one per layer")
    thetas = {"full_attention": ("global_rope_theta", 160_000.0)}
    thetas |= {"sliding_attention": ("local_rope_theta", 10_000.0)}
    ropes = {}
    for kind, (name, default) in thetas.items():
        given = (hf.get("rope_parameters") or {}).get(kind) or {}
        if given.get("rope_type", "default") != "default" or {*given} - {"rope_type", "rope_theta"}:
            raise AssayError(f"config.json: rope_parameters={short(given)}; allowed: 'default'")
        ropes[kind] = Rope(theta=positive({"rope_theta": default, **given}, "rope_theta"))
        if "rope_theta" not in given and hf.get(name) is not None:
            ropes[kind] = Rope(theta=positive(hf, name))
    pooling = hf.get("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise AssayError(f"config.json: classifier_pooling={pooling!r}; allowed: 'cls', 'mean'")
    return {
        **{"biases": False, "gated": True, "pre_norms": True, "pooler_norm": True},
        "pooler": activation(hf, "classifier_activation"),
        "pooling": "first" if pooling == "cls" else "mean",
        **{"rope": ropes["full_attention"], "window_rope": ropes["sliding_attention"]},
        "window": integer(hf, "local_attention", 128) // 2,
        "window_layers": tuple(slides),
    }


FAMILIES = {
    "deberta-v2": Family(
        fields=_deberta,
        # DeBERTa v2 xlarge has a convolution beside its first layer.
        fixed={"conv_kernel_size": (0, None), "attention_head_size": (None,)},
        read=frozenset(
            {"relative_attention", "max_relative_positions", "position_buckets", "norm_rel_ebd"}
            | {"share_att_key", "pos_att_type", "position_biased_input", "pooler_hidden_act"}
            | {"pooler_hidden_size", "conv_act", "conv_groups"}
        ),
    ),
    "electra": Family(
        fields=lambda hf: {
            **_bert(hf),
            "embedding_width": integer(hf, "embedding_size", 128),
            "pooler": "gelu",
        }
    ),
    "roberta": Family(fields=_roberta),
    "xlm-roberta": Family(fields=_roberta),
    "bert": Family(fields=_bert),
    "distilbert": Family(
        fields=lambda hf: {
            "position_rows": integer(hf, "max_position_embeddings"),
            "pooler": "relu",
        },
        names={
            **{"hidden_size": "dim", "num_hidden_layers": "n_layers"},
            **{"num_attention_heads": "n_heads", "intermediate_size": "hidden_dim"},
            "hidden_act": "activation",
        },
        # The class makes these positions, and ties an output head, when it draws new weights.
        read=frozenset({"sinusoidal_pos_embds", "tie_weights_"}),
        eps=1e-12,
    ),
    "modernbert": Family(
        fields=_modernbert,
        fixed=dict.fromkeys(
            ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), (False, None)
        ),
        names={"layer_norm_eps": "norm_eps", "hidden_act": "hidden_activation"},
        read=frozenset(
            {"global_attn_every_n_layers", "layer_types", "local_attention", "global_rope_theta"}
            | {"local_rope_theta", "classifier_pooling", "classifier_activation"}
            | {"initializer_cutoff_factor", "embedding_dropout", "mlp_dropout", "decoder_bias"}
            | {"deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index"}
            | {"reference_compile", "repad_logits_with_grad", "norm_eps", "hidden_activation"}
        ),
    ),
}
