"""What `assay plan` says of some devices: whether a model fits, on which mesh, and for how long.

A time is the floating-point operations of whole steps over an assumed share of the stated peak
(`machines.SHARES`). It leaves out imports, compilation, and reading the weights from disk. A search
has no time, since its short passes are bound by reading the weights.
"""

import dataclasses
import math

from engine.errors import AssayError
from engine.planning import flops, machines, memory
from engine.planning.machines import Devices, Kind
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
    fits: bool
    model: Model  # on its mesh
    step_size: int  # candidates per step on each device
    account: Account  # bytes on each device during a sweep
    sweep_s: float | None  # seconds of all sweeps; None where the peak is not known
    searched: Model | None  # on the mesh of a search; None for a language model
    search_bytes: int  # on each device during a search
    would_fit: str = ""  # where the model does not fit: what would


def plan(
    model: Model,
    devices: Devices,
    sweep: SweepWork,
    search: SearchWork,
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
    kind, usable = devices.kind, devices.kind.usable_bytes
    meshes = _meshes(model, devices.count, kind, dtype, axis)
    tried = [(one, *fitting_step(one, usable, sweep)) for one in meshes]
    least = min(_ENOUGH, sweep.step_size or _ENOUGH)
    fitting = [each for each in tried if each[2].total <= usable]
    good = [each for each in fitting if each[1] >= least] or fitting
    chosen, step, needed = good[0] if good else min(tried, key=lambda each: each[2].total)
    searched = None if model.language else _search_mesh(meshes, usable, search)
    return Plan(
        devices=devices,
        fits=bool(fitting),
        model=chosen,
        step_size=step,
        account=needed,
        sweep_s=_sweep_seconds(chosen, kind, sweep, step),
        searched=searched,
        search_bytes=0 if searched is None else account(searched, search).total,
        would_fit="" if fitting else _larger(chosen, devices, sweep, dtype),
    )


def _sweep_seconds(model: Model, kind: Kind, work: SweepWork, step: int) -> float | None:
    """Seconds of all sweeps, or of all prompts of a language model; None: the peak is not known."""
    peak = kind.peak(model.dtype)
    if peak is None:
        return None
    if model.language:  # the prompt's pass gives every token's log-probability
        operations = work.prefix * flops.extension(model.config, 1, 0)
    else:
        spans = parts.ranges(model.config.vocab_size, work.part_size)  # no step crosses an end
        count = sum(-(-(stop - start) // (model.data * step)) for start, stop in spans)
        operations = count * step * flops.response(model.config, work.own, work.prefix)
    return work.prompts * operations / model.model / (kind.share * peak)


def _meshes(model: Model, count: int, kind: Kind, dtype: str | None, axis: int) -> list[Model]:
    sizes = [axis] if axis else splits(model.config, count)
    return [model.on(kind.platform, dtype, count // size, size) for size in sizes]


def _search_mesh(meshes: list[Model], usable: float, work: SearchWork) -> Model:
    """The smallest axis `model` on which a search fits and keeps every device along `data` busy.

    The axis `model` divides the reading of weights, which takes most of a small search's time; the
    axis `data` divides nothing but the blocks of candidates.
    """
    totals = [account(model, work).total for model in meshes]
    fitting = [model for model, total in zip(meshes, totals, strict=True) if total <= usable]
    if not fitting:
        return meshes[totals.index(min(totals))]
    blocks = work.attempts * -(-work.rows // min(BLOCK_ROWS, work.rows))
    return next((model for model in fitting if model.data <= blocks), fitting[-1])


def _larger(model: Model, devices: Devices, work: SweepWork, dtype: str | None) -> str:
    """What would fit, in words, where `devices` do not."""
    kind, free = devices.kind, dataclasses.replace(work, step_size=None)
    if ways := ways_to_fit(model, kind.usable_bytes, work):
        return " or ".join(ways)
    most = 1 if kind.platform == memory.CPU else _MOST_DEVICES
    for count in (2**power for power in range(most.bit_length())):
        for one in _meshes(model, count, kind, dtype, 0):
            if account(one, free).total <= kind.usable_bytes:
                return f"{count} of these devices"
    return f"{math.ceil(account(model, free).total / kind.usable / machines.GIB):,} GiB"
