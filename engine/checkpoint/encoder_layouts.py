"""Names and layouts of the tensors of encoders, as `layouts` has them for decoders.

Every family calls the same matrices by other names. A name in a file becomes `model.` and the name
of the parameter, `.weight` or `.bias`; that of the classifier's last layer becomes `score`.
"""

import re
from collections.abc import Iterable

from engine.checkpoint.layouts import Rule
from engine.models.encoder_config import EncoderConfig

_PREFIX = re.compile(r"^(module\.)?(bert|deberta|electra|roberta|distilbert|model)\.")
_LAYER = re.compile(r"(?:encoder\.layer|transformer\.layer|layers)\.(\d+)\.(.+)")
# Module in a file -> parameter.
_MODULES = {
    **dict.fromkeys(("embeddings.word_embeddings", "embeddings.tok_embeddings"), "embedding"),
    "embeddings.position_embeddings": "position_embedding",
    "embeddings.token_type_embeddings": "type_embedding",
    **dict.fromkeys(("embeddings.LayerNorm", "embeddings.norm"), "embedding_norm"),
    "embeddings_project": "projection",
    "encoder.rel_embeddings": "relative",
    "encoder.LayerNorm": "relative_norm",
    **dict.fromkeys(("pooler.dense", "classifier.dense", "pre_classifier", "head.dense"), "pooler"),
    "head.norm": "pooler_norm",
    **dict.fromkeys(("classifier", "classifier.out_proj"), "score"),
    # Of a layer.
    **dict.fromkeys(("attention.self.query", "attention.self.query_proj", "attention.q_lin"), "q"),
    **dict.fromkeys(("attention.self.key", "attention.self.key_proj", "attention.k_lin"), "k"),
    **dict.fromkeys(("attention.self.value", "attention.self.value_proj", "attention.v_lin"), "v"),
    "attention.self.pos_key_proj": "pos_key",
    "attention.self.pos_query_proj": "pos_query",
    **dict.fromkeys(("attention.output.dense", "attention.out_lin", "attn.Wo"), "o"),
    **dict.fromkeys(("attention.output.LayerNorm", "sa_layer_norm", "attn_norm"), "attention_norm"),
    **dict.fromkeys(("intermediate.dense", "ffn.lin1"), "up"),
    **dict.fromkeys(("output.dense", "ffn.lin2", "mlp.Wo"), "down"),
    **dict.fromkeys(("output.LayerNorm", "output_layer_norm", "mlp_norm"), "ffn_norm"),
}
# Before the pooler of the encoder that RoBERTa's class, which has another one, does not read.
UNREAD = "unread: "
_KINDS = {"gamma": "weight", "beta": "bias"}  # of norms in the first files of BERT
# Parameters of a layer, and all others: layouts of weight and bias in the file.
_OF_LAYER = {
    **{name: ("(NH)D", "(NH)") for name in ("q", "k", "v", "pos_key", "pos_query")},
    **{"o": ("D(NH)", "D"), "gate": ("FD", "F"), "up": ("FD", "F"), "down": ("DF", "D")},
    **{"attention_norm": ("D", "D"), "ffn_norm": ("D", "D")},
}
_WHOLE = {
    **{"embedding": ("VE", ""), "position_embedding": ("TE", ""), "type_embedding": ("ZE", "")},
    **{"embedding_norm": ("E", "E"), "projection": ("DE", "D"), "relative": ("SD", "")},
    **{"relative_norm": ("D", "D"), "final_norm": ("D", "D")},
    **{"pooler": ("DD", "D"), "pooler_norm": ("D", "D")},
}
# ModernBERT has several matrices in one tensor, one after another.
_QKV, _UP_GATE = (("q", "NH"), ("k", "NH"), ("v", "NH")), (("up", "F"), ("gate", "F"))
_FUSED: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    **{name: ("attn.Wqkv", _QKV) for name in "qkv"},
    **{name: ("mlp.Wi", _UP_GATE) for name in ("up", "gate")},
}


def encoder_rules(config: EncoderConfig) -> tuple[Rule, ...]:
    """The rules of an encoder's parameters."""
    separate = () if config.relative_shared else config.relative
    has: dict[str, object] = {
        **{"position_embedding": config.position_rows, "type_embedding": config.token_types},
        **{"projection": config.embedding_width != config.width, "gate": config.gated},
        **{"relative": config.relative, "relative_norm": config.relative_norm},
        **{"final_norm": config.pre_norms, "pooler_norm": config.pooler_norm},
        **{"pos_key": "c2p" in separate, "pos_query": "p2c" in separate},
    }
    rules = []
    for place, table in (("layers.{l}.", _OF_LAYER), ("", _WHOLE)):
        for name in (name for name in table if has.get(name, True)):
            parameter = f"decoder.{place.replace('{l}.', '')}{name}"
            module, blocks = _FUSED[name] if config.gated and name in _FUSED else (name, ())
            of_weight, of_bias = table[name]
            part = name if blocks else ""
            key = f"model.{place}{module}"
            rules.append(Rule(f"{key}.weight", of_weight, parameter, part, blocks))
            if of_bias and config.biases:
                rules.append(Rule(f"{key}.bias", of_bias, f"{parameter}_bias"))
    return tuple(rules)


def encoder_names(keys: Iterable[str], head: str = "") -> dict[str, str]:
    """Each tensor name of a file -> the name that the rules have for it."""
    names = {key: _name(key) for key in keys}
    if "model.pooler.weight" in [names[key] for key in names if "classifier.dense." in key]:
        names |= {key: f"{UNREAD}{key}" for key in names if "pooler.dense." in key}
    return names


def _name(key: str) -> str:
    module, _, kind = _PREFIX.sub("", key).rpartition(".")
    kind, layer = _KINDS.get(kind, kind), _LAYER.fullmatch(module)
    if layer:
        return f"model.layers.{layer[1]}.{_MODULES.get(layer[2], layer[2])}.{kind}"
    name = _MODULES.get(module, module)
    return f"{name}.{kind}" if name == "score" else f"model.{name}.{kind}"
