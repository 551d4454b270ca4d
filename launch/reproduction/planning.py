"""What a reproduction would take: bytes, disk, memory and hours, from shapes alone."""

import dataclasses
import sys
from collections.abc import Sequence

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
from launch.reproduction import results, sources, trials
from launch.reproduction.asked import (
    CONVERT,
    ITEMS,
    LOGPROBS,
    READINGS,
    SWEEP,
    Asked,
)
from launch.reproduction.readings import NOISE, Reading

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
    expected = memory.checkpoint_bytes(subject)
    folder = sources.folder_of(asked, spec)
    weights = [path.stat().st_size for path in folder.glob("*.safetensors")] if folder else []
    size = sum(weights) or spec.tensor_bytes or expected
    todo, first, tries, noise = [], [], [], []
    for stage in asked.stages_of(spec):
        places = results.wanted(asked, spec, stage, readings)
        missing = [place for place in places if place not in there]
        todo.append((stage, len(missing), len(places)))
        tries += missing if stage == READINGS else []
        second = [place for place in missing if place[0] == NOISE]
        first.append((stage, len(missing) - len(second), len(places)))
        noise += second
    left = any(missing for _, missing, _ in todo) or (asked.runs(CONVERT) and not todo)
    made = asked.checkpoint(spec).exists()
    needed = left and not made
    plans = [_plan(asked, subject, one) for one in devices]
    tries_s = [_tries_s(asked, subject, one, tries) for one in plans]
    noise_s = [_noise_s(asked, subject, one, noise) for one in plans]
    seconds = [_seconds(asked, subject, one, first) for one in plans]
    return Step(
        spec=spec,
        tokens=subject.config.vocab_size,
        fetch=size - sources.fetched_bytes(asked, spec, size) if needed else 0,
        known=bool(weights) or spec.tensor_bytes is not None,
        checkpoint=int(size * _PART) if needed else 0,
        host=memory.host_bytes(subject),
        absent=needed and asked.source_dir is not None and folder is None,
        todo=todo,
        plans=plans,
        seconds=[
            None if own is None else own + (second or 0.0) + tried
            for own, second, tried in zip(seconds, noise_s, tries_s, strict=True)
        ],
        noise_s=noise_s,
        tries_s=tries_s,
    )


def _plan(asked: Asked, subject: Model, devices: Devices, dtype: str = "auto") -> Plan:
    own = asked.config.search
    search = SearchWork(
        prefix=_PREFIX,
        suffix=_OWN - 1,
        length=own.length,
        candidates=own.candidates,
        attempts=own.restarts * (2 if own.direction == "both" else 1),
        merged=max(0, searching.in_dtype(own, "float32").merge - 1),
        packed=own.length > 1,
    )
    chosen = asked.config.dtype if dtype == "auto" else dtype
    sweep = SweepWork(prefix=_PREFIX, own=_OWN)
    return plan(subject, devices, sweep, search, None if chosen == "auto" else chosen)


def _seconds(
    asked: Asked, subject: Model, one: Plan, todo: Sequence[tuple[str, int, int]]
) -> float | None:
    """Seconds of the stages that are not complete, by the time of one sweep.

    Those of `_tries_s` and `_noise_s`, and of searches, are left out.
    """
    if not one.fits or one.sweep_s is None:
        return None
    total = 0.0
    for stage, missing, _ in todo:
        if stage in (SWEEP, LOGPROBS):
            total += missing * one.sweep_s
        if stage == ITEMS:
            total += missing * _share(asked, subject) * one.sweep_s
    return total


def _share(asked: Asked, subject: Model) -> float:
    """What the items take of the time of a sweep."""
    items = 0 if asked.elo is None else len(asked.elo.replies)
    return items / subject.config.vocab_size * (_OWN + _ITEM) / _OWN


def _noise_s(
    asked: Asked, subject: Model, one: Plan, places: Sequence[results.Place]
) -> float | None:
    """Seconds of the results in the second dtype that are missing; None where it does not fit."""
    if not places:
        return 0.0
    own = _plan(asked, subject, one.devices, asked.config.second_dtype)
    if not own.fits or own.sweep_s is None:
        return None
    return _sweeps(asked, subject, places) * own.sweep_s


def _sweeps(asked: Asked, subject: Model, places: Sequence[results.Place]) -> float:
    """How many sweeps results of vocabularies and lists take."""
    share = _share(asked, subject)
    return sum(1.0 if schema.SCORES_DIR in path else share for _, path in places)


def _tries_s(asked: Asked, subject: Model, one: Plan, tries: Sequence[results.Place]) -> float:
    """Seconds of the stage `readings`, at the most; without dtypes that do not fit or are unknown.

    Args:
      asked: the call.
      subject: the model.
      one: of the devices.
      tries: the results of the stage that are missing.
    """
    total = 0.0
    for dtype, places in _by_dtype(tries).items():
        own = one if dtype is None else _plan(asked, subject, one.devices, dtype)
        known = own.fits and own.sweep_s is not None and one.fits
        if not known or dtype == one.model.dtype:  # the dtype of the run is no other reading
            continue
        total += _sweeps(asked, subject, places) * (own.sweep_s or 0.0)
    return total


def _by_dtype(tries: Sequence[results.Place]) -> dict[str | None, list[results.Place]]:
    found: dict[str | None, list[results.Place]] = {}
    for place in tries:
        found.setdefault(trials.dtype_in(place[0]), []).append(place)
    return found


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
    need them. A model without a folder in --source-dir takes none.
    """
    planned = [step for step in planned if not step.absent]
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
        if stage in (SWEEP, LOGPROBS, READINGS)
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
