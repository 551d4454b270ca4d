"""What `assay plan` says of a model: bytes of its weights, keys and values, and of a step."""

import dataclasses
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from configs import known_models
from engine.checkpoint.card import CARD, Checkpoint
from engine.convert.hf_config import text_model
from engine.convert.hub import fetch_config
from engine.convert.safetensors import read_json
from engine.display import aligned, in_words
from engine.errors import AssayError, prefixed
from engine.mesh import build_mesh
from engine.planning import (
    DeviceRoom,
    Model,
    SweepWork,
    account,
    checkpoint_bytes,
    fitting_step,
    host_bytes,
    refusal,
)
from engine.runs import storage
from engine.scoring.reward_passes import dtype_named
from engine.settings import AUTO, check_integer
from engine.sources.convert import model_of_config
from engine.sources.resolve import RULE, hub_id

_AXES = {"cpu": (1,), "gpu": (1, 2, 4, 8), "tpu": (1, 2, 4, 8)}  # devices along the axis `model`


def model_of_source(source: str) -> Model:
    """The model of a source; raises AssayError where it is none, or a malformed one."""
    if storage.exists(storage.path_of(source) / CARD):
        return Model.of([Checkpoint.open(source)])
    spec, path = known_models.find(source), Path(source).expanduser()
    if path.is_file() or path.is_dir():
        folder, file = (path, path / "config.json") if path.is_dir() else (path.parent, path)
        with prefixed(folder if path.is_dir() else source):
            if (folder / "adapter_config.json").is_file() and not file.exists():
                raise AssayError("an adapter without a config.json; name its base instead")
            hf = text_model(read_json(file))
    elif spec is not None:
        hf = spec.config_json()
    elif on_hub := hub_id(source):
        hf = fetch_config(*on_hub)
    else:
        raise AssayError(
            f"source={source!r}; {RULE}; or a config.json, or a model of `assay models`"
        )
    with prefixed(source):
        return model_of_config(path.name, hf, spec)


# Any: what JSON holds.
def planned(config: ConfigDict, source: str) -> tuple[str, dict[str, Any]]:
    """The table of one model, and what it says for --json."""
    model = model_of_source(source)
    decoder, step = model.config, None if config.step_size == AUTO else config.step_size
    check_integer("self_check", config.self_check, 1)
    if step is not None:
        check_integer("step_size", step, 1)
    for name in ("prefix", "own"):
        if not 1 <= config[name] <= decoder.max_positions:
            most = f"{decoder.max_positions}, the model's longest"
            raise AssayError(f"{name}={config[name]}; allowed: 1 to {most}")
    sizes = {name: config[name] for name in ("prefix", "own", "self_check")}
    work = SweepWork(step_size=step, **sizes)
    dtype = None if config.dtype == AUTO else str(dtype_named(config.dtype))
    rooms = [DeviceRoom(kind, 1, size) for kind, sizes in _AXES.items() for size in sizes]
    divided = decoder.num_heads, decoder.ffn_width, decoder.delta_key_heads  # by the axis `model`
    rows = [
        _row(model, room, dtype, work)
        for room in rooms
        if not any(width % room.model for width in divided)
        and (decoder.shares_prefix or room.model == 1)
    ]
    here = DeviceRoom.of(build_mesh())
    placed = model.on(here, dtype)
    step = fitting_step(placed, work)
    reason = refusal(placed, dataclasses.replace(work, step_size=step))
    facts = {
        "model": model.name,
        "host_bytes": host_bytes(model),
        "disk_bytes": 2 * checkpoint_bytes(model),
        "sweep": dataclasses.asdict(work),
        "rows": rows,
        "here": {"platform": here.platform, "free_bytes": here.usable, "fits": not reason},
    }
    verdict = reason or f"fits, with a step of {step:,} ({in_words(here.usable)} are free)"
    return f"{_text(model, work, rows)}\n\nhere ({here.platform}): {verdict}", facts


def _row(model: Model, room: DeviceRoom, dtype: str | None, work: SweepWork) -> dict[str, Any]:
    """Bytes that a device of a kind needs, with the step that `auto` takes on it."""
    placed = model.on(room, dtype)
    work = dataclasses.replace(work, step_size=fitting_step(placed, work))
    needed = account(placed, work)
    return {
        "device": room.platform,
        "mesh_model": room.model,
        "dtype": placed.dtype,
        "step_size": work.step_size,
        "device_bytes": dataclasses.asdict(needed) | {"total": needed.total},
    }


def _text(model: Model, work: SweepWork, rows: list[dict[str, Any]]) -> str:
    weights, config = in_words(checkpoint_bytes(model)), model.config
    table = [
        ["device", "mesh.model", "dtype", "weights", "keys, values", "step", "takes", "in all"]
    ]
    for row in rows:
        held = {name: in_words(size) for name, size in row["device_bytes"].items()}
        cells = [row["device"], str(row["mesh_model"]), row["dtype"], held["weights"]]
        table.append([*cells, held["prefix"], f"{row['step_size']:,}", held["step"], held["total"]])
    lines = [
        f"{model.name}: {config.num_layers} layers of width {config.width:,}, "
        f"{config.vocab_size:,} tokens, {weights} of weights in {model.stored}",
        f"converting it: {in_words(host_bytes(model))} of host memory; {weights} of disk "
        f"for the source and {weights} for the checkpoint",
        f"each device needs, with prompts of {work.prefix} positions and candidates of "
        f"{work.own}:\n",
    ]
    return "\n".join([*lines, *aligned(table)])
