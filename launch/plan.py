"""Says whether a model fits on a machine, and how long a sweep would take. See configs/plan.py.

Nothing is loaded. Memory follows from the model's shapes. A time is the operations of a sweep over
an assumed share of the speed that a maker states: it leaves out imports, compilation, and reading
the weights from disk.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from engine.errors import AssayError
from engine.planning import machines, memory
from engine.planning.fitting import Plan, plan
from engine.planning.memory import Model, SearchWork, SweepWork, in_words
from engine.scoring.reward_passes import dtype_named
from engine.settings import check_choice, check_integer
from launch.common import command, scoring
from launch.common.planned_models import model_of_source
from launch.common.text import aligned, in_hours

_FLAGS = {
    "source": (
        [],
        "A checkpoint, a folder in Hugging Face format, a config.json, a model of `assay models`, "
        "or a hub id, of which config.json is downloaded; or several, comma-separated.",
    ),
    "devices": (
        None,
        "Devices, comma-separated, each of which gets a line: 8xH100-80GB, v5e-16 (chips), "
        "cpu-64GB, or cpu for this machine's, with its free memory. By default those of this "
        "machine.",
    ),
    "prompts": (3, "Prompts whose vocabulary is swept.", None, None),
}
_SLOWER = (
    "; TPUs have no matrix units for float16: --config.dtype=bfloat16 is faster, but rounds "
    "weights that are stored in float16"
)


def report(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> of each model one plan for each of the devices, as a table."""
    devices = machines.parse(given.devices or machines.here())
    planned = [_planned(given, source, devices) for source in command.paths(given, "source")]
    texts, facts = zip(*planned, strict=True)
    every = facts[0] if len(facts) == 1 else {"models": facts}
    return command.CommandResult("\n\n".join(texts), lambda: every)


# Any: what JSON holds.
def _planned(
    given: command.Given, source: str, devices: Sequence[machines.Devices]
) -> tuple[str, dict[str, Any]]:
    """The table of one model, and what it says for --json."""
    config = given.config
    model, prefix, positions = model_of_source(source)
    _check(config, given.prompts, model.config.max_positions)
    sweep = SweepWork(
        prompts=given.prompts,
        prefix=config.prefix or prefix,
        own=config.own or positions,
        step_size=scoring.step_size(config.step_size),
        self_check=config.self_check,
        part_size=config.part_size,
    )
    search = (
        None
        if model.language
        else SearchWork(
            prefix=sweep.prefix,
            own=config.length + sweep.own - 1,
            length=config.length,
            candidates=config.candidates,
            attempts=config.restarts * (2 if config.direction == "both" else 1),
            packed=config.length > 1,
        )
    )
    dtype = None if config.dtype == "auto" else str(dtype_named(config.dtype))
    plans = [plan(model, one, sweep, search, dtype, config.mesh.model) for one in devices]
    works = {"sweep": dataclasses.asdict(sweep), "search": search and dataclasses.asdict(search)}
    facts = {"model": model.name, **works, "plans": [_fields(one) for one in plans]}
    return _text(model, sweep, search, plans), facts


def _check(config: ConfigDict, prompts: int, most: int) -> None:
    """Checks the settings; `most` is the longest conversation that the model takes."""
    check_integer("prompts", prompts, 1)
    for name in ("length", "candidates", "restarts", "self_check", "part_size"):
        check_integer(name, config[name], 1)
    for name in ("prefix", "own", "length"):
        if not 0 <= config[name] <= most:
            raise AssayError(f"{name}={config[name]}; allowed: 0 to {most}, the model's longest")
    check_choice("direction", config.direction, ("max", "min", "both"))


def _fields(one: Plan) -> dict[str, object]:
    return {
        "devices": one.devices.name,
        "fits": one.fits,
        "mesh": {"data": one.model.data, "model": one.model.model},
        "step_size": one.step_size,
        "dtype": one.model.dtype,
        "device_bytes": dataclasses.asdict(one.account) | {"total": one.account.total},
        "usable_bytes": one.devices.usable_bytes,
        "host_bytes": memory.host_bytes(one.model),
        "disk_bytes": 2 * memory.checkpoint_bytes(one.model),
        "sweep_s": one.sweep_s,
        "search_bytes": one.search_bytes,
        "search_mesh": one.searched and {"data": one.searched.data, "model": one.searched.model},
        "would_fit": one.would_fit,
        "assumed": _assumed(one),
    }


def _text(model: Model, sweep: SweepWork, search: SearchWork | None, plans: Sequence[Plan]) -> str:
    weights, config = in_words(memory.checkpoint_bytes(model)), model.config
    header = ["devices", "fits", "mesh", "step", "dtype", "a device needs", "sweep", "a search"]
    rows = [header, *map(_row, plans)]
    if search:
        planned = (
            f"a sweep of {sweep.prompts} prompts ({sweep.prefix} positions, then {sweep.own} of "
            f"each candidate) and a search ({search.attempts} times {search.candidates} candidates "
            f"of {search.length} tokens)"
        )
    else:  # a language model has no step of candidates
        planned = f"log-probabilities of {sweep.prompts} prompts ({sweep.prefix} positions)"
        header[6] = "log-probabilities"
        rows = [[*row[:3], *row[4:7]] for row in rows]
    lines = [
        f"{model.name}: {config.num_layers} layers of width {config.width:,}, "
        f"{config.vocab_size:,} tokens, {weights} of weights in {model.stored}",
        f"converting it: {in_words(memory.host_bytes(model))} of host memory; {weights} of disk "
        f"for the source and {weights} for the checkpoint",
        f"planned: {planned}\n",
        *aligned(rows),
        "",
    ]
    for one in plans:
        name, count = one.devices.name, one.model.data * one.step_size
        if not one.fits:
            lines.append(f"{name}: too small; {one.would_fit} would fit")
        elif count > sweep.part_size and not model.language:
            lines.append(
                f"{name}: a step has {count:,} candidates and a part {sweep.part_size:,} rows, so "
                f"devices idle; --config.part_size={count} of a new run fills them"
            )
    return "\n".join([*lines, *dict.fromkeys(map(_assumed, plans))])


def _row(one: Plan) -> list[str]:
    model, searched, usable = one.model, one.searched, one.devices.usable_bytes
    cells = [one.devices.name, "yes" if one.fits else "no", f"{model.data}x{model.model}"]
    cells += [f"{one.step_size:,}", model.dtype]
    cells.append(f"{in_words(one.account.total)} of {in_words(usable)}")
    if not one.fits:
        return [*cells, "", ""]
    cells.append(_time(one.sweep_s))
    mesh = searched and f"{searched.data}x{searched.model}"
    where = f"on {mesh}" if one.search_bytes <= usable else "is too much"
    return [*cells, f"{in_words(one.search_bytes)} {where}"]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "not predicted"
    return f"{1e3 * seconds:.2g} ms" if seconds < 0.1 else in_hours(seconds)


def _assumed(one: Plan) -> str:
    """What of a kind of device is stated and assumed."""
    devices, dtype = one.devices, one.model.dtype
    memory_of_one = f"{in_words(devices.usable_bytes)} of {in_words(devices.memory_bytes)} usable"
    said = f"{devices.kind}: {memory_of_one}; "
    if (peak := devices.peaks.get(dtype)) is None:
        return f"{said}times in {dtype} are not predicted: they depend on the CPU's instructions"
    slower = _SLOWER if dtype == "float16" and devices.platform == "tpu" else ""
    return (
        f"{said}{peak / 1e12:,.3g} TFLOP/s in {dtype} ({devices.source}), of which a sweep is "
        f"assumed to reach {machines.SHARES[devices.platform]:.0%}{slower}"
    )


COMMAND = command.Command("plan", report, __doc__, [_FLAGS], "source")
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
