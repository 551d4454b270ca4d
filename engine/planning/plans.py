"""Whether a model fits on some devices, on which mesh and with which step, and how long it takes.

Times leave out imports, compilation, and reading the weights from disk.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.models.language_model import OutputConfig
from engine.planning import flops, memory, searches
from engine.planning.machines import Devices, Kind
from engine.planning.memory import Account, Model
from engine.planning.work import PART_SIZE, Named, SearchWork, SweepWork
from engine.runs import parts
from engine.scoring.reward_passes import rows_of_step

LEAST_STEP = 16  # candidates per step on each device
# Candidates per step that `auto` takes where memory allows: docs/decisions/step-and-memory.md.
STEPS = {"cpu": 1024, "gpu": 2048, "tpu": 1024}
_ENOUGH = 256  # candidates per step below which another split of the model is better
_MOST_DEVICES = 4096  # up to which a sufficient number is looked for


@dataclasses.dataclass(frozen=True)
class Subject:
    """The model that is planned for.

    Attributes:
      name: of the model.
      config: its decoder's.
      heads: its head's, or those of all models that share the decoder.
      dtype: of its file.
    """

    name: str
    config: DecoderConfig
    heads: tuple[HeadConfig | OutputConfig, ...]
    dtype: str

    def on(self, platform: str, dtype: str | None, data: int = 1, model: int = 1) -> Model:
        """The model on a mesh; `dtype` None is what `--config.dtype=auto` takes."""
        stored = self.dtype if self.dtype in ("bfloat16", "float16") else "bfloat16"
        return Model(
            config=self.config,
            heads=self.heads,
            dtype=dtype or ("float32" if platform == "cpu" else stored),
            data=data,
            model=model,
            platform=platform,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The answer for some devices.

    Attributes:
      devices: for which it is.
      fits: whether the model runs there.
      model: the model on its mesh; where it does not fit, on the mesh that comes closest.
      step_size: candidates per step on each device.
      account: bytes on each device during a sweep.
      usable_bytes: that a device has.
      host_bytes: of host memory, to convert the model.
      disk_bytes: of the source and the checkpoint.
      sweep_s: seconds of all sweeps; None where they are not predicted.
      share: of the peak that a step of a sweep reaches, without sums; None where there is none, or
        where it is not predicted.
      search: of one search; None for a language model.
      would_fit: where the model does not fit: what would.
    """

    devices: Devices
    fits: bool
    model: Model
    step_size: int
    account: Account
    usable_bytes: int
    host_bytes: int
    disk_bytes: int
    sweep_s: float | None
    share: float | None
    search: "SearchPlan | None"
    would_fit: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """The answer for a search.

    Attributes:
      model: the model on the mesh on which a search is fastest, of those on which it fits; where
        there is none, on the one that comes closest.
      account: bytes on each device.
      seconds: of all steps; None where they are not predicted.
      floor_s: the least seconds of all steps; None where the peak is not known.
    """

    model: Model
    account: Account
    seconds: float | None
    floor_s: float | None


def plan(
    subject: Subject, devices: Devices, sweep: SweepWork, search: SearchWork, named: Named
) -> Plan:
    """The smallest axis `model` on which the model fits, and the largest step up to `auto`'s."""
    kind, usable = devices.kind, usable_bytes(devices.kind)
    meshes = _meshes(subject, devices.count, named, kind)
    tried = [(model, *fitting_step(model, usable, sweep)) for model in meshes]
    least = min(_ENOUGH, sweep.step_size or _ENOUGH)
    fitting = [one for one in tried if one[2].total <= usable]
    good = [one for one in fitting if one[1] >= least] or fitting
    model, step, account = good[0] if good else min(tried, key=lambda one: one[2].total)
    item = 4 if subject.dtype == "float32" else 2
    disk = memory.checkpoint_bytes(subject.config, subject.heads[0], item)
    seconds = share = None
    if kind.predicts(model.dtype):
        seconds = sweep.prompts * sweep_seconds(model, kind, sweep, step)
        if fitting and not model.language:
            share = share_of_peak(model, kind, sweep, step)
    return Plan(
        devices=devices,
        fits=bool(fitting),
        model=model,
        step_size=step,
        account=account,
        usable_bytes=usable,
        host_bytes=memory.host_bytes(subject.config, subject.heads[0], item, blocks=2),
        disk_bytes=2 * disk,
        sweep_s=seconds,
        share=share,
        search=None if model.language else plan_search(meshes, kind, search),
        would_fit="" if fitting else _larger(subject, model, devices, sweep, named),
    )


def plan_search(meshes: Sequence[Model], kind: Kind, work: SearchWork) -> SearchPlan:
    """The mesh on which a search is fastest, of those on which it fits.

    Few candidates are bound by reading weights, which the axis `model` divides; many are bound by
    operations, which either axis divides.
    """
    usable = usable_bytes(kind)
    accounts = [(model, search_account(model, work)) for model in meshes]
    fitting = [one for one in accounts if one[1].total <= usable]
    if not fitting:
        model, account = min(accounts, key=lambda one: one[1].total)
    elif kind.predicts(meshes[0].dtype):
        model, account = min(fitting, key=lambda one: searches.step_seconds(one[0], kind, work))
    else:
        model, account = fitting[0]
    if not kind.predicts(model.dtype):
        return SearchPlan(model=model, account=account, seconds=None, floor_s=None)
    return SearchPlan(
        model=model,
        account=account,
        seconds=work.steps * searches.step_seconds(model, kind, work),
        floor_s=work.steps * searches.floor_seconds(model, kind, work),
    )


def usable_bytes(kind: Kind) -> int:
    """Bytes of a device that a program may take."""
    return int(kind.memory_bytes * kind.usable)


def fitting_step(model: Model, usable: float, work: SweepWork) -> tuple[int, Account]:
    """The largest step whose account fits, and the account; the least step where none does.

    A step that the user named is not changed.
    """
    step = work.step_size or STEPS[model.platform]
    while True:
        account = sweep_account(model, dataclasses.replace(work, step_size=step))
        if account.total <= usable or work.step_size or step <= LEAST_STEP:
            return step, account
        step //= 2


def sweep_account(model: Model, work: SweepWork) -> Account:
    """Bytes on each device during a sweep with a step that is given."""
    step = work.step_size or STEPS[model.platform]
    return memory.of_scoring(
        model, prefix=work.prefix, own=work.own, candidates=step, self_check=work.self_check
    )


def search_account(model: Model, work: SearchWork) -> Account:
    """Bytes on each device during a search."""
    if not work.enumerates:
        return memory.of_search(model, work)
    prefix, checked = work.prefix + work.length, 2 * work.together
    rows = rows_of_step(work.candidates, work.own, work.candidates)
    one = memory.of_scoring(model, prefix=prefix, own=work.own, candidates=rows, self_check=checked)
    return dataclasses.replace(one, prefix=one.prefix * work.together)


def sweep_seconds(model: Model, kind: Kind, work: SweepWork, step: int) -> float:
    """Seconds of one vocabulary under one prompt, by the rate of matmuls and that of memory."""
    if model.language:  # the prompt's own pass gives every token's log-probability
        count = work.prefix * flops.extension(model.config, 1, 0)
        rate, weights = kind.rate(model.dtype), memory.weight_bytes(model)
        return searches.pass_seconds(model, kind, count, rate, weights)
    steps = steps_of(model.config.vocab_size, model.data * step, work.part_size)
    return steps * step_seconds(model, kind, work, step)


def step_seconds(model: Model, kind: Kind, work: SweepWork, step: int) -> float:
    """Seconds of one step of a reward model's sweep, with sums over `model`."""
    sums = searches.sums_seconds(model, kind, step * work.own)
    return step_alone_seconds(model, kind, work, step) + sums


def step_alone_seconds(model: Model, kind: Kind, work: SweepWork, step: int) -> float:
    """The same without sums over `model`."""
    count = step * flops.response(model.config, work.own, work.prefix)
    one = searches.pass_seconds(model, kind, count, kind.rate(model.dtype))
    return one + searches.between_seconds(model, kind, step * work.own)


def share_of_peak(model: Model, kind: Kind, work: SweepWork, step: int) -> float:
    """Operations of a step, of those of the stated peak in its time without sums."""
    count = step * flops.response(model.config, work.own, work.prefix) / model.model
    return count / step_alone_seconds(model, kind, work, step) / kind.peak(model.dtype)


def steps_of(rows: int, candidates: int, part_size: int = PART_SIZE) -> int:
    """Steps of a list of rows; none crosses the end of a part.

    Args:
      rows: of the list.
      candidates: of one step on all devices.
      part_size: rows of a part.
    """
    spans = parts.ranges(rows, part_size)
    return sum(-(-(stop - start) // candidates) for start, stop in spans)


def better_part_size(model: Model, work: SweepWork, step: int) -> int | None:
    """Rows of a part that whole steps fill, where that saves more than a tenth of the steps."""
    if model.language:
        return None
    candidates, rows = model.data * step, model.config.vocab_size
    filled = -(-work.part_size // candidates) * candidates
    fewer = steps_of(rows, candidates, filled)
    return filled if fewer < 0.9 * steps_of(rows, candidates, work.part_size) else None


def sufficient_devices(subject: Subject, kind: Kind, work: SweepWork, named: Named) -> int | None:
    """The least power of two of devices on which a model fits; None where none is found."""
    most = 1 if kind.platform == "cpu" else _MOST_DEVICES
    for count in (2**power for power in range(most.bit_length())):
        if _first_fit(subject, count, work, named, kind):
            return count
    return None


def splits(config: DecoderConfig, count: int) -> Iterator[int]:
    """Sizes of the axis `model` that divide the devices and the decoder, ascending."""
    for model in range(1, count + 1):
        if not (count % model or config.num_heads % model or config.ffn_width % model):
            yield model


def ways_to_sweep(subject: Subject, model: Model, usable: float, work: SweepWork) -> list[str]:
    """Settings with which a sweep that does not fit would fit on the same devices.

    Args:
      subject: the model.
      model: the same on the mesh on which it does not fit.
      usable: bytes of a device.
      work: the sweep.
    """
    found = []
    step, least = fitting_step(model, usable, dataclasses.replace(work, step_size=None))
    if step < (work.step_size or 0) and least.total <= usable:
        found.append(f"step_size={step}")
    smaller = dataclasses.replace(work, step_size=work.step_size or LEAST_STEP)
    unchecked = sweep_account(model, dataclasses.replace(smaller, self_check=1))
    if work.self_check > 1 and unchecked.total <= usable:
        found.append("self_check=1")
    return found + ways_to_fit(subject, model, usable, lambda other: sweep_account(other, smaller))


def ways_to_fit(
    subject: Subject, model: Model, usable: float, account: Callable[[Model], Account]
) -> list[str]:
    """Meshes and dtypes with which a model that does not fit would fit on the same devices.

    Args:
      subject: the model.
      model: the same on the mesh on which it does not fit.
      usable: bytes of a device.
      account: bytes on each device.
    """
    found, count = [], model.data * model.model
    for split in splits(subject.config, count):
        other = dataclasses.replace(model, data=count // split, model=split)
        if split > model.model and account(other).total <= usable:
            found.append(f"mesh.model={split}")
            break
    for dtype in ("bfloat16", "float16"):
        if account(dataclasses.replace(model, dtype=dtype)).total <= usable:
            found.append(f"dtype={dtype}")
            break
    return found


def _meshes(subject: Subject, count: int, named: Named, kind: Kind) -> list[Model]:
    sizes = [named.model_axis] if named.model_axis else splits(subject.config, count)
    return [subject.on(kind.platform, named.dtype, count // size, size) for size in sizes]


def _larger(subject: Subject, model: Model, devices: Devices, work: SweepWork, named: Named) -> str:
    """What would fit, in words, where `devices` do not."""
    kind = devices.kind
    free = dataclasses.replace(work, step_size=None), dataclasses.replace(named, model_axis=None)
    ways = ways_to_sweep(subject, model, usable_bytes(kind), work)
    if not ways and (count := sufficient_devices(subject, kind, *free)):
        ways.append(f"{count} of these devices")
    least = sweep_account(model, dataclasses.replace(work, step_size=LEAST_STEP))
    return " or ".join(ways or [f"{math.ceil(least.total / kind.usable / memory.GIB):,} GiB"])


def _first_fit(
    subject: Subject, count: int, work: SweepWork, named: Named, kind: Kind
) -> Model | None:
    usable = usable_bytes(kind)
    for model in _meshes(subject, count, named, kind):
        if fitting_step(model, usable, work)[1].total <= usable:
            return model
    return None
