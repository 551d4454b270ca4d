"""What the reward lens costs: CPU time of a pass over the vocabulary with it and without.

    python -m bench.speed.lens [--models=<slug>,…] [--rounds=5] [--candidates=4096]

Both take turns on the same tokens and the same weights, compiled before they are timed, and ratios
are computed within each round. The command fails if a reward differs in any bit, or if the last
layer's is not the reward. About 3 minutes on two cores for the five models of the demo, which share
a pass.
"""

import time

import jax
import numpy as np
from absl import app, flags, logging

from bench.support import embedded_files
from bench.support.table import aligned, machine, spread
from configs.prompts import PROMPTS
from demo.embedded_models import EMBEDDED
from engine.checkpoint.restore import restore, sharing_groups
from engine.mesh import build_mesh
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.scoring.rows import RewardRows
from engine.sweep.rewards import token_rows
from engine.types import Prefix

_MODELS = flags.DEFINE_list("models", list(EMBEDDED), "Embedded models, in as few passes as go.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds; each measures both.", lower_bound=1)
_CANDIDATES = flags.DEFINE_integer("candidates", 4096, "Tokens per round.", lower_bound=64)
_DTYPE = flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Dtype of the decoder.")
_STEP_SIZE = flags.DEFINE_integer("step_size", 1024, "Candidates per step.", lower_bound=1)


def timed(scorer: RewardScorer, prefix: Prefix, rows: RewardRows) -> tuple[float, list[np.ndarray]]:
    """Seconds of CPU time, and the columns of each model."""
    began = time.process_time()
    scored = scorer.score(prefix, rows, 0, len(rows), lambda candidates: None)
    return time.process_time() - began, scored


def check(plain: list[np.ndarray], lens: list[np.ndarray]) -> None:
    """Raises SystemExit where a reward differs in any bit."""
    for a, b in zip(plain, lens, strict=True):
        if a[0].tobytes() != b[0].tobytes() or b[-1].tobytes() != b[0].tobytes():
            raise SystemExit("bench: the lens changed a reward, or its last layer is not one")


def main(_: list[str]) -> None:
    """Measures and prints the table."""
    logging.set_verbosity(logging.WARNING)
    jax.config.update("jax_compilation_cache_dir", None)
    print(machine())
    mesh, table = build_mesh(), [["pass", "CPU s", "range", "ratio", "range"]]
    checkpoints = [embedded_files.files(slug)[1] for slug in _MODELS.value]
    for group in sharing_groups(checkpoints):
        restored = restore(group, mesh, dtype_named(_DTYPE.value))
        step = _STEP_SIZE.value
        ways = [RewardScorer.build(*restored, mesh, step_size=step, lens=x) for x in (False, True)]
        template = group[0].template
        rows = token_rows(template, PROMPTS["greatest"], _CANDIDATES.value, "ids", None)
        prefix = ways[0].prefill(rows.prompt)
        check(*(timed(way, prefix, rows)[1] for way in ways))  # compiled here
        seconds: list[list[float]] = [[], []]
        for number in range(_ROUNDS.value):
            for at in (0, 1) if number % 2 else (1, 0):
                seconds[at].append(timed(ways[at], prefix, rows)[0])
        ratio = np.array(seconds[1]) / np.array(seconds[0])
        name = f"{len(group)} models"
        table.append([name, *spread(seconds[0], "{:.2f}"), "", ""])
        table.append([f"{name}, lens", *spread(seconds[1], "{:.2f}"), *spread(ratio, "{:.3f}")])
    print(aligned(table))


if __name__ == "__main__":
    app.run(main)
