"""Compiles a small decoder with heads of a true size for a TPU slice that is not there.

    python -m tests.compiled.compile_small <folder>

It writes one program for each size of the axis `model`, `score-1.hlo` and `score-2.hlo`. A process
of its own, because the tests' settings of XLA (tests/conftest.py) would change the programs.
"""

import sys
from pathlib import Path

from bench.compiled import chips
from bench.compiled.programs import Programs, Work
from bench.support.heads import linear_head
from engine.models.config import DecoderConfig, Rope

LAYERS = 3
CANDIDATES, OWN = 256, 2
SLICE = "v6e:2x2"
DECODER = DecoderConfig(
    vocab_size=1024,
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


def main(folder: Path) -> None:
    """Writes the programs."""
    for model in (1, 2):
        mesh = chips.mesh_of(SLICE, model)
        work = Work(candidates=CANDIDATES, own=OWN)
        programs = Programs(DECODER, linear_head(DECODER), mesh, "bfloat16", work)
        text = programs.lower("score").compile().as_text()
        (folder / f"score-{model}.hlo").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
