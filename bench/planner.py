"""The planner against reality: memory and time of embedded models on this CPU, memory on TPUs.

    python -m bench.planner [--demo=out/demo] [--models=<slug>[,…]] [--dtypes=float32,bfloat16]
                            [--searches] [--slices=v5e:2x4]

memory, CPU: a fresh process for each model and dtype imports Assay, then scores a list of replies
  into a run. Measured: its peak resident memory (VmHWM) minus what the imports hold (VmRSS before
  the checkpoint is opened). The compilation cache is off, so that the compiler's memory counts.
time, CPU, float32: in the same process, matmuls of a step's own shapes and steps take turns.
  Predicted: `plans.sweep_seconds` at the rate of the matmuls; measured: the steps. CPU time, since
  other load does not count in it; medians of the rounds.
memory, TPU: the step is compiled for chips that are not there (libtpu), and what its program takes
  is compared with the account. `--slices=` leaves this out.

Fails where a prediction is off by more than the stated tolerance. About a minute per model.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from configs import known_models, known_shapes
from engine.errors import AssayError
from engine.planning import memory
from engine.planning.plans import Subject
from engine.planning.work import SearchWork
from engine.settings import SearchSettings
from launch.common.subjects import subject_of

CPU_TOLERANCE, TPU_TOLERANCE = 0.20, 0.10
PREFIX, OWN = 64, 2  # positions of a step for a TPU

_EMBEDDED = "smollm2-135m-d12-imdb-linear,smollm2-135m-d16-rt-linear"


@dataclasses.dataclass(frozen=True)
class Compared:
    """A prediction and a measurement, in one unit."""

    what: str
    predicted: float
    measured: float
    tolerance: float

    @property
    def error(self) -> float:
        """Relative to what was measured; positive where too much was predicted."""
        return self.predicted / self.measured - 1

    @property
    def holds(self) -> bool:
        """Whether the prediction is within its tolerance."""
        return abs(self.error) <= self.tolerance


def on_cpu(checkpoint: Path, dtype: str, rounds: int, *, search: bool = False) -> list[Compared]:
    """Memory and time of one model in a fresh process; see the module.

    Args:
      checkpoint: the model.
      dtype: of its decoder.
      rounds: of matmuls and steps; 0 measures memory alone.
      search: a search instead of a sweep; its time is not measured.

    Raises:
      AssayError: the process failed; the last line that it said.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment = {**kept, "ASSAY_CACHE": "", "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        asked = [checkpoint, dtype, rounds, "search" if search else "sweep", folder]
        done = subprocess.run(
            [sys.executable, "-m", "bench.support.planned", *map(str, asked)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        said = done.stderr.strip() or f"ended with status {done.returncode}"
        raise AssayError(f"{checkpoint.name}, {dtype}: {said.splitlines()[-1]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return [
        Compared(f"{checkpoint.name}, {dtype}, {name}", predicted, measured, CPU_TOLERANCE)
        for name, (predicted, measured) in found.items()
    ]


def subject_of_slug(slug: str) -> Subject:
    """A model of configs/known_models.py."""
    spec = known_models.KNOWN[slug]
    return subject_of(slug, known_shapes.config_json(spec), spec)


def for_tpu(topology: str, slug: str, model_axis: int, candidates: int) -> Compared:
    """Memory of a step that is compiled for a TPU: the engine's own program, in bfloat16.

    Args:
      topology: chip and shape of a slice, such as `v5e:2x4`.
      slug: of a model of configs/known_models.py.
      model_axis: size of the mesh axis `model`.
      candidates: of a step on each chip.
    """
    from bench.compiled import chips, programs, rows

    mesh = chips.mesh_of(topology, model_axis)
    model = subject_of_slug(slug).on("tpu", "bfloat16", mesh.shape["data"], model_axis)
    work = programs.Work(candidates=candidates, prefix=PREFIX, own=OWN)
    passes = programs.Programs(model.config, model.heads[0], mesh, model.dtype, work)
    plan = passes.lower("score").compile().memory_analysis()
    account = memory.of_scoring(model, prefix=PREFIX, own=OWN, candidates=candidates)
    return Compared(
        f"{slug}, {topology}, model={model_axis}, {candidates} candidates, GiB",
        account.total / memory.GIB,
        rows.hbm_bytes(plan) / memory.GIB,
        TPU_TOLERANCE,
    )


def search_for_tpu(
    topology: str, slug: str, model_axis: int, candidates: int, length: int
) -> Compared:
    """Memory of a step of the default search that is compiled for a TPU, as for `for_tpu`.

    Args:
      topology: chip and shape of a slice.
      slug: of a model of configs/known_models.py.
      model_axis: size of the mesh axis `model`.
      candidates: of a step; there is one attempt.
      length: tokens of the reply.
    """
    from bench.compiled import chips, programs, rows

    mesh = chips.mesh_of(topology, model_axis)
    model = subject_of_slug(slug).on("tpu", "bfloat16", mesh.shape["data"], model_axis)
    work = programs.Work(candidates=1, prefix=PREFIX, own=OWN, length=length, searched=candidates)
    passes = programs.Programs(model.config, model.heads[0], mesh, model.dtype, work)
    method = SearchSettings.method
    plan = passes.lower(method).compile().memory_analysis()
    searched = SearchWork(
        prefix=PREFIX,
        suffix=OWN - 1,
        length=length,
        candidates=candidates,
        attempts=1,
        merged=programs.merged_replies(method, candidates),
    )
    account = memory.of_search(model, searched)
    return Compared(
        f"{slug}, {topology}, model={model_axis}, search {candidates} x {length}, GiB",
        account.total / memory.GIB,
        rows.hbm_bytes(plan) / memory.GIB,
        TPU_TOLERANCE,
    )


def table(rows: Sequence[Compared]) -> str:
    """The comparisons as text."""
    from bench.support.table import aligned

    cells = [("", "predicted", "measured", "error", "allowed")]
    for row in rows:
        numbers = f"{row.predicted:,.4g}", f"{row.measured:,.4g}"
        cells.append((row.what, *numbers, f"{row.error:+.1%}", f"{row.tolerance:.0%}"))
    return aligned(cells)


def main() -> None:
    """Measures everything that is asked for; fails if a prediction does not hold.

    Raises:
      SystemExit: one line that says so, or what was asked wrongly.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--demo", type=Path, default="out/demo", help="folder of the demo")
    parser.add_argument("--models", default=_EMBEDDED, help="embedded models, or none")
    parser.add_argument("--dtypes", default="float32,bfloat16", help="dtypes on the CPU")
    parser.add_argument("--searches", action="store_true", help="measure searches too")
    parser.add_argument("--rounds", type=int, default=5, help="of matmuls and steps; 0: no times")
    parser.add_argument("--slices", default="v5e:2x4", help="TPU slices to compile for, or none")
    asked = parser.parse_args()
    checkpoints = [asked.demo / "checkpoints" / s for s in asked.models.split(",") if s]
    if missing := [folder for folder in checkpoints if not folder.is_dir()]:
        there = sorted(folder.name for folder in asked.demo.glob("checkpoints/*"))
        allowed = ", ".join(there) or "after `make demo`, which converts its models"
        raise SystemExit(f"bench.planner: {str(missing[0])!r} is not there; allowed: {allowed}")
    if asked.rounds < 0:
        raise SystemExit(f"bench.planner: rounds={asked.rounds}; allowed: integers >= 0")
    try:
        rows = _compared(asked, checkpoints)
    except AssayError as error:
        raise SystemExit(f"bench.planner: {error}") from error
    print(table(rows))
    if wrong := [row.what for row in rows if not row.holds]:
        raise SystemExit(f"bench.planner: beyond tolerance: {'; '.join(wrong)}")


def _compared(asked: argparse.Namespace, checkpoints: Sequence[Path]) -> list[Compared]:
    rows: list[Compared] = []
    for checkpoint in checkpoints:
        for dtype in asked.dtypes.split(","):
            # The gain of bfloat16 is measured on a feed-forward alone, not on steps.
            rows += on_cpu(checkpoint, dtype, asked.rounds if dtype == "float32" else 0)
            if asked.searches:
                rows += on_cpu(checkpoint, dtype, 0, search=True)
    for topology in filter(None, asked.slices.split(",")):
        rows.append(for_tpu(topology, "skywork-reward-v2-llama-3.2-1b", 1, 4096))
        rows.append(for_tpu(topology, "skywork-reward-llama-3.1-8b-v0.2", 2, 1024))
        if asked.searches:
            for sizes in ((64, 8), (512, 20)):
                rows.append(search_for_tpu(topology, "skywork-reward-llama-3.1-8b-v0.2", 8, *sizes))
    return rows


if __name__ == "__main__":
    main()
