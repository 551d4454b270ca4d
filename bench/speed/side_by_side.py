"""Many small models on one host: one process for all of them, or shards side by side.

    python -m bench.speed.side_by_side [--models=10] [--rounds=3] [--distinct] [--replies=0]

Models of random weights, each with a decoder of its own, score their vocabulary or a list of
replies in three ways, in turns: one command that uses every core; as many shards as cores, each
bound to one core; the same shards, each free to use every core. A core stands for a device. Every
command compiles for itself, as on the first day. The table has seconds of the wall clock and of CPU
time; where other jobs run, the second say more.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from bench.support.table import aligned, machine, spread
from tests.support import folders, tiny

_MODELS = flags.DEFINE_integer("models", 10, "Models, each on a decoder of its own.")
_LAYERS = flags.DEFINE_integer("layers", 8, "Layers of a model.")
_DISTINCT = flags.DEFINE_bool(
    "distinct", False, "A layer more for each model: none shares programs."
)
_WIDTH = flags.DEFINE_integer("width", 256, "Width of a model.")
_REPLIES = flags.DEFINE_integer("replies", 0, "Replies of a list; 0: the vocabulary.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds; each goes every way once.", lower_bound=1)

ROOT = Path(__file__).resolve().parents[2]
WAYS = ("one process, all cores", "shards, a core each", "shards, all cores each")


def models(folder: Path) -> list[Path]:
    """Converts models whose decoders differ."""
    width, made = _WIDTH.value, []
    for seed in range(_MODELS.value):
        shape = {
            "hidden_size": width,
            "intermediate_size": 3 * width,
            "num_hidden_layers": _LAYERS.value + seed * _DISTINCT.value,
            "num_attention_heads": width // 32,
            "num_key_value_heads": width // 64,
            "head_dim": 32,
        }
        source = tiny.write_model(folder / f"hf-{seed}", seed=seed, **shape)
        made.append(folder / f"model-{seed}")
        folders.convert(source, made[-1], f"model-{seed}")
    return made


def commands(way: str, arguments: Sequence[str], cores: Sequence[int]) -> list[list[str]]:
    """What is started at the same time."""
    command = [sys.executable, "-m", "launch", *arguments]
    if way == WAYS[0]:
        return [command]
    shards = [[*command, f"--shard={k}/{len(cores)}"] for k in range(1, len(cores) + 1)]
    if way == WAYS[2]:
        return shards
    return [["taskset", "-c", str(c), *shard] for c, shard in zip(cores, shards, strict=True)]


def timed(started: Sequence[Sequence[str]], folder: Path) -> tuple[float, float]:
    """Runs commands at the same time; returns seconds of the wall clock and of CPU time."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ASSAY_CACHE": ""}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    running = []
    for number, command in enumerate(started):
        with open(folder / f"log-{number}", "w") as log:
            running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    if any(process.wait() for process in running):
        sys.exit((folder / "log-0").read_text())
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(_) -> None:
    """Prints the table."""
    cores = sorted(os.sched_getaffinity(0))
    print(machine())
    measured: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = ["sweep", "--config.prompts=greatest", f"--run={folder}/run"]
        arguments.append("--checkpoint=" + ",".join(map(str, models(folder))))
        if _REPLIES.value:
            items = folder / "items.txt"
            items.write_text(
                "\n".join(f"reply {i} {'so ' * (i % 9)}" for i in range(_REPLIES.value))
            )
            arguments[0] = "score"
            arguments.append(f"--items={items}")
        for _ in range(_ROUNDS.value):
            for way in WAYS:
                measured[way].append(timed(commands(way, arguments, cores), folder))
                shutil.rmtree(folder / "run")
    rows = [("way", "seconds", "min..max", "CPU seconds", "min..max")]
    for way, each in measured.items():
        wall, busy = zip(*each, strict=True)
        rows.append((way, *spread(wall, "{:.1f}"), *spread(busy, "{:.1f}")))
    print(aligned(rows))


if __name__ == "__main__":
    app.run(main)
