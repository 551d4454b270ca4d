"""Compiles passes of a small decoder with heads of a true size for a TPU that is not there.

    python -m tests.compiled.compile_small <folder> <name> …

It writes <name>.hlo for each name of `PROGRAMS`. A process of its own, because the tests' settings
of XLA (tests/conftest.py) would change the programs; one for several, because a start takes long.
"""

import contextlib
import dataclasses
import sys
import time
from pathlib import Path

from bench.compiled import chips
from bench.compiled.programs import Programs, Work
from bench.support.heads import linear_head
from engine.models.config import DecoderConfig, Rope
from tests.compiled import plants

# So many that a stack of q, 268 MB, exceeds a chip's vector memory: with 3 layers, the compiler
# keeps stacks in there, and a copy of one never reaches HBM. They cost no time, as one loop.
LAYERS = 32
CANDIDATES, OWN, PREFIX = 256, 2, 64
SLICE = "v6e:2x2"
DECODER = DecoderConfig(
    vocab_size=1280,
    width=1024,
    ffn_width=512,
    num_layers=LAYERS,
    num_heads=32,
    num_kv_heads=8,
    head_size=128,
    rms_eps=1e-5,
    rope=Rope(theta=10_000.0),
    max_positions=1024,
)


@dataclasses.dataclass(frozen=True)
class _Case:
    """A pass, the size of the axis `model`, and whether its layers are those of `plants`."""

    work: str
    model: int = 1
    planted: bool = False


PROGRAMS = {
    "score-1": _Case("score"),
    "score-2": _Case("score", model=2),
    "gcg": _Case("gcg"),
    "gcg-2": _Case("gcg", model=2),
    "planted": _Case("score", planted=True),
}


def main(folder: Path, names: list[str]) -> None:
    """Writes the programs."""
    for name in names:
        case = PROGRAMS[name]
        mesh = chips.mesh_of(SLICE, case.model)
        work = Work(candidates=CANDIDATES, own=OWN, prefix=PREFIX, length=2, searched=8)
        with plants.planted() if case.planted else contextlib.nullcontext():
            programs = Programs(DECODER, linear_head(DECODER), mesh, "bfloat16", work)
            text = programs.lower(case.work).compile().as_text()
        (folder / f"{name}.hlo").write_text(text)
        print(name, f"{time.process_time():.0f} s of CPU time", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
