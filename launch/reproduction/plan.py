"""What a reproduction would take: bytes, disk, memory and hours, from shapes alone."""

import dataclasses
import math
from collections.abc import Sequence

from configs import known_shapes
from configs.known_models import ModelSpec
from engine.errors import AssayError
from engine.planning import memory
from engine.planning.fitting import Plan, plan
from engine.planning.machines import SHARES, Devices, free_disk
from engine.planning.memory import Model, SweepWork, in_words
from launch.common.planned_models import model_of_config
from launch.common.text import aligned, in_hours
from launch.reproduction import readings, runs, sources
from launch.reproduction.call import NOISE, Call, Stage

_PREFIX, _CANDIDATE = 64, 3  # positions of a prompt and of a candidate with what closes its turn
_ROW_BYTES = 8  # of a row of a result
_PART = 1.05  # what checkpoints and caches take beside the tensors
_SWEPT = (Stage.SWEEP, Stage.LOGPROBS, Stage.READINGS)  # with a row for every token


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needs:
    """What one model takes."""

    spec: ModelSpec
    fetch: int  # bytes to download; 0 for a folder, or where they are in the cache already
    # Whether a folder or the registry states the bytes; otherwise estimated from the shapes.
    known: bool
    checkpoint: int  # bytes of the checkpoint that is to be made
    written: int  # bytes of its missing results
    host: int  # bytes of memory to convert it
    absent: bool  # whether it has work left for which --source-dir lacks its folder
    # Stages, each with the results that it lacks and has in all; of readings at the most.
    todo: Sequence[tuple[str, int, int]]
    plans: Sequence[Plan]  # for each of the devices
    # Of all sweeps, for each of the devices; None where the model does not fit, NaN where the speed
    # in a dtype is not known.
    seconds: Sequence[float | None]


def needs(call: Call, devices: Sequence[Devices]) -> list[Needs]:
    """What each model takes."""
    there = runs.complete(call)
    return [_needs(call, spec, devices, there) for spec in call.models]


def _needs(
    call: Call, spec: ModelSpec, devices: Sequence[Devices], there: set[runs.RunPath]
) -> Needs:
    model = model_of_config(spec.slug, known_shapes.config_json(spec), spec)
    folder = sources.folder_of(call, spec)
    weights = [path.stat().st_size for path in folder.glob("*.safetensors")] if folder else []
    size = sum(weights) or spec.tensor_bytes or memory.checkpoint_bytes(model)
    places = {stage: runs.wanted(call, spec, stage) for stage in call.stages_of(spec)}
    missing = {stage: {*places[stage]} - there for stage in places}
    todo = {stage: (len(missing[stage]), len(places[stage])) for stage in places}
    if Stage.READINGS in places and readings.done(call, spec) is None:
        todo[Stage.READINGS] = (readings.at_most(call) * len(call.prompts),) * 2
    needed = any(lacks for lacks, _ in todo.values())
    needed |= Stage.CONVERT in call.stages and not places
    needed &= not call.checkpoint(spec).exists()
    swept = sum(todo[stage][0] for stage in _SWEPT if stage in todo)
    second = sum(run == NOISE for stage in _SWEPT for run, _ in missing.get(stage, ()))
    plans = [_plan(model, one, call.config.dtype) for one in devices]
    return Needs(
        spec=spec,
        fetch=size if needed and not sources.is_fetched(call, spec) else 0,
        known=bool(weights) or spec.tensor_bytes is not None,
        checkpoint=int(size * _PART) if needed else 0,
        written=swept * model.config.vocab_size * _ROW_BYTES,
        host=memory.host_bytes(model),
        absent=needed and call.source_dir is not None and folder is None,
        todo=[(stage, *counts) for stage, counts in todo.items()],
        plans=plans,
        seconds=[_seconds(call, model, one, swept - second, second) for one in plans],
    )


def _plan(model: Model, devices: Devices, dtype: str) -> Plan:
    """The sweeps on some devices, without searches."""
    sweep = SweepWork(prefix=_PREFIX, own=_CANDIDATE)
    return plan(model, devices, sweep, None, None if dtype == "auto" else dtype)


def _seconds(call: Call, model: Model, one: Plan, swept: int, second: int) -> float | None:
    """Seconds of sweeps in the run's dtype and in the second one, if the model fits in it too."""
    if not one.fits:
        return None
    works = [(swept, one)]
    if second:
        works.append((second, _plan(model, one.devices, call.config.second_dtype)))
    fitting = [(n, p.sweep_s) for n, p in works if n and p.fits]
    return sum(math.nan if time is None else n * time for n, time in fitting)


def disk(call: Call, every: Sequence[Needs], keep: str) -> int:
    """Bytes of the root's disk at the peak: checkpoints, results, downloads if they go there too.

    With keep="none" models go one after the other, but for those that a stage outside of --only
    may need. A model without a folder in --source-dir takes none.
    """
    places = (call.root, sources.hub_cache()) if keep == "all" else ()
    elsewhere = len({free_disk(place)[0] for place in places}) == 2
    stays, goes = 0, 0
    for one in every:
        size = 0 if one.absent else one.checkpoint + (0 if elsewhere else one.fetch)
        if keep == "all" or call.stages_of(one.spec) != call.all_stages_of(one.spec):
            stays += size
        else:
            goes = max(goes, size)
    return stays + goes + sum(one.written for one in every if not one.absent)


def check(call: Call, every: Sequence[Needs]) -> None:
    """Refuses a reproduction that cannot begin. Downloads are checked one by one when they begin.

    Raises:
      AssayError: none of the models has a folder in --source-dir, or the root's disk has no room;
        the line says what --keep=none needs.
    """
    if every and all(one.absent for one in every):
        raise sources.refusal(call, every[0].spec)
    (_, free), needed = free_disk(call.root), disk(call, every, call.keep)
    if call.config.check_memory and needed > free:
        raise AssayError(
            f"--root={call.root}: {in_words(needed)} of disk are needed with --keep={call.keep}, "
            f"{in_words(free)} are free; allowed: a larger disk, fewer --models, or "
            f"--keep=none, which needs {in_words(disk(call, every, 'none'))}; "
            "--config.check_memory=false starts anyway"
        )


def table(call: Call, every: Sequence[Needs]) -> str:
    """The table of --plan, which a person can act on."""
    plans = every[0].plans if every else []
    head = ("model", "fetch", "checkpoint", "memory to convert", "on a device", "to compute")
    rows = [(*head, *(one.devices.name for one in plans))]
    free = in_words(free_disk(call.root)[1])
    lines = [
        f"planned below {call.root}: {len(call.rewards)} reward models and "
        f"{len(call.languages)} language models, nothing is done",
        f"stages: {', '.join(call.stages)}",
        f"readings of a reward model: {'; '.join(call.runs.values())}",
        "",
        *aligned([*rows, *(_row(call, one) for one in every), _total(every)]),
        "",
        "*: expected from the model's shapes; the others are the bytes of the published tensors",
        f"disk at its peak: {in_words(disk(call, every, 'all'))} with --keep=all, "
        f"{in_words(disk(call, every, 'none'))} with --keep=none; free at {call.root}: {free}",
        f"downloads go to {sources.hub_cache()}, with --keep=none below {call.root}",
    ]
    if Stage.READINGS in call.stages:
        lines.append("readings are counted at the most; --readings=none leaves them out")
    if call.elo is None and Stage.ITEMS in call.stages:
        lines.append("EloEverything: not planned; --elo=<csv of the authors' release> adds it")
    if not call.config.second_dtype:
        lines.append(
            "noise between dtypes: not planned; --config.second_dtype=float32 (on a CPU: bfloat16) "
            "adds it"
        )
    for one in plans:
        devices = one.devices
        lines.append(
            f"{devices.name}: {in_words(devices.memory_bytes)} each; a sweep is assumed to reach "
            f"{SHARES[devices.platform]:.0%} of its speed ({devices.source}); times leave out "
            "items, searches, compilation, loading and the download"
        )
    return "\n".join(lines)


def _row(call: Call, one: Needs) -> tuple[str, ...]:
    mark = "" if one.known else "*"
    todo = [
        f"readings up to about {n}" if stage == Stage.READINGS else f"{stage} {n}/{of}"
        for stage, n, of in one.todo
        if n
    ]
    if one.absent:
        todo = ["no folder in --source-dir"]
    elif not todo and one.todo:
        todo = ["complete already"]
    elif not todo:
        converts = Stage.CONVERT if one.checkpoint else "converted already"
        todo = [converts if Stage.CONVERT in call.stages else "nothing to compute"]
    times = [
        "–" if not one.todo else f"too large; {p.would_fit} would do" if s is None else _short(s)
        for p, s in zip(one.plans, one.seconds, strict=True)
    ]
    return (
        one.spec.nickname,
        f"{in_words(one.fetch)}{mark}" if one.fetch else "–",
        f"{in_words(one.checkpoint)}{mark}" if one.checkpoint else "–",
        in_words(one.host) if one.checkpoint else "–",
        in_words(one.plans[0].account.total) if one.plans else "–",
        ", ".join(todo),
        *times,
    )


def _short(seconds: float) -> str:
    if math.isnan(seconds):
        return "not predicted"
    return in_hours(seconds) if seconds >= 1 else "< 1 s"


def _total(every: Sequence[Needs]) -> tuple[str, ...]:
    """The sums; of times, over the models that fit."""
    times = []
    for each in zip(*(one.seconds for one in every if one.todo), strict=True):
        fitting = [seconds for seconds in each if seconds is not None]
        some = f" ({len(fitting)} of {len(each)} models; the others do not fit)"
        times.append(_short(sum(fitting)) + ("" if len(fitting) == len(each) else some))
    fetched, made = (sum(getattr(one, name) for one in every) for name in ("fetch", "checkpoint"))
    nothing = ["–"] * len(every[0].plans if every else ())
    return ("in all", in_words(fetched), in_words(made), "", "", "", *(times or nothing))
