"""Compiles passes of a narrow decoder with heads of a true size for a TPU that is not there.

    python -m tests.compiled.compile_small <folder> <name> …

It writes <name>.hlo for each name of `PROGRAMS`. A process of its own, because the tests' settings
of XLA (tests/conftest.py) would change the programs; one for several, because a start takes long.
"""

import contextlib
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bench.compiled import chips
from bench.compiled.programs import Programs, Work
from bench.support.heads import linear_head
from engine import mesh as meshes
from engine.checkpoint import layouts, restore
from engine.models.config import DecoderConfig, Rope
from tests.compiled import plants

# So many that the smallest stack of a chip, 134 MB of k, is as large as its vector memory: smaller
# stacks are kept in there, and a copy of one never reaches HBM. Layers cost no time, as one loop.
# Narrow ones do: at width 1,024 with 32 heads and 256 candidates a step took ten times as long.
LAYERS = 1024
CANDIDATES, OWN, PREFIX = 256, 2, 64
SLICE = "v6e:2x2"
DECODER = DecoderConfig(
    vocab_size=1280,
    width=512,
    ffn_width=512,
    num_layers=LAYERS,
    num_heads=8,
    num_kv_heads=2,
    head_size=128,
    rms_eps=1e-5,
    rope=Rope(theta=10_000.0),
    max_positions=1024,
)
# The step of a search on one chip copies slices of the last layer of narrow decoders, 2.5 MB of
# 4.9 GB, but none of one of this width.
WIDE = dataclasses.replace(DECODER, width=1024, num_layers=32, num_heads=32, num_kv_heads=8)
QUERY = (LAYERS, DECODER.width, DECODER.num_heads * DECODER.head_size)  # the stack that is restored


@dataclasses.dataclass(frozen=True)
class _Case:
    """A pass or `place`, the size of the axis `model`, and whether it has planted faults."""

    work: str
    model: int = 1
    planted: bool = False
    decoder: DecoderConfig = DECODER


PROGRAMS = {
    "prefill-1": _Case("prefill"),
    "prefill-2": _Case("prefill", model=2),
    "score-1": _Case("score"),
    "score-2": _Case("score", model=2),
    "search-1": _Case("gcg-merged", decoder=WIDE),
    "search-2": _Case("gcg-merged", model=2),
    "place-2": _Case("place", model=2),
    "planted-prefill": _Case("prefill", planted=True),
    "planted-score": _Case("score", model=2, planted=True),
    "planted-search": _Case("gcg-merged", model=2, planted=True),
    "planted-place": _Case("place", model=2, planted=True),
}


def main(folder: Path, names: list[str]) -> None:
    """Writes the programs."""
    for name in names:
        case = PROGRAMS[name]
        mesh = chips.mesh_of(SLICE, case.model)
        with plants.planted() if case.planted else contextlib.nullcontext():
            lowered = _placing(mesh) if case.work == "place" else _pass(mesh, case)
            text = lowered.compile().as_text()
        (folder / f"{name}.hlo").write_text(text)
        print(name, f"{time.process_time():.1f} s of CPU time", flush=True)


# Any: jax's class of lowered programs is not public.
def _pass(mesh: Mesh, case: _Case) -> Any:
    decoder = case.decoder
    work = Work(candidates=CANDIDATES, own=OWN, prefix=PREFIX, length=2, searched=8)
    return Programs(decoder, linear_head(decoder), mesh, "bfloat16", work).lower(case.work)


def _placing(mesh: Mesh) -> Any:
    """What writes the query weights of a layer into their stack when a checkpoint is restored."""
    layout, axes = "(NH)D", "LD(NH)"  # in the file, and in the model
    place = restore._place.__wrapped__  # without what was compiled before
    whole, split = (meshes.sharding(mesh, a) for a in (axes, layouts.letters(layout)))
    jitted: Any = place(layouts.permutation(layout, "D(NH)"), -1, 1, whole)
    shape = layouts.split_shape(layout, DECODER.sizes)
    layer = jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=split)
    stack = jax.ShapeDtypeStruct(QUERY, jnp.bfloat16, sharding=whole)
    return jitted.lower(stack, np.int32(1), layer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
