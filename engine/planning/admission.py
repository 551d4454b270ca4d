"""Before a model is loaded: does it fit here, and how many candidates does a step have?

A choice depends on the model, the kind of device and its free memory alone: not on the number of
devices along the axis `data`, and on no measured time. So equal machines give equal bytes.
"""

import dataclasses
import math
import os
from collections.abc import Sequence

from jax.sharding import Mesh

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.planning import memory
from engine.planning.free import device_memory, free_disk, free_memory
from engine.planning.memory import STEPS, Model, account, fitting_step, in_words, ways_to_fit
from engine.planning.work import SELF_CHECK, SearchWork, SweepWork
from engine.scoring.batches import SHORT

_PROMPT = 64  # positions of a prompt that is not known yet
_WAY_OUT = "--config.check_memory=false starts anyway"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where models are to be loaded."""

    platform: str  # `cpu`, `gpu` or `tpu`
    data: int  # devices along the mesh axis `data`
    model: int  # devices along the mesh axis `model`
    free: int | None  # bytes of a device, or of the host of a CPU; None where that is not known

    @classmethod
    def of(cls, mesh: Mesh) -> "Place":
        """This machine; of several processes, that of process 0."""
        platform, local = mesh.devices.flat[0].platform, mesh.local_devices
        free = processes.from_first(
            "free memory", lambda: free_memory() if platform == memory.CPU else device_memory(local)
        )
        return cls(platform, mesh.shape["data"], mesh.shape["model"], free)

    @property
    def usable(self) -> float:
        """Bytes that each device may take."""
        return math.inf if self.free is None else self.free

    def holding(self, model: Model, dtype: str) -> Model:
        """The model on the mesh."""
        known = self.platform if self.platform in STEPS else "gpu"
        return model.on(known, dtype, self.data, self.model)

    def splits(self, model: Model) -> bool:
        """Whether the axis `model` splits the decoder evenly; loading a model refuses another."""
        try:
            meshes.check_mesh(self.holding(model, model.stored).mesh, model.config)
        except AssayError:
            return False
        return True


def model_of_checkpoints(group: Sequence[Checkpoint]) -> Model:
    """Models that share a decoder, before they have a mesh; the deepest is the first."""
    cards = [checkpoint.card for checkpoint in group]
    return Model(
        name=", ".join(card.slug for card in cards),
        config=cards[0].decoder,
        heads=tuple(card.head for card in cards),
        stored=cards[0].dtype,
    )


def step_for(
    model: Model,
    place: Place,
    dtype: str,
    prefix: int,
    positions: int | None,
    self_check: int = SELF_CHECK,
) -> int:
    """The candidates of a step on each device that `step_size=auto` takes.

    `prefix` are positions of the longest prompt, `positions` those of a candidate (None: replies of
    any length). The plain pass computes `self_check` conversations at once.
    """
    if not place.splits(model):  # no step is computed
        place = dataclasses.replace(place, model=1)
    work = SweepWork(prefix=prefix, own=positions or SHORT, self_check=self_check)
    return fitting_step(place.holding(model, dtype), place.usable, work)[0]


def refusal(
    model: Model,
    place: Place,
    dtype: str,
    prefix: int,
    positions: int,
    step_size: int,
    self_check: int = SELF_CHECK,
) -> str:
    """Why models cannot be scored here; "" if they can.

    The arguments are those of `step_for`; `positions` are those of the shortest candidate, and
    `step_size` the candidates per step on each device.
    """
    work = SweepWork(prefix=prefix, own=positions, step_size=step_size, self_check=self_check)
    return _refusal(model, place, dtype, work)


def admit(
    checkpoint: Checkpoint, mesh: Mesh, dtype: str, step_size: int | None, *, check: bool
) -> int:
    """The step of a model that is about to be loaded, for prompts that are not known yet.

    A `step_size` of None is chosen. Raises AssayError for a model that is too large, if `check`.
    """
    model, place = model_of_checkpoints([checkpoint]), Place.of(mesh)
    step = step_size
    if step is None:
        step = step_for(model, place, dtype, _PROMPT, None, self_check=1)
    if check and (reason := refusal(model, place, dtype, _PROMPT, 1, step, self_check=1)):
        raise AssayError(reason)
    return step


def check_search(
    checkpoint: Checkpoint, mesh: Mesh, dtype: str, work: SearchWork, beside: float = 0.0
) -> float:
    """Bytes of a model's weights on a device; raises AssayError if it cannot be searched here.

    Other models are going to take `beside` bytes on each device.
    """
    model, place = model_of_checkpoints([checkpoint]), Place.of(mesh)
    if place.free is not None:
        place = dataclasses.replace(place, free=int(place.free - beside))
    if reason := _refusal(model, place, dtype, work):
        raise AssayError(reason)
    return memory.weight_bytes(place.holding(model, dtype)) if place.splits(model) else 0.0


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
    per_disk: dict[int, int] = {}  # of the file systems that are written to
    for what, folder, bytes_ in wanted:
        if (disk := free_disk(folder)) is None:
            continue
        needed = per_disk[disk.number] = per_disk.get(disk.number, 0) + bytes_
        if needed > disk.free:
            raise AssayError(
                f"{model.name}: {what} needs {in_words(needed)} of disk, {in_words(disk.free)} "
                f"are free at {folder}; name another disk, or make room; {_WAY_OUT}"
            )


def _refusal(model: Model, place: Place, dtype: str, work: SweepWork | SearchWork) -> str:
    """Why models do not fit; "" if they do."""
    if not place.splits(model):
        return ""
    placed, usable = place.holding(model, dtype), place.usable
    needed = account(placed, work)
    if needed.total <= usable:
        return ""
    rest = needed.total - needed.weights - needed.step
    would = ways_to_fit(placed, usable, work) or [f"{in_words(needed.total)} of free memory"]
    return (
        f"{model.name}: needs {in_words(needed.total)} of memory on a device in {dtype} "
        f"(weights {in_words(needed.weights)}, a step {in_words(needed.step)}, the rest "
        f"{in_words(rest)}), {in_words(usable)} are free; {' or '.join(would)} would fit; "
        f"{_WAY_OUT}"
    )
