"""Whether a model fits, here or on named devices; with which step, on which mesh, for how long.

A step depends on the model, the kind of device and its free memory alone: not on the number of
devices along the axis `data`, and on no measured time. So equal machines give equal bytes.
"""

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.models.config import DecoderConfig
from engine.planning import flops, machines, memory
from engine.planning.machines import DeviceRoom, Devices, free_disk, free_memory
from engine.planning.memory import Account, Model, SearchWork, SweepWork, account, in_words
from engine.runs import parts
from engine.scoring.batches import SHORT

# Candidates per step that `auto` takes where memory allows: docs/decisions/step-and-memory.md.
STEPS = {"cpu": 1024, "gpu": 2048, "tpu": 1024}
_PROMPT = 64  # positions of a prompt that is not known yet
_WAY_OUT = "--config.check_memory=false starts anyway"


def fits(model: Model, work: SweepWork | SearchWork, **changes: Any) -> bool:  # Any: of the work
    """Whether work with some changes fits; sweeps without a step, whether the least one does."""
    return account(model, dataclasses.replace(work, **changes)).total <= model.usable


def fitting_step(model: Model, work: SweepWork) -> int:
    """The step that a user named; else the largest that fits, or the least where none does."""
    step, named = work.step_size or STEPS[model.platform], work.step_size is not None
    while not named and step > memory.LEAST_STEP and not fits(model, work, step_size=step):
        step //= 2
    return step


def ways_to_fit(model: Model, work: SweepWork | SearchWork) -> list[str]:
    """Settings each of which makes a model fit that does not, on the same devices."""
    count, ways = model.data * model.model, []
    if isinstance(work, SweepWork):
        auto = dataclasses.replace(work, step_size=None)
        ways += [f"step_size={fitting_step(model, auto)}"] if fits(model, auto) else []
        ways += ["self_check=1"] if fits(model, work, self_check=1) else []
    sizes = [size for size in splits(model.config, count) if size > model.model]
    larger = [dataclasses.replace(model, data=count // size, model=size) for size in sizes]
    ways += [f"mesh.model={one.model}" for one in larger if fits(one, work)][:1]
    shorter = [dataclasses.replace(model, dtype=dtype) for dtype in ("bfloat16", "float16")]
    ways += [f"dtype={one.dtype}" for one in shorter if fits(one, work)][:1]
    return ways


def splits(config: DecoderConfig, count: int) -> list[int]:
    """Sizes of the axis `model` that divide the devices and the decoder, ascending."""
    most = math.gcd(count, config.num_heads, config.ffn_width)
    return [size for size in range(1, most + 1) if most % size == 0]


def refusal(model: Model, work: SweepWork | SearchWork) -> str:
    """Why models do not fit on their devices; "" if they do."""
    needed = account(model, work)
    if needed.total <= model.usable:
        return ""
    would = ways_to_fit(model, work) or [f"{in_words(needed.total)} of free memory"]
    return (
        f"{model.name}: needs {in_words(needed.total)} of memory on a device in {model.dtype} "
        f"(weights {in_words(needed.weights)}, a step {in_words(needed.step)}), "
        f"{in_words(model.usable)} are free; {' or '.join(would)} would fit; {_WAY_OUT}"
    )


def admit(
    checkpoint: Checkpoint, mesh: Mesh, dtype: str, step_size: int | None, *, check: bool
) -> int:
    """The step of a model that is about to be loaded, for prompts that are not known yet.

    A `step_size` of None is chosen. Raises AssayError for a model that is too large, if `check`.
    """
    model = Model.of([checkpoint]).on(DeviceRoom.of(mesh), dtype)
    work = SweepWork(prefix=_PROMPT, own=SHORT, step_size=step_size, self_check=1)
    step = fitting_step(model, work)
    if check and (reason := refusal(model, dataclasses.replace(work, own=1, step_size=step))):
        raise AssayError(reason)
    return step


def check_conversion(model: Model, destination: Path | str | None, cached: int | None) -> None:
    """Checks host memory and disk before anything is downloaded, read or written.

    The checkpoint goes to `destination`, if it is on a local disk. Weights are fetched into the
    hub's cache, which holds `cached` bytes of them already; None: none are fetched.

    Raises:
      AssayError: too little of either.
    """

    def check(what: str, needed: float, where: str, free: float) -> None:
        if needed > free:
            raise AssayError(
                f"{model.name}: {what} needs {in_words(needed)} of {where}, {in_words(free)} are "
                f"free; {_WAY_OUT}"
            )

    check("converting", memory.host_bytes(model), "memory", free_memory())
    size, taken = memory.checkpoint_bytes(model), Counter[int]()
    wanted = [] if destination is None else [("the checkpoint", destination, size)]
    if cached is not None:
        from huggingface_hub.constants import HF_HUB_CACHE  # slow to import

        wanted.append(("the download", HF_HUB_CACHE, max(0, size - cached)))
    for what, folder, more in wanted:
        disk, free = free_disk(folder)
        taken[disk] += more  # both may go to one disk
        check(what, taken[disk], f"disk at {folder}", free)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The answer for some devices; where a model does not fit, of the mesh that comes closest."""

    devices: Devices
    model: Model  # on its mesh
    step_size: int  # candidates per step on each device
    account: Account  # bytes on each device during a sweep
    sweep_s: float | None  # seconds of all sweeps; None where the peak is not known
    searched: Model | None  # on the mesh of a search; None where none is planned
    search_bytes: int  # on each device during a search
    would_fit: str  # what would fit; "" where the model does

    @property
    def fits(self) -> bool:
        """Whether the model fits on these devices."""
        return not self.would_fit


def plan(
    model: Model,
    devices: Devices,
    sweep: SweepWork,
    search: SearchWork | None,
    dtype: str | None = None,
    axis: int = 0,
) -> Plan:
    """The smallest axis `model` on which a model fits, and the largest step up to `auto`'s.

    A `dtype` of None is what `--config.dtype=auto` takes; an `axis` of 0 is chosen.

    Raises:
      AssayError: these devices and this model cannot be divided by `axis`.
    """
    meshes = [one for one in _meshes(model, devices, dtype) if axis in (0, one.model)]
    if not meshes:
        allowed = ", ".join(map(str, splits(model.config, devices.count)))
        raise AssayError(f"mesh.model={axis} of {devices.name}; allowed: {allowed}")
    chosen = next((one for one in meshes if fits(one, sweep)), meshes[-1])
    step = fitting_step(chosen, sweep)
    searched = _search_mesh(meshes, search) if search else None
    return Plan(
        devices=devices,
        model=chosen,
        step_size=step,
        account=account(chosen, dataclasses.replace(sweep, step_size=step)),
        sweep_s=_sweep_seconds(chosen, devices, sweep, step),
        searched=searched,
        search_bytes=account(searched, search).total if searched and search else 0,
        would_fit="" if fits(chosen, sweep) else _larger(chosen, devices, sweep, dtype),
    )


def _meshes(model: Model, devices: Devices, dtype: str | None) -> list[Model]:
    """The model on the devices, by each axis `model` that divides them, ascending."""
    count, usable = devices.count, devices.usable_bytes
    sizes = splits(model.config, count)
    return [model.on(DeviceRoom(devices.platform, count // n, n, usable), dtype) for n in sizes]


def _sweep_seconds(model: Model, devices: Devices, work: SweepWork, step: int) -> float | None:
    """Seconds of all prompts at the assumed share of the peak; None where it is not known."""
    if model.dtype not in devices.peaks:
        return None
    if model.language:  # the prompt's pass gives every token's log-probability
        operations = flops.extension(model.config, work.prefix, 0)
    else:
        spans = parts.ranges(model.config.vocab_size, work.part_size)  # no step crosses an end
        steps = sum(-(-(stop - start) // (model.data * step)) for start, stop in spans)
        operations = steps * step * flops.response(model.config, work.own, work.prefix)
    reached = machines.SHARES[devices.platform] * devices.peaks[model.dtype]
    return work.prompts * operations / model.model / reached


def _search_mesh(meshes: list[Model], work: SearchWork) -> Model:
    """The smallest axis `model` on which a search fits and keeps every device along `data` busy.

    The axis `model` divides the reading of weights, which takes most of a small search's time; the
    axis `data` divides nothing but the blocks of candidates.
    """
    blocks = work.attempts * -(-work.rows // memory.BLOCK_ROWS)
    good = (one for one in meshes if one.data <= blocks and fits(one, work))
    return next(good, meshes[-1])


def _larger(model: Model, devices: Devices, work: SweepWork, dtype: str | None) -> str:
    """What would fit, in words, where `devices` do not."""
    if ways := ways_to_fit(model, work):
        return " or ".join(ways)
    for count in (2**power for power in range(13) if devices.platform != "cpu"):
        more = _meshes(model, dataclasses.replace(devices, count=count), dtype)
        if any(fits(one, work, step_size=None) for one in more):
            return f"{count} of these devices"
    least = account(model, dataclasses.replace(work, step_size=None)).total
    return f"{math.ceil(least * devices.memory_bytes / devices.usable_bytes / machines.GIB):,} GiB"
