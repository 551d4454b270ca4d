"""Before a model is loaded: does it fit here, and how many candidates does a step have?

A choice depends on the model, the kind of device and its free memory alone: not on the number of
devices along the axis `data`, and on no measured time. So equal machines give equal bytes.
"""

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Sequence

from jax.sharding import Mesh

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.planning import memory
from engine.planning.machines import free_disk, free_memory
from engine.planning.memory import Model, SearchWork, SweepWork, in_words
from engine.scoring.batches import SHORT

_PROMPT = 64  # positions of a prompt that is not known yet
_WAY_OUT = "--config.check_memory=false starts anyway"


@dataclasses.dataclass(frozen=True)
class DeviceRoom:
    """The devices that models are to be loaded on, and their free memory."""

    platform: str  # `cpu`, `gpu` or `tpu`
    data: int  # devices along the mesh axis `data`
    model: int  # devices along the mesh axis `model`
    usable: float  # bytes of a device, or of the host of a CPU; infinite where that is not known

    @classmethod
    def of(cls, mesh: Mesh) -> "DeviceRoom":
        """This machine; of several processes, that of process 0."""
        platform = mesh.devices.flat[0].platform
        usable = processes.from_first("free memory", lambda: _usable(mesh, platform))
        known = platform if platform in memory.STEPS else "gpu"
        return cls(known, mesh.shape["data"], mesh.shape["model"], usable)

    def holding(self, model: Model, dtype: str) -> Model:
        """The model on the mesh."""
        return model.on(self.platform, dtype, self.data, self.model)

    def splits(self, model: Model) -> bool:
        """Whether the axis `model` splits the decoder evenly; loading a model refuses another."""
        return self.model in memory.splits(model.config, self.data * self.model)


def model_of_checkpoints(group: Sequence[Checkpoint]) -> Model:
    """Models that share a decoder, before they have a mesh; the deepest is the first."""
    cards = [checkpoint.card for checkpoint in group]
    heads, names = tuple(card.head for card in cards), ", ".join(card.slug for card in cards)
    return Model(name=names, config=cards[0].decoder, heads=heads, stored=cards[0].dtype)


def step_for(model: Model, room: DeviceRoom, dtype: str, work: SweepWork) -> int:
    """The candidates of a step on each device that `step_size=auto` takes."""
    if not room.splits(model):  # no step is computed
        room = dataclasses.replace(room, model=1)
    return memory.fitting_step(room.holding(model, dtype), room.usable, work)[0]


def refusal(model: Model, room: DeviceRoom, dtype: str, work: SweepWork | SearchWork) -> str:
    """Why models do not fit here; "" if they do."""
    if not room.splits(model):
        return ""
    placed = room.holding(model, dtype)
    needed = memory.account(placed, work)
    if needed.total <= room.usable:
        return ""
    rest = needed.total - needed.weights - needed.step
    would = memory.ways_to_fit(placed, room.usable, work)
    would = would or [f"{in_words(needed.total)} of free memory"]
    return (
        f"{model.name}: needs {in_words(needed.total)} of memory on a device in {dtype} "
        f"(weights {in_words(needed.weights)}, a step {in_words(needed.step)}, the rest "
        f"{in_words(rest)}), {in_words(room.usable)} are free; {' or '.join(would)} would fit; "
        f"{_WAY_OUT}"
    )


def admit(
    checkpoint: Checkpoint, mesh: Mesh, dtype: str, step_size: int | None, *, check: bool
) -> int:
    """The step of a model that is about to be loaded, for prompts that are not known yet.

    A `step_size` of None is chosen. Raises AssayError for a model that is too large, if `check`.
    """
    model, room = model_of_checkpoints([checkpoint]), DeviceRoom.of(mesh)
    work = SweepWork(prefix=_PROMPT, own=SHORT, self_check=1)
    step = step_size or step_for(model, room, dtype, work)
    least = dataclasses.replace(work, own=1, step_size=step)
    if check and (reason := refusal(model, room, dtype, least)):
        raise AssayError(reason)
    return step


def check_search(
    checkpoint: Checkpoint, mesh: Mesh, dtype: str, work: SearchWork, beside: float = 0.0
) -> float:
    """Bytes of a model's weights on a device; raises AssayError if it cannot be searched here.

    Other models are going to take `beside` bytes on each device.
    """
    model, room = model_of_checkpoints([checkpoint]), DeviceRoom.of(mesh)
    room = dataclasses.replace(room, usable=room.usable - beside)
    if reason := refusal(model, room, dtype, work):
        raise AssayError(reason)
    return memory.weight_bytes(room.holding(model, dtype)) if room.splits(model) else 0.0


def check_conversion(
    model: Model,
    destination: str | os.PathLike[str] | None,
    *,
    download: bool,
    cached: int = 0,
    cache: str | os.PathLike[str] | None = None,
) -> None:
    """Checks host memory and disk before anything is downloaded, read or written.

    The checkpoint goes to `destination`, if it is on a local disk. With `download` the weights are
    fetched into `cache`, None for the hub's, which holds `cached` bytes of them already.

    Raises:
      AssayError: too little of either.
    """
    needed, free = memory.host_bytes(model), free_memory()
    if free is not None and needed > free:
        raise AssayError(
            f"{model.name}: converting needs {in_words(needed)} of memory, {in_words(free)} are "
            f"free; a machine with {in_words(needed)} free would do; {_WAY_OUT}"
        )
    size = memory.checkpoint_bytes(model)
    wanted = [] if destination is None else [("the checkpoint", destination, size)]
    if download:
        from huggingface_hub.constants import HF_HUB_CACHE  # slow to import

        wanted.append(("the download", cache or HF_HUB_CACHE, max(0, size - cached)))
    per_disk: Counter[int] = Counter()
    for what, folder, more in wanted:
        disk = free_disk(folder)
        per_disk[disk.number] += more
        if per_disk[disk.number] > disk.free:
            raise AssayError(
                f"{model.name}: {what} needs {in_words(per_disk[disk.number])} of disk, "
                f"{in_words(disk.free)} are free at {folder}; name another disk, or make room; "
                f"{_WAY_OUT}"
            )


def _usable(mesh: Mesh, platform: str) -> float:
    """Free bytes of the host of a CPU, or of the fullest local accelerator, where it tells them."""
    if platform == memory.CPU:
        free = free_memory()
        return math.inf if free is None else free
    stats = [device.memory_stats() or {} for device in mesh.local_devices]
    if not all("bytes_limit" in one for one in stats):
        return math.inf
    return min(int(one["bytes_limit"]) - int(one.get("bytes_in_use", 0)) for one in stats)
