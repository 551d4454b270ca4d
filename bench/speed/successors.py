"""GCG, its successors and a search with a buffer, at equal operations over the whole vocabulary.

    python -m bench.speed.successors [--seeds=5] [--lengths=4,8,16] [--tflop_per_token=0.1]
                                     [--models=<slug>,…] [--method=<name>]… [--kept=<file>]

Every embedded model, both directions, each length and seed: each of `support.methods` searches with
the same number of floating-point operations (engine/planning/flops.py counts them), from the same
random reply. Methods are compared in standard deviations of the model's rewards of single tokens,
pair by pair with the search with a buffer (`gcg`) of the same model, direction, length and seed.

Finished searches are kept in `--kept`, one JSON row each, and not run again. With the settings
above there are 1,050 of them, which take hours. Ctrl-C prints the table of what is there.
"""

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
from absl import app, flags, logging

import engine
from bench.support import embedded_files
from bench.support.methods import BASE, CELL, METHODS, Kept, paired, table
from bench.support.table import machine
from configs.prompts import PROMPTS
from demo.embedded_models import EMBEDDED
from engine.progress import progress
from engine.settings import SearchSettings

_MODELS = flags.DEFINE_list("models", list(EMBEDDED), "Embedded models.")
_METHOD = flags.DEFINE_multi_enum(
    "method", None, list(METHODS), f"A method beside {BASE!r}; may be repeated. All by default."
)
_LENGTHS = flags.DEFINE_list("lengths", ["4", "8", "16"], "Tokens of the replies.")
_SEEDS = flags.DEFINE_integer("seeds", 5, "Searches per cell.", lower_bound=1)
_BUDGET = flags.DEFINE_float(
    "tflop_per_token", 0.1, "Budget of a search, in 1e12 operations a token of the reply."
)
_KEPT = flags.DEFINE_string("kept", "out/successors/rows.jsonl", "File of the finished searches.")
flags.register_validator(
    "models", lambda named: {*named} <= {*EMBEDDED}, f"allowed: {', '.join(EMBEDDED)}"
)
flags.register_validator(
    "lengths", lambda named: all(n.isdecimal() and int(n) for n in named), "allowed: integers >= 1"
)

PROMPT = "greatest"
_SINGLE = 1024  # tokens whose rewards give the unit


@functools.cache
def loaded(slug: str) -> tuple[engine.RewardModel, float, float]:
    """A model, and the mean and standard deviation of its rewards of single tokens."""
    _, checkpoint = embedded_files.files(slug)
    model = engine.load(str(checkpoint.path), dtype="float32")
    tokens = model.vocabulary.filter(~pl.col("is_special"))["token"].sample(_SINGLE, seed=0)
    rewards = np.array(model.score(PROMPTS[PROMPT], tokens.to_list()), np.float64)
    return model, float(rewards.mean()), float(rewards.std())


def searched(cell: dict[str, Any]) -> dict[str, Any]:
    """The row of one search, with what it found in standard deviations."""
    model, mean, sd = loaded(cell["model"])
    own = METHODS[cell["method"]] | {"length": cell["length"], "seed": cell["seed"]}
    steps = model.search(
        PROMPTS[PROMPT], direction=cell["direction"], steps=10**6, flops=cell["flops"], **own
    )
    sign = 1 if cell["direction"] == "max" else -1
    last = steps.row(-1, named=True)
    return cell | {
        "steps": last["step"],
        "reward": last["reward"],
        "text": last["text"],
        "z": round(sign * (last["reward"] - mean) / sd, 4),
    }


def cells() -> list[dict[str, Any]]:
    """Every search, the seeds one after the other: a table of few seeds has every cell."""
    seeds, lengths = range(_SEEDS.value), [int(length) for length in _LENGTHS.value]
    methods = [name for name in METHODS if name in (BASE, *(_METHOD.value or METHODS))]
    each = itertools.product(seeds, lengths, _MODELS.value, ("max", "min"), methods)
    return [
        {
            "model": model,
            "direction": direction,
            "length": length,
            "seed": seed,
            "method": method,
            "prompt": PROMPTS[PROMPT],
            "settings": {
                n: str(v)
                for n, v in dataclasses.asdict(
                    SearchSettings.of(**METHODS[method], direction="max", dtype="float32")
                ).items()
                if n not in ("direction", "dtype")
            },
            "flops": _BUDGET.value * 1e12 * length,
        }
        for seed, length, model, direction, method in each
    ]


def main(_) -> None:
    """Runs the missing searches, then prints the table of those that are asked for."""
    logging.set_verbosity(logging.ERROR)
    print(machine())
    # Searches of a method and a length differ in model, direction and seed: few compile.
    cache = Path(_KEPT.value).resolve().parent / "compiled"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    kept, asked = Kept(Path(_KEPT.value)), cells()
    missing = [cell for cell in asked if Kept.key(cell) not in kept.rows]
    try:
        with progress(len(missing), "searches") as bar:
            for cell in missing:
                kept.add(searched(cell))
                bar.update()
    except KeyboardInterrupt:
        print("stopped: the table is of the searches that had ended")
    done = [kept.rows[Kept.key(cell)] for cell in asked if Kept.key(cell) in kept.rows]
    if not done:
        raise SystemExit("bench: no search has ended")
    rows = pl.DataFrame(done, schema_overrides={"z": pl.Float64}, infer_schema_length=None)
    print(
        f"{len(done):,} of {len(asked):,} searches, {_BUDGET.value:g} TFLOP a token of the reply\n"
    )
    print(table(paired(rows.select(*CELL, "method", "steps", "z"))))


if __name__ == "__main__":
    app.run(main)
