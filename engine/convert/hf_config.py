"""Reads a Hugging Face config.json as DecoderConfig; refuses attributes it does not understand."""

import difflib
import math
from collections.abc import Mapping

from engine.convert import hf_encoders, hf_keys
from engine.convert.hf_families import (
    ARCHITECTURES,
    FAMILIES,
    LANGUAGE_MODELS,
    TEXTS,
    Family,
    Fields,
)
from engine.convert.hf_values import (
    MOST_LAYERS,
    Json,
    boolean,
    integer,
    number,
    optional,
    positive,
    short,
)
from engine.errors import AssayError, malformed
from engine.models.config import DecoderConfig, Rope
from engine.models.encoder_config import NetworkConfig
from engine.models.heads import OutputConfig

# Attributes of a model with images that its text does not depend on.
_IMAGES = frozenset(
    {"text_config", "vision_config", "mm_tokens_per_image", "image_token_index"}
    | {"boi_token_index", "eoi_token_index", "image_token_id", "video_token_id"}
    | {"vision_start_token_id", "vision_end_token_id", "vision_token_id"}
)
_YARN = {"beta_fast": 32.0, "beta_slow": 1.0}  # where config.json has none
_KINDS = {"full_attention", "sliding_attention"}  # of layers


def text_model(hf: Json) -> Json:
    """The config.json of a model's text: of one with images (`TEXTS`), as if it had none.

    Raises AssayError where that has no `text_config`.
    """
    kind = hf.get("model_type")
    if not isinstance(kind, str) or kind not in TEXTS:
        return hf
    family, defaults = TEXTS[kind]
    # Published files of Qwen2.5-VL have the attributes of the text in the outer object.
    text = hf.get("text_config", {} if "hidden_size" in hf else None)
    if not isinstance(text, Mapping):
        raise AssayError(f"config.json: text_config={short(text)}; allowed: an object")
    outer = {name: value for name, value in hf.items() if name not in _IMAGES}
    of_head = ("architectures", "id2label", "label2id", "num_labels")
    inner = {name: value for name, value in text.items() if name not in of_head}
    return {**defaults, **outer, **inner, "model_type": family}


@malformed("config.json")
def network_config(hf: Json) -> NetworkConfig:
    """Reads the decoder or the encoder from a parsed config.json; raises as `decoder_config`."""
    if not is_encoder(hf):
        return decoder_config(hf)
    wanted = hf_encoders.ENCODERS[architecture(hf)]
    if (given := hf.get("model_type")) != wanted:
        raise AssayError(f"config.json: model_type={given!r} of an encoder; allowed: {wanted!r}")
    return hf_encoders.encoder_config(hf, wanted)


def is_encoder(hf: Json) -> bool:
    """Whether config.json names a class of encoders with a classification head."""
    return architecture(hf) in hf_encoders.ENCODERS


@malformed("config.json")
def decoder_config(hf: Json) -> DecoderConfig:
    """Reads the decoder from a parsed config.json.

    Raises:
      AssayError: an unknown architecture; an attribute that is not understood, holds a value that
        this decoder does not implement, or is missing. The message names it.
    """
    family = _family(hf)
    if problems := list(hf_keys.problems(hf, family.fixed, family.read, family.names)):
        raise AssayError("config.json: " + "; also ".join(problems))
    for name in family.required:
        if name not in hf:
            raise AssayError(f"config.json: no {name}; allowed: a number, or null for none")

    def size(name: str, default: int | None = None) -> int:
        return integer(hf, family.name(name), default)

    width, num_heads = size("hidden_size"), size("num_attention_heads")
    layers = size("num_hidden_layers")
    if not 1 <= layers <= MOST_LAYERS:
        raise AssayError(f"config.json: num_hidden_layers={layers}; allowed: 1 to {MOST_LAYERS}")
    ropes, most = _ropes(hf, family), size("max_position_embeddings")
    if ropes["rope"].kind == "longrope":  # beyond them it has other divisors; none are kept
        most = min(most, ropes["rope"].original_positions)
    head_size = size("head_dim", family.head_size or width // max(num_heads, 1))
    return DecoderConfig(
        vocab_size=integer(hf, "vocab_size"),
        width=width,
        ffn_width=size("intermediate_size", family.ffn_factor and family.ffn_factor * width),
        num_layers=layers,
        num_heads=num_heads,
        num_kv_heads=size("num_key_value_heads", num_heads),
        head_size=head_size,
        rms_eps=positive(hf, family.name("rms_norm_eps")),
        max_positions=most,
        rotary_size=_rotary_size(hf, family, head_size),
        **ropes,
        **family.fields(hf),
    )


def is_language_model(hf: Json) -> bool:
    """Whether config.json names a class of causal language models: without a reward head, it is."""
    return architecture(hf) in LANGUAGE_MODELS


def output_config(hf: Json, decoder: NetworkConfig) -> OutputConfig:
    """Reads a language model's output head from a parsed config.json."""
    cap = "final_logit_softcapping"
    if hf["model_type"] == "gemma2" and cap not in hf:
        raise AssayError(f"config.json: no {cap}; allowed: a number, or null for none")
    return OutputConfig(
        vocab_size=decoder.vocab_size,
        width=decoder.width,
        rms_eps=decoder.rms_eps,
        norm_offset=decoder.norm_offset,
        tied=boolean(hf, "tie_word_embeddings", _family(hf).tied),
        softcap=optional(hf, cap),
        norm=decoder.norm,
    )


def architecture(hf: Json) -> str:
    """The class name in `architectures`, which must be known."""
    listed = hf.get("architectures")
    name = listed[0] if isinstance(listed, list) and len(listed) == 1 else listed
    known = ARCHITECTURES | LANGUAGE_MODELS | hf_encoders.ENCODERS
    if not isinstance(name, str) or name not in known:
        [nearest] = difflib.get_close_matches(str(name), known, 1, cutoff=0)
        raise AssayError(
            f"config.json: unknown architecture {short(name)}; the nearest that is read: "
            f"{nearest!r}; families: {', '.join(FAMILIES | hf_encoders.FAMILIES)}; heads and what "
            "is not read: docs/your-own-model.md"
        )
    return name


def _family(hf: Json) -> Family:
    name = architecture(hf)
    family, model_type = (ARCHITECTURES | LANGUAGE_MODELS)[name], hf.get("model_type")
    allowed = FAMILIES if family == "*" else (family,)
    if not isinstance(model_type, str) or model_type not in allowed:
        raise AssayError(
            f"config.json: model_type={model_type!r} under {name}; "
            f"allowed: {', '.join(map(repr, allowed))}"
        )
    return FAMILIES[model_type]


def _ropes(hf: Json, family: Family) -> Fields:
    """Rotary embeddings; `window_rope` where layers with a window have another one."""
    given = hf.get("rope_parameters")
    by_kind = given if isinstance(given, Mapping) and not _KINDS.isdisjoint(given) else None
    if family.window_rope is None:
        if by_kind:
            raise AssayError("config.json: rope_parameters by kind of layer; allowed: one object")
        return {"rope": _rope(hf, family.theta)}
    if by_kind is None:
        rope = _rope(hf, family.theta)
        window = family.window_rope(hf, rope)
    elif by_kind.keys() == _KINDS:
        rope = _rope({**hf, "rope_parameters": by_kind["full_attention"]}, family.theta)
        theta = family.window_rope(hf, rope).theta
        window = _rope({"rope_parameters": by_kind["sliding_attention"]}, theta)
    else:
        raise AssayError(
            f"config.json: rope_parameters has {sorted(by_kind)}; allowed: {sorted(_KINDS)}"
        )
    return {"rope": rope, "window_rope": None if window == rope else window}


def _rope(hf: Json, default_theta: float) -> Rope:
    """Rotary embedding: base and scaling, from any of the published forms of the attributes."""
    # Published files say rope_theta and rope_scaling; transformers 5 writes rope_parameters.
    given = {name: hf[name] for name in ("rope_parameters", "rope_scaling") if hf.get(name)}
    names = ("rope_theta", "rotary_emb_base")
    stated = [place[n] for place in (hf, *given.values()) for n in names if n in place]
    thetas = {
        positive({"rope_theta": theta}, "rope_theta") for theta in stated if theta is not None
    }
    if len(thetas) > 1:
        values = " and ".join(sorted(map(str, thetas)))
        raise AssayError(f"config.json: rope_theta is both {values}")
    theta = thetas.pop() if thetas else default_theta
    ropes = [_scaled(theta, value, hf) for value in given.values()] or [Rope(theta=theta)]
    if ropes[0] != ropes[-1]:
        raise AssayError(
            "config.json: rope_parameters and rope_scaling differ; allowed: one of them, or both "
            "with the same values"
        )
    return ropes[0]


def _rotary_size(hf: Json, family: Family, head_size: int) -> int | None:
    """How many dimensions of each head are rotated; None: all of them."""
    given = [hf.get(name) or {} for name in ("rope_parameters", "rope_scaling")]
    by_kind = [value for rope in given for value in rope.values() if isinstance(value, Mapping)]
    places = [hf, *given, *by_kind]
    factors = {
        positive(place, name)
        for place in places
        for name in ("partial_rotary_factor", "rotary_pct")
        if place.get(name) is not None
    } or {family.rotary or 1.0}
    if len(factors) > 1 or (family.rotary is None and factors != {1.0}):
        allowed = "1" if family.rotary is None else "the same wherever the file states it"
        raise AssayError(
            f"config.json: partial_rotary_factor={', '.join(map(str, sorted(factors)))}, the part "
            f"of each head that is rotated; allowed for {hf['model_type']}: {allowed}"
        )
    size = int(head_size * factors.pop())
    return None if size == head_size else size


def _scaled(theta: float, rope: Json, hf: Json) -> Rope:
    """The rotary embedding of one `rope_parameters` or `rope_scaling` of a config.json."""
    # A part of each head that is rotated is a field of the decoder.
    # Of a text all sections of M-RoPE have equal positions, so its frequencies are the plain ones.
    elsewhere = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
    given = {name: value for name, value in rope.items() if name not in elsewhere}
    kind = given.pop("rope_type", None) or given.pop("type", None) or "default"
    given.pop("type", None)
    kind = "default" if kind == "mrope" else kind
    if kind in ("longrope", "su"):
        return _longrope(theta, given, hf)
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
        "yarn": {"factor": "factor", "original_max_position_embeddings": "original_positions"},
    }.get(str(kind))
    if keys is None:
        raise AssayError(
            f"config.json: rope type {kind!r} is not implemented; "
            "allowed: 'default', 'dynamic', 'linear', 'llama3', 'longrope', 'yarn'"
        )
    if kind == "yarn":
        stated = {n: v for n, v in given.items() if v is not None and (n, v) != ("truncate", True)}
        given = _YARN | stated
        equal = bool(given.get("mscale")) and given["mscale"] == given.get("mscale_all_dim")
        if equal:  # the attention factor is their quotient
            del given["mscale"], given["mscale_all_dim"]
        if "attention_factor" not in given and "factor" in given:
            log = 0.0 if equal else math.log(max(positive(given, "factor"), 1.0))
            given["attention_factor"] = 0.1 * log + 1
        keys |= {
            "beta_fast": "high_freq_factor",
            "beta_slow": "low_freq_factor",
            "attention_factor": "attention_factor",
        }
    if set(given) != set(keys):
        raise AssayError(
            f"config.json: rope type {kind!r} has {sorted(given)}; allowed: exactly "
            f"{sorted(keys) or 'no other'}"
        )
    if kind == "dynamic":  # only acts beyond max_position_embeddings, which is refused
        kind, keys = "default", {}
    numbers: Fields = {field: positive(given, name) for name, field in keys.items()}
    if "original_positions" in numbers:
        numbers["original_positions"] = integer(given, "original_max_position_embeddings")
    return Rope(theta=theta, kind=kind, **numbers)


def _longrope(theta: float, given: Json, hf: Json) -> Rope:
    """That of Phi-3 within the positions before scaling, where the short factors divide."""
    name = "original_max_position_embeddings"
    known = {"short_factor", "long_factor", "factor", "attention_factor", name}
    if not {"short_factor", "long_factor"} <= set(given) <= known:
        raise AssayError(
            f"config.json: rope type 'longrope' has {sorted(given)}; allowed: {sorted(known)}"
        )
    # As transformers, which prefers the outer one: of a Phi-3 it is 4096 where a file has none.
    outer = {name: 4096} if hf.get("model_type") == "phi3" else {}
    original = integer({**given, **outer, **hf}, name)
    factor = positive(
        {"factor": number(hf, "max_position_embeddings") / original, **given}, "factor"
    )
    scale = math.sqrt(1 + math.log(max(factor, 1.0)) / math.log(original))
    if given.get("attention_factor") is not None:
        scale = positive(given, "attention_factor")
    return Rope(
        theta=theta,
        kind="longrope",
        original_positions=original,
        attention_factor=scale,
        divisors=tuple(
            positive({"short_factor": d}, "short_factor") for d in given["short_factor"]
        ),
    )
