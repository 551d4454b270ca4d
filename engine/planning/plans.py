"""What `assay plan` says of some devices: whether a model fits, on which mesh, and for how long.

A time is the floating-point operations of whole steps over an assumed share of the stated peak
(`machines.SHARES`). It leaves out imports, compilation, and reading the weights from disk. A search
has no time, since its short passes are bound by reading the weights.
"""

import dataclasses
import math

from engine.errors import AssayError
from engine.planning import flops, machines
from engine.planning.machines import DeviceRoom, Devices
from engine.planning.memory import (
    BLOCK_ROWS,
    Account,
    Model,
    SearchWork,
    SweepWork,
    account,
    fitting_step,
    splits,
    ways_to_fit,
)
from engine.runs import parts

_ENOUGH = 256  # candidates per step below which another split of the model is better
_MOST_DEVICES = 4096  # up to which a sufficient number is looked for


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
    would_fit: str  # where the model does not fit: what would; "" where it fits

    @property
    def fits(self) -> bool:
        """Whether the model fits."""
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
    if axis and axis not in (allowed := list(splits(model.config, devices.count))):
        raise AssayError(
            f"mesh.model={axis} of {devices.name}; allowed: {', '.join(map(str, allowed))}"
        )
    meshes = _meshes(model, devices, devices.count, dtype)
    meshes = [one for one in meshes if axis in (0, one.model)]
    tried = [(one, *fitting_step(one, sweep)) for one in meshes]
    fitting = [each for each in tried if each[2].total <= devices.usable_bytes]
    least = min(_ENOUGH, sweep.step_size or _ENOUGH)
    good = [each for each in fitting if each[1] >= least] or fitting
    chosen, step, needed = good[0] if good else min(tried, key=lambda each: each[2].total)
    searched = _search_mesh(meshes, search) if search else None
    return Plan(
        devices=devices,
        model=chosen,
        step_size=step,
        account=needed,
        sweep_s=_sweep_seconds(chosen, devices, sweep, step),
        searched=searched,
        search_bytes=account(searched, search).total if searched and search else 0,
        would_fit="" if fitting else _larger(chosen, devices, sweep, dtype),
    )


def _meshes(model: Model, devices: Devices, count: int, dtype: str | None) -> list[Model]:
    """The model on `count` such devices, by each axis `model` that divides them, ascending."""
    rooms = [
        DeviceRoom(devices.platform, count // size, size, devices.usable_bytes)
        for size in splits(model.config, count)
    ]
    return [model.on(room, dtype) for room in rooms]


def _sweep_seconds(model: Model, devices: Devices, work: SweepWork, step: int) -> float | None:
    """Seconds of all sweeps, or of all prompts of a language model; None: the peak is not known."""
    if model.dtype not in devices.peaks:
        return None
    if model.language:  # the prompt's pass gives every token's log-probability
        operations = work.prefix * flops.extension(model.config, 1, 0)
    else:
        spans = parts.ranges(model.config.vocab_size, work.part_size)  # no step crosses an end
        count = sum(-(-(stop - start) // (model.data * step)) for start, stop in spans)
        operations = count * step * flops.response(model.config, work.own, work.prefix)
    reached = machines.SHARES[devices.platform] * devices.peaks[model.dtype]
    return work.prompts * operations / model.model / reached


def _search_mesh(meshes: list[Model], work: SearchWork) -> Model:
    """The smallest axis `model` on which a search fits and keeps every device along `data` busy.

    The axis `model` divides the reading of weights, which takes most of a small search's time; the
    axis `data` divides nothing but the blocks of candidates.
    """
    fitting = [model for model in meshes if account(model, work).total <= model.usable]
    blocks = work.attempts * -(-work.rows // min(BLOCK_ROWS, work.rows))
    busy = [model for model in fitting if model.data <= blocks]
    return min(busy[:1] or fitting[-1:] or meshes, key=lambda model: account(model, work).total)


def _larger(model: Model, devices: Devices, work: SweepWork, dtype: str | None) -> str:
    """What would fit, in words, where `devices` do not."""
    if ways := ways_to_fit(model, work):
        return " or ".join(ways)
    least = dataclasses.replace(work, step_size=None)
    most = 1 if devices.platform == "cpu" else _MOST_DEVICES
    for count in (2**power for power in range(most.bit_length())):
        for one in _meshes(model, devices, count, dtype):
            if account(one, least).total <= devices.usable_bytes:
                return f"{count} of these devices"
    share = devices.usable_bytes / devices.memory_bytes
    return f"{math.ceil(account(model, least).total / share / machines.GIB):,} GiB"
