"""Whether what bears a listed model's name has that model's kind and shapes.

Conversion itself refuses other tensors, and other bytes than are published.
"""

from configs import known_shapes
from configs.known_models import ModelSpec
from engine.convert.hf_config import decoder_config, is_language_model
from engine.convert.hf_values import Json
from engine.errors import AssayError

# Field of the decoder -> its name in config.json.
_NAMES = {
    "width": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "ffn_width": "intermediate_size",
    "vocab_size": "vocab_size",
}
_ALLOWED = "allowed: that model's own files, or a folder of another name"


def check_config(place: str, hf: Json, spec: ModelSpec) -> None:
    """Compares a config.json with the published shapes of the model that a folder is named after.

    Args:
      place: the folder or hub id.
      hf: config.json, which conversion understands.
      spec: the model's entry in configs/known_models.py.

    Raises:
      AssayError: kind or shapes differ.
    """
    if is_language_model(hf) == bool(spec.head):
        kinds = ("a reward model", "a language model")
        mine, theirs = kinds if is_language_model(hf) else kinds[::-1]
        raise AssayError(
            f"{place}: config.json is that of {theirs}; {spec.hub_id} is {mine}; {_ALLOWED}"
        )
    published = known_shapes.config_json(spec)
    found, listed = decoder_config(hf), decoder_config(published)
    expected = {name: getattr(listed, field) for field, name in _NAMES.items()}
    expected["vocab_size"] = known_shapes.rows(spec)
    has = {name: getattr(found, field) for field, name in _NAMES.items()}
    if hf["model_type"] != published["model_type"]:
        has = {"model_type": hf["model_type"]}
        expected = {"model_type": published["model_type"]}
    other = [name for name in has if expected[name] not in (None, has[name])]
    if other:
        raise AssayError(
            f"{place}: config.json has {_listed(other, has)}; "
            f"{spec.hub_id} has {_listed(other, expected)}; {_ALLOWED}"
        )


def _listed(names: list[str], values: Json) -> str:
    return ", ".join(f"{name}={values[name]}" for name in names)
