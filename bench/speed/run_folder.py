"""What a run folder costs: parts, their hashes, the manifest; beside the cost of the bytes alone.

    python -m bench.speed.run_folder [--parts=1000,3000,10000] [--folder=/tmp]

Two tables. The first has runs of more and more small parts, 250 to a result, without any device
work: the time per part stays the same, so a run's cost is linear in its parts. The floor writes
files of the same size, synced and renamed, and nothing else. `again` is the same command on the
complete run, which reads and checks every part. The second has parts of 16,384 rows whose 16 steps
take 10 ms each: the share of the time that the run folder adds. About a minute and a half.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time
import types

import numpy as np
from etils import epath

from engine.mesh import build_mesh
from engine.runs import parts, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.provenance import library_versions
from engine.scoring.rows import TokenRows
from engine.sweep import loop
from engine.sweep.results import Result
from engine.sweep.setup import begin
from engine.types import PromptIds

PROMPT = PromptIds(prompt="What?", prefix=tuple(range(60)), suffix=(1, 2))
CARD = types.SimpleNamespace(slug="m", checkpoint_hash="0" * 64)
PART_S = 0.16  # 16 steps of 1,024 candidates and 10 ms


class Scorer:
    """Stands for models on devices: its numbers are made up, and a part takes `part_s`."""

    def __init__(self, part_s: float):
        self.part_s, self.spent_s = part_s, 0.0

    def prefill(self, prompt):
        """Nothing."""
        return None

    def coefficients(self, prefix):
        """No gate."""
        return [None]

    def score(self, prefix, rows, start, stop, advance):
        """Waits, as for a device."""
        began = time.perf_counter()
        time.sleep(self.part_s)
        numbers = self._numbers(np.arange(start, stop))
        self.spent_s += time.perf_counter() - began
        return [numbers]

    def score_plainly(self, rows, sample):
        """The same numbers, at once."""
        return [self._numbers(np.array(sample))]

    def _numbers(self, rows):
        return np.sin(rows * 12.9898)[None].astype(np.float32)


def sweep(
    run: pathlib.Path, results: int, parts_each: int, rows: int, part_s: float
) -> tuple[float, float]:
    """Computes what is missing of a run, as `engine.sweep.rewards` does.

    Returns:
      Seconds of the host loop, and of the steps in it.
    """
    settings = loop.Settings(dtype="float32", step_size=1, part_size=rows, self_check=16, seed=0)
    manifest = Manifest.open(str(run))
    manifest.environment = manifest.computed_by = library_versions()
    manifest.admit("models", "m", {"checkpoint_hash": CARD.checkpoint_hash, "vocab": None})
    every = []
    for number in range(results):
        path, listed = (
            schema.scores_path("m", f"p{number}"),
            TokenRows(PROMPT, range(rows * parts_each)),
        )
        manifest.admit("prompts", f"p{number}", "What?")
        fingerprint = {"prefix_ids": list(PROMPT.prefix), "rows": len(listed), "part_size": rows}
        manifest.admit_result(path, fingerprint)
        spans = parts.missing(manifest.names(path), len(listed), rows)
        model = types.SimpleNamespace(card=CARD)
        result = Result(
            checkpoint=model,
            path=path,
            rows=listed,
            columns=["reward"],
            spans=spans,
            step_size=settings.step_size,
        )
        every.append(result)
        assert listed.distinct  # the token ids of the steps, which are no part of the run folder
    begin(manifest, {}, every, rows)
    scorer = Scorer(part_s)
    began = time.perf_counter()
    loop.run(manifest, every, lambda models, step: scorer, settings, build_mesh())
    return time.perf_counter() - began, scorer.spent_s


def floor(folder: pathlib.Path, files: int, size: int) -> float:
    """Seconds that as many files of that size take."""
    data, began = os.urandom(size), time.perf_counter()
    for number in range(files):
        storage.write_atomic(epath.Path(folder / str(number // 250) / str(number)), data)
    return time.perf_counter() - began


def measured(folder: pathlib.Path, count: int):
    """One row of the first table."""
    saves, original = [], Manifest.save

    def save(self):
        began = time.perf_counter()
        original(self)
        saves.append(time.perf_counter() - began)

    Manifest.save = save
    try:
        began, busy = time.perf_counter(), time.process_time()
        sweep(folder / "run", count // 250, 250, 100, 0.0)
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
    finally:
        Manifest.save = original
    began = time.perf_counter()
    sweep(folder / "run", count // 250, 250, 100, 0.0)
    again = time.perf_counter() - began
    size = next((folder / "run").glob("scores/*/*/*")).stat().st_size
    alone = floor(folder / "floor", count, size)
    manifest = (folder / "run" / schema.MANIFEST).stat().st_size
    each = (f"{1000 * s / count:.2f}" for s in (seconds, busy, alone, again))
    return f"{count:,}", *each, f"{len(saves)}", f"{sum(saves):.2f}", f"{manifest / 2**20:.1f}"


def share(folder: pathlib.Path, results: int = 6, parts_each: int = 8):
    """One row of the second table."""
    busy = time.process_time()
    seconds, steps = sweep(folder / "run", results, parts_each, 16_384, PART_S)
    busy = time.process_time() - busy
    count = results * parts_each
    added = seconds - steps
    return (
        f"{count}",
        f"{seconds:.2f}",
        f"{1000 * added / count:.2f}",
        f"{100 * added / seconds:.2f} %",
        f"{1000 * busy / count:.2f}",
    )


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="1000,3000,10000", help="numbers of parts")
    parser.add_argument("--folder", help="where the runs are written; they are removed again")
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"command   python -m bench.speed.run_folder {' '.join(sys.argv[1:])}".rstrip())
    print(f"machine   {len(os.sched_getaffinity(0))} cores, load {load:.1f} at the start\n")
    layout = "{:>8}{:>10}{:>10}{:>10}{:>10}{:>8}{:>10}{:>14}"
    heads = (
        "parts",
        "ms/part",
        "CPU ms",
        "floor ms",
        "again ms",
        "saves",
        "saving s",
        "manifest MiB",
    )
    print(layout.format(*heads))
    for count in map(int, chosen.parts.split(",")):
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            print(layout.format(*measured(pathlib.Path(folder), count)), flush=True)
    layout = "{:>8}{:>10}{:>16}{:>10}{:>14}"
    print("\n" + layout.format("parts", "seconds", "added ms/part", "share", "CPU ms/part"))
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        print(layout.format(*share(pathlib.Path(folder))))


if __name__ == "__main__":
    main()
