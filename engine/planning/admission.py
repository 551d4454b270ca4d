"""Before a model is loaded: does it fit here, and how many candidates does a step have?

A choice depends on the model, the kind of device and its free memory alone: not on the number of
devices along the axis `data`, and on no measured time. So equal machines give equal bytes.
"""

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence

from jax.sharding import Mesh

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.planning import memory
from engine.planning.machines import DeviceRoom, free_disk, free_memory
from engine.planning.memory import Model, SearchWork, SweepWork, in_words
from engine.scoring.batches import SHORT

_PROMPT = 64  # positions of a prompt that is not known yet
_WAY_OUT = "--config.check_memory=false starts anyway"


def model_of_checkpoints(group: Sequence[Checkpoint]) -> Model:
    """Models that share a decoder, before they have a mesh; the deepest is the first."""
    cards = [checkpoint.card for checkpoint in group]
    heads, names = tuple(card.head for card in cards), ", ".join(card.slug for card in cards)
    return Model(name=names, config=cards[0].decoder, heads=heads, stored=cards[0].dtype)


def refusal(model: Model, work: SweepWork | SearchWork) -> str:
    """Why models do not fit on their devices; "" if they do."""
    needed = memory.account(model, work)
    if needed.total <= model.usable:
        return ""
    rest = needed.total - needed.weights - needed.step
    would = memory.ways_to_fit(model, work) or [f"{in_words(needed.total)} of free memory"]
    return (
        f"{model.name}: needs {in_words(needed.total)} of memory on a device in {model.dtype} "
        f"(weights {in_words(needed.weights)}, a step {in_words(needed.step)}, the rest "
        f"{in_words(rest)}), {in_words(model.usable)} are free; {' or '.join(would)} would fit; "
        f"{_WAY_OUT}"
    )


def admit(
    checkpoint: Checkpoint, mesh: Mesh, dtype: str, step_size: int | None, *, check: bool
) -> int:
    """The step of a model that is about to be loaded, for prompts that are not known yet.

    A `step_size` of None is chosen. Raises AssayError for a model that is too large, if `check`.
    """
    model = model_of_checkpoints([checkpoint]).on(DeviceRoom.of(mesh), dtype)
    work = SweepWork(prefix=_PROMPT, own=SHORT, step_size=step_size, self_check=1)
    step, _ = memory.fitting_step(model, work)
    least = dataclasses.replace(work, own=1, step_size=step)
    if check and (reason := refusal(model, least)):
        raise AssayError(reason)
    return step


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
