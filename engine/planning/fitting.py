"""The step that fits, and the settings that make a model fit that does not."""

import dataclasses
from collections.abc import Iterator

from engine.models.config import DecoderConfig
from engine.planning.memory import LEAST_STEP, Account, Model, account
from engine.planning.work import SearchWork, SweepWork

# Candidates per step that `auto` takes where memory allows: docs/decisions/step-and-memory.md.
STEPS = {"cpu": 1024, "gpu": 2048, "tpu": 1024}


def fitting_step(model: Model, usable: float, work: SweepWork) -> tuple[int, Account]:
    """The largest step whose account fits, and the account; the least step where none does.

    A step that the user named is not changed.
    """
    step = work.step_size or STEPS[model.platform]
    while True:
        found = account(model, dataclasses.replace(work, step_size=step))
        if found.total <= usable or work.step_size or step <= LEAST_STEP:
            return step, found
        step //= 2


def ways_to_fit(model: Model, usable: float, work: SweepWork | SearchWork) -> list[str]:
    """Settings each of which makes a model fit that does not, on the same devices."""
    found, count = [], model.data * model.model
    if isinstance(work, SweepWork):
        step, least = fitting_step(model, usable, dataclasses.replace(work, step_size=None))
        if step < (work.step_size or 0) and least.total <= usable:
            found.append(f"step_size={step}")
        unchecked = dataclasses.replace(work, self_check=1)
        if work.self_check > 1 and account(model, unchecked).total <= usable:
            found.append("self_check=1")
    for split in splits(model.config, count):
        other = dataclasses.replace(model, data=count // split, model=split)
        if split > model.model and account(other, work).total <= usable:
            found.append(f"mesh.model={split}")
            break
    for dtype in ("bfloat16", "float16"):
        if account(dataclasses.replace(model, dtype=dtype), work).total <= usable:
            found.append(f"dtype={dtype}")
            break
    return found


def splits(config: DecoderConfig, count: int) -> Iterator[int]:
    """Sizes of the axis `model` that divide the devices and the decoder, ascending."""
    for size in range(1, count + 1):
        if not (count % size or config.num_heads % size or config.ffn_width % size):
            yield size
