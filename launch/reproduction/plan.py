"""What a reproduction would take: bytes, disk, memory and hours, from shapes alone."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax

from configs import known_shapes
from configs.known_models import ModelSpec
from engine.errors import AssayError
from engine.planning import machines, memory
from engine.planning.free import free_disk
from engine.planning.machines import Devices
from engine.planning.memory import Model, in_words
from engine.planning.plans import Plan, plan
from engine.planning.work import SearchWork, SweepWork
from engine.runs import schema
from launch.common import searching
from launch.common.subjects import subject_of
from launch.common.text import aligned, in_hours, say
from launch.reproduction import runs, singles, sources
from launch.reproduction.call import ALL, NOISE, Call, Stage

_PREFIX, _CANDIDATE = 64, 3  # positions of a prompt and of a candidate with what closes its turn
_ITEM = 4  # more positions of an item than of a token
_ROW_BYTES = 8  # of a row of a result
_PART = 1.05  # what checkpoints and caches take beside the tensors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needs:
    """What one model takes.

    Attributes:
      spec: the model.
      tokens: of its vocabulary.
      fetch: bytes to download; 0 for a folder, or where they are in the cache already.
      known: whether a folder or the registry states the bytes; otherwise estimated from the shapes.
      checkpoint: bytes of the checkpoint that is to be made.
      host: bytes of memory to convert it.
      absent: whether it has work left for which --source-dir lacks its folder.
      todo: stages that are not complete, each with the results that it lacks and has in all.
      plans: for each of the devices.
      seconds: of all stages, for each of the devices; None where it does not fit, NaN where the
        speed in that dtype is not known.
      noise_s: of them, those of the second dtype; None where it does not fit in that.
      tries_s: of them, those of the stage `readings`, at the most.
    """

    spec: ModelSpec
    tokens: int
    fetch: int
    known: bool
    checkpoint: int
    host: int
    absent: bool
    todo: Sequence[tuple[str, int, int]]
    plans: Sequence[Plan]
    seconds: Sequence[float | None]
    noise_s: Sequence[float | None]
    tries_s: Sequence[float]


def needs(call: Call, devices: Sequence[Devices]) -> list[Needs]:
    """What each model takes."""
    there = runs.complete(call)
    return [_needs(call, spec, devices, there) for spec in call.models]


def _needs(
    call: Call, spec: ModelSpec, devices: Sequence[Devices], there: set[runs.Place]
) -> Needs:
    subject = subject_of(spec.slug, known_shapes.config_json(spec), spec)
    folder = sources.folder_of(call, spec)
    weights = [path.stat().st_size for path in folder.glob("*.safetensors")] if folder else []
    expected = memory.checkpoint_bytes(subject)
    size = sum(weights) or spec.tensor_bytes or expected
    places = {stage: runs.wanted(call, spec, stage) for stage in call.stages_of(spec)}
    missing = {stage: [p for p in places[stage] if p not in there] for stage in places}
    left = any(missing.values()) or (Stage.CONVERT in call.stages and not places)
    needed = left and not call.checkpoint(spec).exists()
    plans = [_plan(call, subject, one) for one in devices]
    tries = missing.get(Stage.READINGS, [])
    others = [place for stage in missing if stage != Stage.READINGS for place in missing[stage]]
    noise = [place for place in others if place[0] == NOISE]
    noise_s = [_noise_s(call, subject, one, noise) for one in plans]
    tries_s = [_tries_s(call, subject, one, tries) for one in plans]
    first = [place for place in others if place[0] != NOISE]
    seconds = [_seconds(call, subject, one, first) for one in plans]
    return Needs(
        spec=spec,
        tokens=subject.config.vocab_size,
        fetch=size - sources.fetched_bytes(call, spec, size) if needed else 0,
        known=bool(weights) or spec.tensor_bytes is not None,
        checkpoint=int(size * _PART) if needed else 0,
        host=memory.host_bytes(subject),
        absent=needed and call.source_dir is not None and folder is None,
        todo=[(stage, len(missing[stage]), len(places[stage])) for stage in places],
        plans=plans,
        seconds=[
            None if one is None else one + (second or 0.0) + tried
            for one, second, tried in zip(seconds, noise_s, tries_s, strict=True)
        ],
        noise_s=noise_s,
        tries_s=tries_s,
    )


def _plan(call: Call, subject: Model, devices: Devices, dtype: str = "auto") -> Plan:
    search = call.config.search
    work = SearchWork(
        prefix=_PREFIX,
        suffix=_CANDIDATE - 1,
        length=search.length,
        candidates=search.candidates,
        attempts=search.restarts * (2 if search.direction == "both" else 1),
        merged=max(0, searching.in_dtype(search, "float32").merge - 1),
        packed=search.length > 1,
    )
    chosen = call.config.dtype if dtype == "auto" else dtype
    sweep = SweepWork(prefix=_PREFIX, own=_CANDIDATE)
    return plan(subject, devices, sweep, work, None if chosen == "auto" else chosen)


def _seconds(call: Call, subject: Model, one: Plan, places: Sequence[runs.Place]) -> float | None:
    """Seconds of missing results but searches; None: it does not fit; NaN: not predicted."""
    if not one.fits:
        return None
    if one.sweep_s is None:
        return math.nan if places else 0.0
    items = 0 if call.elo is None else len(call.elo.replies)
    share = items / subject.config.vocab_size * (_CANDIDATE + _ITEM) / _CANDIDATE
    each = {
        schema.SCORES_DIR: one.sweep_s,
        schema.LOGPROBS_DIR: one.sweep_s,
        schema.ITEMS_DIR: share * one.sweep_s,
        schema.SEQUENCES_DIR: 0.0,
    }
    return sum(each[path.partition("/")[0]] for _, path in places)


def _noise_s(call: Call, subject: Model, one: Plan, places: Sequence[runs.Place]) -> float | None:
    """Seconds of the results in the second dtype that are missing; None where it does not fit."""
    if not places:
        return 0.0
    second = _plan(call, subject, one.devices, call.config.second_dtype)
    return _seconds(call, subject, second, places)


def _tries_s(call: Call, subject: Model, one: Plan, places: Sequence[runs.Place]) -> float:
    """Seconds of the stage `readings`, at the most; without dtypes that do not fit or are unknown.

    The dtype of the run itself is no single change.
    """
    total = 0.0
    for dtype in dict.fromkeys(singles.dtype_in(run) for run, _ in places if one.fits):
        if dtype != one.model.dtype:
            of_dtype = [place for place in places if singles.dtype_in(place[0]) == dtype]
            in_dtype = one if dtype is None else _plan(call, subject, one.devices, dtype)
            total += _seconds(call, subject, in_dtype, of_dtype) or 0.0
    return total


def at_hand() -> list[Devices]:
    """The devices of this machine.

    Raises:
      AssayError: they are of a kind that is not known.
    """
    devices = jax.devices()
    if devices[0].platform == "cpu":
        return machines.parse("cpu")
    said = devices[0].device_kind.upper().replace(" ", "")
    kinds = [k for k in machines.KINDS.values() if k.name.partition("-")[0].upper() in said]
    stats = devices[0].memory_stats() or {}
    limit = stats.get("bytes_limit", 0)
    if not kinds:
        raise AssayError(
            f"devices here are {devices[0].device_kind!r}, of which nothing is known; "
            "allowed: --devices=<count>x<kind>, as for `assay plan`"
        )
    kind = min(kinds, key=lambda k: abs(k.memory_bytes * k.usable - limit))
    return machines.parse(f"{len(devices)}x{kind.name}")


@dataclasses.dataclass(frozen=True)
class Disk:
    """Bytes that a reproduction takes at its peak, with either --keep, and what is free."""

    all: int
    none: int
    free: int | None

    def needed(self, keep: str) -> int:
        """Bytes at the peak."""
        return self.all if keep == "all" else self.none


def disk(call: Call, every: Sequence[Needs]) -> Disk:
    """The peak of the root's disk: checkpoints, results, and downloads if they go there too.

    With --keep=none they do, and those of a model stay while a stage that --only leaves out may
    need them. A model without a folder in --source-dir takes none.
    """
    every = [one for one in every if not one.absent]
    place, elsewhere = free_disk(call.root), _is_elsewhere(call)
    stays, goes = 0, 0
    for one in every:
        if call.stages_of(one.spec) != call.all_stages_of(one.spec):
            stays += one.checkpoint + one.fetch
        else:
            goes = max(goes, one.checkpoint + one.fetch)
    swept = (Stage.SWEEP, Stage.LOGPROBS, Stage.READINGS)
    rows = sum(n * one.tokens for one in every for stage, n, _ in one.todo if stage in swept)
    written = rows * _ROW_BYTES
    return Disk(
        all=sum(one.checkpoint + (0 if elsewhere else one.fetch) for one in every) + written,
        none=stays + goes + written,
        free=None if place is None else place.free,
    )


def _is_elsewhere(call: Call) -> bool:
    """Whether the hub's cache is on another disk than the root."""
    root, cache = free_disk(call.root), free_disk(sources.cache())
    return root is not None and cache is not None and root.number != cache.number


def check(call: Call, every: Sequence[Needs]) -> None:
    """Refuses a reproduction that cannot begin; names models without a folder in --source-dir.

    Raises:
      AssayError: none of the models has a folder, or the disk of the root, or of the hub's cache,
        has no room; the line says whether --keep=none would do.
    """
    absent = [one.spec for one in every if one.absent]
    if absent and len(absent) == len(every):
        raise sources.refusal(call, absent[0])
    if absent:
        say(
            f"--source-dir={call.source_dir}: no folder of {len(absent)} of {len(every)} "
            f"models: {', '.join(spec.nickname for spec in absent)}"
        )
    if not call.config.check_memory:
        return
    fetched, cache = sum(one.fetch for one in every), free_disk(sources.cache())
    if call.keep == "all" and _is_elsewhere(call) and cache and fetched > cache.free:
        raise AssayError(
            f"{sources.cache()}: {in_words(fetched)} of disk are needed for downloads, "
            f"{in_words(cache.free)} are free; allowed: HF_HUB_CACHE on a larger disk, fewer "
            "--models, or --keep=none, which downloads below --root; "
            "--config.check_memory=false starts anyway"
        )
    room = disk(call, every)
    if room.free is not None and room.needed(call.keep) > room.free:
        way = "a larger disk, or fewer --models"
        if call.keep == "all" and room.none <= room.free:
            way = f"--keep=none, which needs {in_words(room.none)}"
        raise AssayError(
            f"--root={call.root}: {in_words(room.needed(call.keep))} of disk are needed with "
            f"--keep={call.keep}, {in_words(room.free)} are free; allowed: {way}; "
            "--config.check_memory=false starts anyway"
        )


def table(call: Call, every: Sequence[Needs]) -> str:
    """The table of --plan, which a person can act on."""
    plans = every[0].plans if every else []
    head = ("model", "fetch", "checkpoint", "memory to convert", "on a device", "to compute")
    rows = [(*head, *(one.devices.name for one in plans))]
    lines = [
        f"planned below {call.root}: {len(call.rewards)} reward models and "
        f"{len(call.languages)} language models, nothing is done",
        f"stages: {', '.join(call.stages)}",
        f"readings of a reward model: {'; '.join(call.runs.values())}",
        "",
        *aligned([*rows, *(_row(call, one) for one in every), _total(every)]),
        "",
        "*: expected from the model's shapes; the others are the bytes of the published tensors",
        *_disk_lines(call, every),
        *_noise_lines(call, every),
    ]
    if any(stage == Stage.READINGS and n for one in every for stage, n, _ in one.todo):
        which = (
            "of every model" if call.tried == ALL else ("of models and prompts whose values differ")
        )
        times = ", ".join(_on_devices(every, lambda one: one.tries_s))
        lines.append(
            f"readings: one of the paper's conventions changed at a time, {which}; up to about "
            f"{times}, counted in the times above; --readings=none leaves them out"
        )
    if absent := [one.spec.nickname for one in every if one.absent]:
        lines.append(f"no folder in --source-dir: {', '.join(absent)}")
    if call.elo is None and Stage.ITEMS in call.stages:
        lines.append("EloEverything: not planned; --elo=<csv of the authors' release> adds it")
    if not call.config.second_dtype:
        lines.append(
            "noise between dtypes: not planned; --config.second_dtype=float32 (on a CPU: bfloat16) "
            "adds it"
        )
    for one in plans:
        kind = one.devices.kind
        lines.append(
            f"{one.devices.name}: {in_words(kind.memory_bytes)} each; a sweep is assumed to reach "
            f"{kind.share:.0%} of its speed ({kind.source}); times leave out searches, "
            "compilation, loading and the download"
        )
    return "\n".join(lines)


def _row(call: Call, one: Needs) -> tuple[str, ...]:
    mark = "" if one.known else "*"
    todo = [
        f"readings up to about {missing}" if stage == Stage.READINGS else f"{stage} {missing}/{of}"
        for stage, missing, of in one.todo
        if missing
    ]
    if not todo and one.todo:
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
    times = []
    for index in range(len(every[0].plans) if every else 0):
        each = [one.seconds[index] for one in every if one.todo]
        known = [seconds for seconds in each if seconds is not None]
        some = f" ({len(known)} of {len(each)} models; the others do not fit)"
        some = "" if len(known) == len(each) else some
        nothing = "none fits" if each else "–"
        times.append(_short(sum(known)) + some if known else nothing)
    fetched, made = (sum(getattr(one, name) for one in every) for name in ("fetch", "checkpoint"))
    return ("in all", in_words(fetched), in_words(made), "", "", "", *times)


def _disk_lines(call: Call, every: Sequence[Needs]) -> list[str]:
    room = disk(call, every)
    free = "unknown" if room.free is None else in_words(room.free)
    lines = [
        f"disk at its peak: {in_words(room.all)} with --keep=all, "
        f"{in_words(room.none)} with --keep=none; free at {call.root}: {free}",
        f"downloads go to {sources.cache()}, with --keep=none below {call.root}",
    ]
    if room.free is not None and room.needed(call.keep) > room.free:
        fits = room.none <= room.free and call.keep == "all"
        way = "--keep=none fits" if fits else "use a larger disk, or fewer --models"
        lines.append(f"that does not fit with --keep={call.keep}: {way}")
    return lines


def _noise_lines(call: Call, every: Sequence[Needs]) -> list[str]:
    """What the results in the second dtype take, of those that are missing."""
    second, lines = call.config.second_dtype, []
    if not second:
        return []
    for index, time in enumerate(_on_devices(every, lambda one: one.noise_s)):
        large = [one.spec.nickname for one in every if one.noise_s[index] is None]
        over = f"; too large in it, so that this fails for {', '.join(large)}" if large else ""
        lines.append(
            f"noise between dtypes: the paper's conventions in {second} too, {time}, counted in "
            f"the times above{over}"
        )
    return lines


def _on_devices(every: Sequence[Needs], of: Callable[[Needs], Sequence[float | None]]) -> list[str]:
    """`5.1 h on 8xH100` of all models, for each of the devices."""
    names = [one.devices.name for one in every[0].plans] if every else []
    return [
        f"{_short(sum(filter(None, (of(one)[index] for one in every))))} on {name}"
        for index, name in enumerate(names)
    ]
