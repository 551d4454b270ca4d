"""Whether a model fits on some devices, on which mesh and with which step, and how long it takes.

Times leave out imports, compilation, reading the weights, and collectives of the axis `model`.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator

from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.models.language_model import OutputConfig
from engine.planning import flops, memory
from engine.planning.machines import Devices, Kind
from engine.planning.memory import Account, Model
from engine.scoring.reward_passes import rows_of_step

LEAST_STEP = 16  # candidates per step on each device
# Candidates per step that `auto` takes where memory allows: docs/decisions/2026-11-23-step-size.md.
STEPS = {"cpu": 1024, "gpu": 2048, "tpu": 2048}
_ENOUGH = 256  # candidates per step below which another split of the model is better
BLOCK_ROWS = 32  # rows of packed candidates that a search scores at a time: 64 candidates
_SEARCH_SHARE = 0.55  # of a sweep's rate: 92 against 165 GFLOP/s on the CPU of docs/speed.md
_MOST_DEVICES = 4096  # up to which a sufficient number is looked for


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What is to be computed.

    Attributes:
      prompts: vocabularies that are swept.
      prefix: positions of a prompt, padding included.
      own: positions of a candidate in a sweep.
      step_size: candidates per step on each device; None: chosen.
      model_axis: devices along the mesh axis `model`; None: chosen.
      dtype: None: float32 on a CPU, else the 16 bits of the file.
      length: tokens of a searched reply.
      candidates: of a step of the search.
      steps: of the search.
      attempts: searches side by side; two for both directions.
      together: prompts that a search judges by the mean of their rewards.
      gradient: whether a step of the search takes one.
      enumerates: whether a step scores `candidates` whole replies, as `beam` does.
    """

    prompts: int
    prefix: int
    own: int
    step_size: int | None
    model_axis: int | None
    dtype: str | None
    length: int
    candidates: int
    steps: int
    attempts: int
    together: int = 1
    gradient: bool = True
    enumerates: bool = False


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
      search_bytes: bytes on each device during a search.
      usable_bytes: that a device has.
      host_bytes: of host memory, to convert the model.
      disk_bytes: of the source and the checkpoint.
      sweep_s: seconds of all sweeps.
      search_s: seconds of one search; None for a language model.
      would_fit: where the model does not fit: what would.
    """

    devices: Devices
    fits: bool
    model: Model
    step_size: int
    account: Account
    search_bytes: int
    usable_bytes: int
    host_bytes: int
    disk_bytes: int
    sweep_s: float
    search_s: float | None
    would_fit: str = ""


def plan(subject: Subject, devices: Devices, work: Work) -> Plan:
    """The smallest axis `model` on which the model fits, and the largest step up to `auto`'s."""
    kind, usable = devices.kind, usable_bytes(devices.kind)
    tried = [
        (model, *fitting_step(model, usable, work))
        for model in _meshes(subject, devices.count, work, kind)
    ]
    least = min(_ENOUGH, work.step_size or _ENOUGH)
    fitting = [one for one in tried if one[2].total <= usable]
    good = [one for one in fitting if one[1] >= least] or fitting
    model, step, account = good[0] if good else min(tried, key=lambda one: one[2].total)
    item = 4 if subject.dtype == "float32" else 2
    disk = memory.checkpoint_bytes(subject.config, subject.heads[0], item)
    return Plan(
        devices=devices,
        fits=bool(fitting),
        model=model,
        step_size=step,
        account=account,
        search_bytes=search_account(model, work).total,
        usable_bytes=usable,
        host_bytes=memory.host_bytes(subject.config, subject.heads[0], item, blocks=2),
        disk_bytes=2 * disk,
        sweep_s=work.prompts * sweep_seconds(model, kind, work, step),
        search_s=None if model.language else search_seconds(model, kind, work),
        would_fit="" if fitting else _larger(subject, model, devices, work),
    )


def usable_bytes(kind: Kind) -> int:
    """Bytes of a device that a program may take."""
    return int(kind.memory_bytes * kind.usable)


def fitting_step(model: Model, usable: float, work: Work) -> tuple[int, Account]:
    """The largest step whose account fits, and the account; the least step where none does.

    A step that the user named is not changed.
    """
    step = work.step_size or STEPS[model.platform]
    while True:
        account = sweep_account(model, dataclasses.replace(work, step_size=step))
        if account.total <= usable or work.step_size or step <= LEAST_STEP:
            return step, account
        step //= 2


def sweep_account(model: Model, work: Work) -> Account:
    """Bytes on each device during a sweep with a step that is given."""
    step = work.step_size or STEPS[model.platform]
    return memory.of_scoring(model, prefix=work.prefix, own=work.own, candidates=step)


def search_account(model: Model, work: Work) -> Account:
    """Bytes on each device during a search."""
    if work.enumerates:
        prefix, own = work.prefix + work.length, work.length + work.own - 1
        rows = rows_of_step(work.candidates, own, work.candidates)
        one = memory.of_scoring(model, prefix=prefix, own=own, candidates=rows, self_check=1)
        return dataclasses.replace(one, prefix=one.prefix * work.together)
    return memory.of_search(
        model,
        prefix=work.prefix + work.length,
        length=work.length,
        suffix=work.own - 1,
        attempts=work.attempts,
        prompts=work.together,
        rows=min(BLOCK_ROWS, -(-work.candidates // 2)),
        gradient=work.gradient,
    )


def sweep_seconds(model: Model, kind: Kind, work: Work, step: int) -> float:
    """Seconds of one vocabulary under one prompt, by the rate of matmuls and that of memory."""
    per_device = -(-model.config.vocab_size // model.data)
    if model.language:  # the prompt's own pass gives every token's log-probability
        count = work.prefix * flops.extension(model.config, 1, 0)
        return _pass_seconds(model, kind, count, kind.rate(model.dtype))
    count = step * flops.response(model.config, work.own, work.prefix)
    return per_device / step * _pass_seconds(model, kind, count, kind.rate(model.dtype))


def search_seconds(model: Model, kind: Kind, work: Work) -> float:
    """Seconds of one search under one prompt.

    A step passes twice over the weights for the gradient of each attempt, and twice for each block
    of candidates; attempts and blocks are shared out along the axis `data`.
    """
    c, rate = model.config, _SEARCH_SHARE * kind.rate(model.dtype)
    first = [i * work.length // work.candidates for i in range(work.candidates)]
    suffix = work.own - 1
    whole = flops.compiled_step(c, first, work.length, [work.prefix], suffix, with_gradient=True)
    gradient = flops.gradient(c, work.length, work.length + suffix, work.prefix)
    blocks = max(1, -(-work.candidates // (2 * BLOCK_ROWS)))
    of_gradient = 2 * _pass_seconds(model, kind, gradient / 2, rate)
    of_block = 2 * _pass_seconds(model, kind, (whole - gradient) / blocks / 2, rate)
    turns = [-(-count // model.data) for count in (work.attempts, work.attempts * blocks)]
    return work.steps * (turns[0] * of_gradient + turns[1] * of_block)


def sufficient_devices(subject: Subject, kind: Kind, work: Work) -> int | None:
    """The least power of two of devices on which a model fits; None where none is found."""
    most = 1 if kind.platform == "cpu" else _MOST_DEVICES
    for count in (2**power for power in range(most.bit_length())):
        if _first_fit(subject, count, work, kind):
            return count
    return None


def splits(config: DecoderConfig, count: int) -> Iterator[int]:
    """Sizes of the axis `model` that divide the devices and the decoder, ascending."""
    for model in range(1, count + 1):
        if not (count % model or config.num_heads % model or config.ffn_width % model):
            yield model


def _meshes(subject: Subject, count: int, work: Work, kind: Kind) -> list[Model]:
    sizes = [work.model_axis] if work.model_axis else splits(subject.config, count)
    return [subject.on(kind.platform, work.dtype, count // size, size) for size in sizes]


def _pass_seconds(model: Model, kind: Kind, count: float, rate: float) -> float:
    """Seconds of a pass: its operations, or reading the weights where that takes longer."""
    return max(count / model.model / rate, memory.weight_bytes(model) / kind.bytes_per_s)


def would_fit(
    subject: Subject,
    model: Model,
    usable: float,
    work: Work,
    account: Callable[[Model, Work], Account] = lambda model, work: sweep_account(model, work),
) -> list[str]:
    """Settings with which a model that does not fit would fit on the same devices.

    Args:
      subject: the model.
      model: the same on the mesh on which it does not fit.
      usable: bytes of a device.
      work: what is to be computed.
      account: bytes on each device.
    """
    found = []
    step, least = fitting_step(model, usable, dataclasses.replace(work, step_size=None))
    if step < (work.step_size or 0) and least.total <= usable:
        found.append(f"step_size={step}")
    smaller = dataclasses.replace(work, step_size=work.step_size or LEAST_STEP)
    count = model.data * model.model
    for split in splits(subject.config, count):
        other = dataclasses.replace(model, data=count // split, model=split)
        if split > model.model and account(other, smaller).total <= usable:
            found.append(f"mesh.model={split}")
            break
    for dtype in ("bfloat16", "float16"):
        if account(dataclasses.replace(model, dtype=dtype), smaller).total <= usable:
            found.append(f"dtype={dtype}")
            break
    return found


def _larger(subject: Subject, model: Model, devices: Devices, work: Work) -> str:
    """What would fit, in words, where `devices` do not."""
    kind = devices.kind
    free = dataclasses.replace(work, step_size=None, model_axis=None)
    ways = would_fit(subject, model, usable_bytes(kind), work)
    if not ways and (count := sufficient_devices(subject, kind, free)):
        ways.append(f"{count} of these devices")
    least = sweep_account(model, dataclasses.replace(work, step_size=LEAST_STEP))
    return " or ".join(ways or [f"{math.ceil(least.total / kind.usable / memory.GIB):,} GiB"])


def _first_fit(subject: Subject, count: int, work: Work, kind: Kind) -> Model | None:
    usable = usable_bytes(kind)
    for model in _meshes(subject, count, work, kind):
        if fitting_step(model, usable, work)[1].total <= usable:
            return model
    return None
