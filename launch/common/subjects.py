"""The model of a config.json, as `engine.planning` takes it."""

from typing import Any

from configs.known_models import ModelSpec
from engine.convert.hf_config import decoder_config, is_language_model, output_config
from engine.convert.hf_values import Json
from engine.models.heads import HeadConfig
from engine.planning.plans import Subject

_GATE_WIDTH = 1024  # of the published gates


def subject_of(name: str, hf: Json, spec: ModelSpec | None) -> Subject:
    """The model that a config.json describes.

    The file does not give the head: it is that of `spec`, or a linear one.

    Args:
      name: of the model, for messages.
      hf: config.json.
      spec: its entry in configs/known_models.py.

    Raises:
      AssayError: config.json is not understood.
    """
    decoder = decoder_config(hf)
    stored = hf.get("torch_dtype") or hf.get("dtype")
    if stored not in ("float32", "bfloat16", "float16"):
        stored = spec.dtype if spec else "bfloat16"
    if is_language_model(hf):
        return Subject(name, decoder, (output_config(hf, decoder),), str(stored))
    kind = spec.head if spec else "linear"
    sizes: dict[str, Any] = {}  # Any: fields of HeadConfig are of several types
    if kind != "linear":  # as the published heads; config.json does not give them
        sizes = {"hidden": decoder.width if kind == "mlp" else _GATE_WIDTH}
    if kind in ("gated", "urm"):
        sizes |= {"hidden_in": _GATE_WIDTH, "objectives": tuple(map(str, range(19)))}
    if kind == "gated":
        sizes |= {"gate_layers": 4, "quantiles": 19}
    head = HeadConfig(
        kind=kind, depth=decoder.num_layers, width=decoder.width, rms_eps=decoder.rms_eps, **sizes
    )
    return Subject(name, decoder, (head,), str(stored))
