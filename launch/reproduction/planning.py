"""What a reproduction would take: bytes, disk, memory and hours, from shapes alone."""

import dataclasses
import sys
from collections.abc import Sequence

import jax

from configs import known_shapes
from configs.known_models import ModelSpec
from engine.errors import AssayError
from engine.planning import machines, memory
from engine.planning.machines import Devices, free_disk
from engine.planning.memory import in_words
from engine.planning.plans import Plan, Subject, plan
from engine.planning.work import Named, SearchWork, SweepWork
from launch.common.durations import in_hours
from launch.common.subjects import subject_of
from launch.reproduction import results, sources
from launch.reproduction.asked import CONVERT, ITEMS, LOGPROBS, SEARCH, SWEEP, Asked
from launch.reproduction.readings import Reading

_PREFIX, _OWN = 64, 3  # positions of a prompt and of a candidate with what closes its turn
_ITEM = 4  # more positions of an item than of a token
_ROW_BYTES = 8  # of a row of a result
_PART = 1.05  # what checkpoints and caches take beside the tensors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
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
      seconds: of all stages, for each of the devices; None where it does not fit.
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


def steps(asked: Asked, readings: Sequence[Reading], devices: Sequence[Devices]) -> list[Step]:
    """One step per model that was asked for."""
    there = results.complete(asked)
    return [_step(asked, spec, readings, devices, there) for spec in asked.models]


def _step(
    asked: Asked,
    spec: ModelSpec,
    readings: Sequence[Reading],
    devices: Sequence[Devices],
    there: set[results.Place],
) -> Step:
    subject = subject_of(spec.slug, known_shapes.config_json(spec), spec)
    item = 4 if spec.dtype == "float32" else 2
    expected = memory.checkpoint_bytes(subject.config, subject.heads[0], item)
    folder = sources.folder_of(asked, spec)
    weights = [path.stat().st_size for path in folder.glob("*.safetensors")] if folder else []
    size = sum(weights) or spec.tensor_bytes or expected
    todo = []
    for stage in asked.stages_of(spec):
        places = results.wanted(asked, spec, stage, readings)
        todo.append((stage, len([p for p in places if p not in there]), len(places)))
    left = any(missing for _, missing, _ in todo) or (asked.runs(CONVERT) and not todo)
    made = asked.checkpoint(spec).exists()
    needed = left and not made
    plans = [_plan(asked, subject, one) for one in devices]
    return Step(
        spec=spec,
        tokens=subject.config.vocab_size,
        fetch=size - sources.fetched_bytes(asked, spec, size) if needed else 0,
        known=bool(weights) or spec.tensor_bytes is not None,
        checkpoint=int(size * _PART) if needed else 0,
        host=memory.host_bytes(subject.config, subject.heads[0], item, blocks=2),
        absent=needed and asked.source_dir is not None and folder is None,
        todo=todo,
        plans=plans,
        seconds=[_seconds(asked, subject, one, todo, len(readings)) for one in plans],
    )


def _plan(asked: Asked, subject: Subject, devices: Devices) -> Plan:
    own = asked.config.search
    search = SearchWork(
        prefix=_PREFIX,
        suffix=_OWN - 1,
        length=own.length,
        candidates=own.candidates,
        steps=own.steps,
        attempts=own.restarts * (2 if own.direction == "both" else 1),
        packed=own.length > 1,
    )
    named = Named(dtype=None if asked.config.dtype == "auto" else asked.config.dtype)
    return plan(subject, devices, SweepWork(prefix=_PREFIX, own=_OWN), search, named)


def _seconds(
    asked: Asked, subject: Subject, one: Plan, todo: Sequence[tuple[str, int, int]], readings: int
) -> float | None:
    """Seconds of the stages that are not complete, by the time of one sweep."""
    if not one.fits or one.sweep_s is None:
        return None
    total = 0.0
    for stage, missing, of in todo:
        if stage in (SWEEP, LOGPROBS):
            total += missing * one.sweep_s
        if stage == ITEMS and asked.elo is not None:
            share = len(asked.elo.replies) / subject.config.vocab_size * (_OWN + _ITEM) / _OWN
            total += missing * share * one.sweep_s
        if stage == SEARCH and one.search is not None:
            total += missing / of * (one.search.seconds or 0.0)
    return total


def at_hand() -> list[Devices]:
    """The devices of this machine.

    Raises:
      AssayError: they are of a kind that is not known.
    """
    found = jax.devices()
    if found[0].platform == "cpu":
        return machines.parse("cpu")
    said = found[0].device_kind.upper().replace(" ", "")
    kinds = [k for k in machines.KINDS.values() if k.name.partition("-")[0].upper() in said]
    stats = found[0].memory_stats() or {}
    limit = stats.get("bytes_limit", 0)
    if not kinds:
        raise AssayError(
            f"devices here are {found[0].device_kind!r}, of which nothing is known; "
            "allowed: --devices=<count>x<kind>, as for `assay plan`"
        )
    kind = min(kinds, key=lambda k: abs(k.memory_bytes * k.usable - limit))
    return machines.parse(f"{len(found)}x{kind.name}")


@dataclasses.dataclass(frozen=True)
class Disk:
    """Bytes that a reproduction takes at its peak, with either --keep, and what is free."""

    keep_all: int
    keep_none: int
    free: int | None

    def needed(self, keep: str) -> int:
        """Bytes at the peak."""
        return self.keep_all if keep == "all" else self.keep_none


def disk(asked: Asked, planned: Sequence[Step]) -> Disk:
    """The peak of the root's disk: checkpoints, results, and downloads if they go there too.

    With --keep=none they do, and those of a model stay while a stage that --only leaves out may
    need them.
    """
    found, elsewhere = free_disk(asked.root), _is_elsewhere(asked)
    shared = [step.checkpoint + (0 if elsewhere else step.fetch) for step in planned]
    stays: list[int] = []
    goes = [0]
    for step in planned:
        partly = asked.stages_of(step.spec) != asked.all_stages_of(step.spec)
        (stays if partly else goes).append(step.checkpoint + step.fetch)
    rows = sum(
        missing * step.tokens
        for step in planned
        for stage, missing, _ in step.todo
        if stage in (SWEEP, LOGPROBS)
    )
    written = rows * _ROW_BYTES
    return Disk(
        keep_all=sum(shared) + written,
        keep_none=sum(stays) + max(goes) + written,
        free=None if found is None else found.free,
    )


def _is_elsewhere(asked: Asked) -> bool:
    """Whether the hub's cache is on another disk than the root."""
    found, own = free_disk(asked.root), free_disk(sources.cache())
    return found is not None and own is not None and found.number != own.number


def check_sources(asked: Asked, planned: Sequence[Step]) -> None:
    """Says which models have no folder in --source-dir; they fail, and the others are computed.

    Raises:
      AssayError: none of the models has a folder.
    """
    absent = [step.spec for step in planned if step.absent]
    if absent and len(absent) == len(planned):
        raise sources.refusal(asked, absent[0])
    if absent:
        print(
            f"--source-dir={asked.source_dir}: no folder of {len(absent)} of {len(planned)} "
            f"models: {', '.join(spec.nickname for spec in absent)}",
            file=sys.stderr,
            flush=True,
        )


def check_disk(asked: Asked, planned: Sequence[Step]) -> None:
    """Refuses a reproduction for which the disk of the root, or of the hub's cache, has no room.

    Raises:
      AssayError: it has not; the line says whether --keep=none would do.
    """
    _check_cache(asked, planned)
    found = disk(asked, planned)
    needed = found.needed(asked.keep)
    if not asked.config.check_memory or found.free is None or needed <= found.free:
        return
    way = "a larger disk, or fewer --models"
    if asked.keep == "all" and found.keep_none <= found.free:
        way = f"--keep=none, which needs {in_words(found.keep_none)}"
    raise AssayError(
        f"--root={asked.root}: {in_words(needed)} of disk are needed with --keep={asked.keep}, "
        f"{in_words(found.free)} are free; allowed: {way}; --config.check_memory=false starts "
        "anyway"
    )


def _check_cache(asked: Asked, planned: Sequence[Step]) -> None:
    if asked.keep == "none" or not asked.config.check_memory or not _is_elsewhere(asked):
        return
    fetched, free = sum(step.fetch for step in planned), free_disk(sources.cache())
    if free is not None and fetched > free.free:
        raise AssayError(
            f"{sources.cache()}: {in_words(fetched)} of disk are needed for downloads, "
            f"{in_words(free.free)} are free; allowed: HF_HUB_CACHE on a larger disk, fewer "
            "--models, or --keep=none, which downloads below --root; "
            "--config.check_memory=false starts anyway"
        )


def text(asked: Asked, readings: Sequence[Reading], planned: Sequence[Step]) -> str:
    """The table of --plan, which a person can act on."""
    names = [one.devices.name for one in planned[0].plans] if planned else []
    head = (
        "model",
        "fetch",
        "checkpoint",
        "memory to convert",
        "on a device",
        "to compute",
        *names,
    )
    lines = [
        f"planned below {asked.root}: {len(asked.rewards)} reward models and "
        f"{len(asked.languages)} language models, nothing is done",
        f"stages: {', '.join(asked.stages)}",
        f"readings of a reward model: {'; '.join(reading.name for reading in readings)}",
        "",
        *_aligned([head, *(_row(step) for step in planned), _total(planned)]),
        "",
        "*: expected from the model's shapes; the others are the bytes of the published tensors",
        *_disk_lines(asked, planned),
        *_not_planned(asked, planned),
        *_assumed(planned),
    ]
    return "\n".join(lines)


def _row(step: Step) -> tuple[str, ...]:
    mark = "" if step.known else "*"
    fetch = f"{in_words(step.fetch)}{mark}" if step.fetch else "–"
    made = f"{in_words(step.checkpoint)}{mark}" if step.checkpoint else "–"
    todo = [f"{stage} {missing}/{of}" for stage, missing, of in step.todo if missing]
    times = [_time(one, seconds) for one, seconds in zip(step.plans, step.seconds, strict=True)]
    return (
        step.spec.nickname,
        fetch,
        made,
        in_words(step.host) if step.checkpoint else "–",
        in_words(step.plans[0].account.total) if step.plans else "–",
        ", ".join(todo) or "complete already",
        *times,
    )


def _time(one: Plan, seconds: float | None) -> str:
    return f"too large; {one.would_fit} would do" if seconds is None else _short(seconds)


def _short(seconds: float) -> str:
    return in_hours(seconds) if seconds >= 1 else "< 1 s"


def _total(planned: Sequence[Step]) -> tuple[str, ...]:
    times = []
    for index in range(len(planned[0].plans) if planned else 0):
        each = [step.seconds[index] for step in planned]
        known = [seconds for seconds in each if seconds is not None]
        some = (
            ""
            if len(known) == len(each)
            else f" ({len(known)} of {len(each)} models; the others do not fit)"
        )
        times.append(_short(sum(known)) + some if known else "none fits")
    fetched, made = (sum(getattr(s, name) for s in planned) for name in ("fetch", "checkpoint"))
    return ("in all", in_words(fetched), in_words(made), "", "", "", *times)


def _disk_lines(asked: Asked, planned: Sequence[Step]) -> list[str]:
    found = disk(asked, planned)
    free = "unknown" if found.free is None else in_words(found.free)
    lines = [
        f"disk at its peak: {in_words(found.keep_all)} with --keep=all, "
        f"{in_words(found.keep_none)} with --keep=none; free at {asked.root}: {free}",
        f"downloads go to {sources.cache()}, with --keep=none below {asked.root}",
    ]
    if found.free is not None and found.needed(asked.keep) > found.free:
        other = found.keep_none <= found.free and asked.keep == "all"
        way = "--keep=none fits" if other else "use a larger disk, or fewer --models"
        lines.append(f"that does not fit with --keep={asked.keep}: {way}")
    return lines


def _not_planned(asked: Asked, planned: Sequence[Step]) -> list[str]:
    """What a complete reproduction needs and was not given."""
    absent = [step.spec.nickname for step in planned if step.absent]
    lines = [f"no folder in --source-dir: {', '.join(absent)}"] if absent else []
    if asked.elo is None and asked.runs(ITEMS):
        lines.append("EloEverything: not planned; --elo=<csv of the authors' release> adds it")
    if not asked.config.second_dtype:
        lines.append(
            "noise between dtypes: not planned; --config.second_dtype=float32 (on a CPU: bfloat16) "
            "adds it"
        )
    return lines


def _assumed(planned: Sequence[Step]) -> list[str]:
    lines = []
    for one in planned[0].plans if planned else ():
        kind = one.devices.kind
        lines.append(
            f"{one.devices.name}: {in_words(kind.memory_bytes)} each; a sweep is assumed to reach "
            f"{kind.share:.0%} of its speed ({kind.source}); times leave out compilation, "
            "loading and the download"
        )
    return lines


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
