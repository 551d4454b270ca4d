"""Says whether a model fits on a machine, and how long it would take. See configs/plan.py.

Nothing is loaded. Memory follows from the model's shapes; times from the speed that a maker states,
and the share of it that a sweep is assumed to reach. They leave out imports, compilation, and
reading the weights from disk.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags
from absl.flags import FlagValues
from ml_collections import ConfigDict

from configs import known_models, known_shapes
from configs.prompts import PROMPTS
from engine.checkpoint.card import CARD, Checkpoint
from engine.convert.hub import fetch_config
from engine.convert.safetensors import read_json
from engine.errors import AssayError, prefixed
from engine.planning import machines, plans
from engine.planning.memory import in_words
from engine.planning.plans import Plan, SearchPlan, Subject
from engine.planning.work import Named, SearchWork, SweepWork
from engine.runs import storage
from engine.scoring.reward_passes import PREFIX_MULTIPLE, dtype_named
from launch.common import command, scoring
from launch.common.subjects import subject_of
from launch.common.text import in_hours

_PREFIX, _OWN = 64, 3  # positions, where no template is at hand and the model is not listed
_UNKNOWN = "not predicted"
_SLOWER = (
    "; by its compiler a product in float16 takes {} times as long as in bfloat16: "
    "--config.dtype=bfloat16 is faster, but rounds weights that are stored in float16"
)


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    define = [define_flags]
    return command.run("plan", argv, report, doc=__doc__, define=define, config="plan")


def define_flags(given: FlagValues) -> None:
    """Defines --source, --devices, --prompts, --price and --json."""
    source = (
        "A checkpoint, a folder in Hugging Face format, a config.json, a model of `assay models`, "
        "or a hub id, of which config.json is downloaded."
    )
    devices = (
        "Devices, comma-separated, each of which gets a line: 8xH100-80GB, v5e-16 (chips), "
        "cpu-64GB, or cpu for this machine, of which the free memory and the speed are measured."
    )
    flags.DEFINE_string("source", None, source, flag_values=given)
    flags.DEFINE_string("devices", None, devices, flag_values=given)
    flags.DEFINE_integer("prompts", 3, "Prompts whose vocabulary is swept.", flag_values=given)
    flags.DEFINE_float("price", None, "Price of one device for one hour.", flag_values=given)
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.", flag_values=given)


def report(given: command.Given) -> str:
    """Flags -> settings -> one plan for each of the devices."""
    source = command.paths(given, "source")[0]
    asked = machines.parse(command.paths(given, "devices")[0])
    if given.prompts < 1:
        raise AssayError(f"prompts={given.prompts}; allowed: integers >= 1")
    if given.price is not None and not 0 <= given.price < 1e9:
        raise AssayError(f"price={given.price}; allowed: numbers >= 0")
    subject, prefix, own = _subject(source)
    _check(given.config, subject.config.max_positions)
    named = _named(given.config)
    sweep = _sweep(given.config, given.prompts, prefix, own)
    search = _search(given.config, sweep)
    for devices in asked:
        _check_mesh(subject, devices, named)
    found = [plans.plan(subject, devices, sweep, search, named) for devices in asked]
    if given.json:
        searched = None if found[0].model.language else dataclasses.asdict(search)
        work = {"sweep": dataclasses.asdict(sweep), "search": searched}
        rows = [_fields(one, given.price) for one in found]
        return json.dumps({"model": subject.name, **work, "plans": rows})
    return _text(subject, sweep, search, found, given.price)


def _subject(source: str) -> tuple[Subject, int, int]:
    """The model, and the positions of its prompts and of a candidate."""
    spec = known_models.find(source)
    folder = storage.path_of(source)
    if storage.exists(folder / CARD):
        return _of_checkpoint(Checkpoint.open(source))
    path = Path(source)
    if path.is_file() or path.is_dir():
        named = path / "config.json" if path.is_dir() else path
        with prefixed(named.parent if path.is_dir() else source):
            hf = read_json(named)
    elif spec is not None:
        hf = known_shapes.config_json(spec)
    elif source.count("/") == 1 and not source.startswith((".", "/", "~")):
        hf = fetch_config(source)
    else:
        raise AssayError(
            f"source={source!r}; allowed: a checkpoint, a model folder, a config.json, a model of "
            "`assay models`, or a hub id owner/name"
        )
    own = _OWN if spec is None else known_shapes.own_positions(spec)
    with prefixed(source):
        return subject_of(Path(source).name, hf, spec), _PREFIX, own


def _of_checkpoint(checkpoint: Checkpoint) -> tuple[Subject, int, int]:
    card = checkpoint.card
    subject = Subject(card.slug, card.decoder, (card.head,), card.dtype)
    if not checkpoint.tokenizer.chat_template:
        return subject, _PREFIX, _OWN
    prompts = [checkpoint.template.around(text) for text in PROMPTS.values()]
    longest = max(len(prompt.prefix) for prompt in prompts)
    padded = -(-longest // PREFIX_MULTIPLE) * PREFIX_MULTIPLE
    return subject, padded, 1 + max(len(prompt.suffix) for prompt in prompts)


def _check(config: ConfigDict, most: int) -> None:
    """Checks the settings; `most` is the longest conversation that the model takes."""
    for name in ("length", "candidates", "steps", "restarts", "self_check", "part_size"):
        if config[name] < 1:
            raise AssayError(f"{name}={config[name]}; allowed: integers >= 1")
    if config.merge < 0 or config.merge == 1:
        raise AssayError(f"merge={config.merge}; allowed: 0, or integers >= 2")
    for name, least in (("prefix", 0), ("own", 0), ("length", 1)):
        if not least <= config[name] <= most:
            allowed = f"{least} to {most}, the model's longest"
            raise AssayError(f"{name}={config[name]}; allowed: {allowed}")
    if config.direction not in ("max", "min", "both"):
        raise AssayError(f"direction={config.direction!r}; allowed: 'max', 'min', 'both'")


def _named(config: ConfigDict) -> Named:
    dtype = None if config.dtype == "auto" else str(dtype_named(config.dtype))
    return Named(dtype=dtype, model_axis=config.mesh.model or None)


def _sweep(config: ConfigDict, prompts: int, prefix: int, own: int) -> SweepWork:
    """The sweep, where `prefix` and `own` are the template's."""
    return SweepWork(
        prompts=prompts,
        prefix=config.prefix or prefix,
        own=config.own or own,
        step_size=scoring.step_size(config.step_size),
        self_check=config.self_check,
        part_size=config.part_size,
    )


def _search(config: ConfigDict, sweep: SweepWork) -> SearchWork:
    return SearchWork(
        prefix=sweep.prefix,
        suffix=sweep.own - 1,
        length=config.length,
        candidates=config.candidates,
        steps=config.steps,
        attempts=config.restarts * (2 if config.direction == "both" else 1),
        merged=max(0, min(config.merge, config.candidates) - 1),
        packed=config.length > 1,
    )


def _check_mesh(subject: Subject, devices: machines.Devices, named: Named) -> None:
    allowed = list(plans.splits(subject.config, devices.count))
    if named.model_axis is not None and named.model_axis not in allowed:
        raise AssayError(
            f"mesh.model={named.model_axis} of {devices.name}; allowed: "
            f"{', '.join(map(str, allowed))}"
        )


def _text(
    subject: Subject,
    sweep: SweepWork,
    search: SearchWork,
    found: Sequence[Plan],
    price: float | None,
) -> str:
    first, config = found[0], subject.config
    weights = first.disk_bytes / 2
    lines = [
        f"{subject.name}: {config.num_layers} layers of width {config.width:,}, "
        f"{config.vocab_size:,} tokens, {in_words(weights)} of weights in {subject.dtype}",
        f"converting it: {in_words(first.host_bytes)} of host memory; {in_words(weights)} of disk "
        f"for the source and {in_words(weights)} for the checkpoint",
        f"planned: {_planned(first.model.language, sweep, search)}",
        "",
    ]
    header = ["devices", "fits", "mesh", "step", "dtype", "a device needs", "sweep"]
    header += ["search", "its mesh", *(["cost"] if price is not None else [])]
    rows = [tuple(header), *(_row(one, price) for one in found)]
    if first.model.language:  # no step of candidates, and no search
        rows = [(*row[:3], *row[4:7], *row[9:]) for row in rows]
        rows[0] = tuple("log-probabilities" if cell == "sweep" else cell for cell in rows[0])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines.append("")
    lines += [
        f"{one.devices.name}: too small; {one.would_fit} would fit" for one in found if not one.fits
    ]
    lines += [note for one in found if (note := _idle(one, sweep))]
    lines += dict.fromkeys(_said(one) for one in found)
    return "\n".join(lines)


def _planned(language: bool, sweep: SweepWork, search: SearchWork) -> str:
    if language:
        return f"log-probabilities of {sweep.prompts} prompts ({sweep.prefix} positions)"
    return (
        f"a sweep of {sweep.prompts} prompts ({sweep.prefix} positions, then {sweep.own} of each "
        f"candidate) and a search of {search.steps} steps ({search.attempts} times "
        f"{search.candidates} candidates of {search.length} tokens"
        + (f" and {search.merged} that merge the best)" if search.merged else ")")
    )


def _row(one: Plan, price: float | None) -> tuple[str, ...]:
    cells = [
        one.devices.name,
        "yes" if one.fits else "no",
        _mesh(one),
        f"{one.step_size:,}",
        one.model.dtype,
        f"{in_words(one.account.total)} of {in_words(one.usable_bytes)}",
    ]
    if one.fits:
        cells += [_seconds(one.sweep_s), *_searched(one)]
        cells += [] if price is None else [_money(_cost(one, price))]
    return (*cells, *[""] * (9 + (price is not None) - len(cells)))


def _searched(one: Plan) -> tuple[str, str]:
    """Time and mesh of a search."""
    if one.search is None:
        return "", ""
    if one.search.account.total > one.usable_bytes:
        return f"needs {in_words(one.search.account.total)}", ""
    return _seconds(one.search.seconds), _mesh(one.search)


def _mesh(one: Plan | SearchPlan) -> str:
    return f"{one.model.data}x{one.model.model}"


def _said(one: Plan) -> str:
    kind, dtype = one.devices.kind, one.model.dtype
    memory = f"{kind.name}: {in_words(one.usable_bytes)} of {in_words(kind.memory_bytes)} usable"
    if not kind.predicts(dtype):
        return (
            f"{memory}; times in {dtype} are not predicted: they depend on instructions that the "
            f"CPU may have or lack; --devices=cpu measures them where it runs ({kind.source})"
        )
    share = (
        "" if one.share is None else f", of which this sweep is assumed to reach {one.share:.0%}"
    )
    slower = "" if dtype != "float16" or kind.float16_times == 1 else _SLOWER
    return (
        f"{memory}; {kind.peak(dtype) / 1e12:,.3g} TFLOP/s in {dtype}{share}, and "
        f"{kind.bytes_per_s / 1e12:,.3g} TB/s of memory ({kind.source})"
        f"{slower.format(kind.float16_times)}"
    )


def _idle(one: Plan, sweep: SweepWork) -> str:
    """Which part size would keep devices busy that parts of this size leave idle."""
    larger = plans.better_part_size(one.model, sweep, one.step_size)
    if not one.fits or larger is None:
        return ""
    count, vocab = one.model.data * one.step_size, one.model.config.vocab_size
    fewer = plans.steps_of(vocab, count, larger) / plans.steps_of(vocab, count, sweep.part_size)
    would = "" if one.sweep_s is None else f", {_seconds(one.sweep_s * fewer)}"
    return (
        f"{one.devices.name}: a step has {count:,} candidates and a part {sweep.part_size:,} rows, "
        f"so devices idle; --config.part_size={larger} of a new run takes {fewer:.0%} of the "
        f"sweep's steps{would}"
    )


def _cost(one: Plan, price: float) -> float | None:
    if one.sweep_s is None:
        return None
    searched = 0.0 if one.search is None else one.search.seconds or 0.0
    return (one.sweep_s + searched) / 3600 * price * one.devices.count


def _money(cost: float | None) -> str:
    return _UNKNOWN if cost is None else f"{cost:,.2f}"


# Any: values of several types.
def _fields(one: Plan, price: float | None) -> dict[str, Any]:
    return {
        "devices": one.devices.name,
        "fits": one.fits,
        "mesh": {"data": one.model.data, "model": one.model.model},
        "step_size": one.step_size,
        "dtype": one.model.dtype,
        "device_bytes": dataclasses.asdict(one.account) | {"total": one.account.total},
        "usable_bytes": one.usable_bytes,
        "host_bytes": one.host_bytes,
        "disk_bytes": one.disk_bytes,
        "sweep_s": one.sweep_s,
        **_search_fields(one.search),
        "cost": None if price is None or not one.fits else _cost(one, price),
        "would_fit": one.would_fit,
        "assumed": _said(one),
    }


# Any: values of several types.
def _search_fields(one: SearchPlan | None) -> dict[str, Any]:
    if one is None:
        return {"search_s": None}
    return {
        "search_s": one.seconds,
        "search_floor_s": one.floor_s,
        "search_mesh": {"data": one.model.data, "model": one.model.model},
        "search_bytes": one.account.total,
    }


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return _UNKNOWN
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.1 else in_hours(seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
