"""Reads a Hugging Face config.json as DecoderConfig; refuses attributes it does not understand."""

from collections.abc import Iterator, Mapping

from engine.convert import hf_keys
from engine.convert.hf_families import ARCHITECTURES, FAMILIES, LANGUAGE_MODELS, Family, Fields
from engine.convert.hf_values import Json, integer, optional, positive, short
from engine.errors import AssayError
from engine.models.config import DecoderConfig, Rope
from engine.models.language_model import OutputConfig

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
        ffn_width=integer(hf, family.ffn_width),
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
    return architecture(hf) in LANGUAGE_MODELS


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


def architecture(hf: Json) -> str:
    """The class name in `architectures`, which must be known."""
    listed = hf.get("architectures")
    named = listed[0] if isinstance(listed, list) and len(listed) == 1 else listed
    known = ARCHITECTURES | LANGUAGE_MODELS
    if not isinstance(named, str) or named not in known:
        allowed = ", ".join(sorted(known))
        raise AssayError(f"config.json: unknown architecture {named!r}; allowed: {allowed}")
    return named


def _family(hf: Json) -> Family:
    named = architecture(hf)
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
    yield from hf_keys.problems(hf, family.fixed, family.read)
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
