"""The model of a checkpoint, a folder, a hub id or a config.json, as `engine.planning` takes it."""

from pathlib import Path
from typing import Any

from configs import known_models, known_shapes
from configs.known_models import ModelSpec
from configs.prompts import PROMPTS
from engine.checkpoint.card import CARD, Checkpoint
from engine.convert.hf_config import decoder_config, is_language_model, output_config, text_model
from engine.convert.hf_values import Json
from engine.convert.hub import fetch_config
from engine.convert.safetensors import read_json
from engine.errors import AssayError, prefixed
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.planning.memory import Model
from engine.runs import storage
from engine.scoring.batches import whole_length
from launch.common.sources import RULE, hub_id

_PREFIX, _POSITIONS = 64, 3  # positions, where no template is at hand and the model is not listed
_GATE_WIDTH = 1024  # of the published gates


def model_of_source(source: str) -> tuple[Model, int, int]:
    """The model of a source, and the positions of its prompts and of a candidate."""
    if storage.exists(storage.path_of(source) / CARD):
        return model_of_checkpoint(Checkpoint.open(source))
    spec, path = known_models.find(source), Path(source).expanduser()
    if path.is_file() or path.is_dir():
        folder, file = (path, path / "config.json") if path.is_dir() else (path.parent, path)
        with prefixed(folder if path.is_dir() else source):
            _check_adapter(folder, file)
            hf = text_model(read_json(file))
    elif spec is not None:
        hf = known_shapes.config_json(spec)
    elif named := hub_id(source):
        hf = fetch_config(*named)
    else:
        raise AssayError(
            f"source={source!r}; {RULE}; or a config.json, or a model of `assay models`"
        )
    positions = _POSITIONS if spec is None else known_shapes.own_positions(spec)
    with prefixed(source):
        return model_of_config(path.name, hf, spec), _PREFIX, positions


def model_of_checkpoint(checkpoint: Checkpoint) -> tuple[Model, int, int]:
    """The model of a checkpoint, and the positions of its prompts and of a candidate."""
    model = Model.of([checkpoint])
    if not checkpoint.tokenizer.chat_template:
        return model, _PREFIX, _POSITIONS
    template = checkpoint.template
    prompts = [template.around(template.probe(text)) for text in PROMPTS.values()]
    longest = max(len(prompt.prefix) for prompt in prompts)
    return model, whole_length(longest), 1 + max(len(prompt.suffix) for prompt in prompts)


def _check_adapter(folder: Path, config: Path) -> None:
    """Raises AssayError for a folder of a PEFT adapter without the config.json of its base."""
    adapter = folder / "adapter_config.json"
    if adapter.is_file() and not config.exists():
        base = read_json(adapter).get("base_model_name_or_path") or "<its base>"
        raise AssayError(
            f"an adapter (adapter_config.json) and no config.json: `assay plan --source={base}` "
            "plans its base, which takes as much memory as both, merged"
        )


def model_of_config(name: str, hf: Json, spec: ModelSpec | None) -> Model:
    """The model that a config.json describes.

    The file does not give the head: it is that of a listed model's `spec`, or a linear one.
    """
    decoder = decoder_config(hf)
    stored = hf.get("torch_dtype") or hf.get("dtype")
    if stored not in ("float32", "bfloat16", "float16"):
        stored = spec.dtype if spec else "bfloat16"
    language = is_language_model(hf) and not (spec and spec.head)
    head = output_config(hf, decoder) if language else _head(decoder, spec)
    return Model(name=name, config=decoder, heads=(head,), stored=str(stored))


def _head(decoder: DecoderConfig, spec: ModelSpec | None) -> HeadConfig:
    """The head of a listed model, with the sizes of published ones; a linear one of another."""
    kind = spec.head if spec else "linear"
    sizes: dict[str, Any] = {}  # Any: fields of HeadConfig are of several types
    if kind != "linear":
        sizes = {"hidden": decoder.width if kind == "mlp" else _GATE_WIDTH}
    if kind in ("gated", "urm"):
        sizes |= {"hidden_in": _GATE_WIDTH, "objectives": tuple(map(str, range(19)))}
    if kind == "gated":
        sizes |= {"gate_layers": 4, "quantiles": 19}
    return HeadConfig(
        kind=kind,
        depth=decoder.num_layers,
        width=decoder.width,
        rms_eps=decoder.rms_eps,
        norm=decoder.norm,
        **sizes,
    )
