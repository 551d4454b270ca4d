"""Search methods that are compared at equal operations: their settings, rows and table."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.stats

from bench.support.table import aligned

# `gcg-original` is GCG as published (Zou et al. 2023), but for its 512 candidates.
_ORIGINAL = {"method": "gcg-original"}
_BUFFER = {"method": "gcg"}
BASE = "gcg"  # beside which the others are put
# Settings that are not their method's defaults; Any: of several types.
METHODS: dict[str, dict[str, Any]] = {
    BASE: _BUFFER,
    "gcg-original": _ORIGINAL,
    "gcg-original, momentum (MAC)": _ORIGINAL | {"momentum": 0.4},
    "gcg-original, half of the layers screen (probe sampling)": _ORIGINAL | {"screen": 8},
    "gcg-merged (I-GCG)": {"method": "gcg-merged"},
    "gcg, momentum": _BUFFER | {"momentum": 0.4},
    "gcg, 7 best merged": _BUFFER | {"merge": 7},
}
CELL = ["model", "direction", "length", "seed"]


class Kept:
    """Rows of finished searches in a file, one JSON object a line."""

    def __init__(self, file: Path):
        self.file = file
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        self.rows = {self.key(row): row for row in map(json.loads, lines)}

    @staticmethod
    def key(row: dict[str, Any]) -> str:
        """What a search is known by: its cell, prompt, budget and every setting."""
        names = (*CELL, "method", "prompt", "flops", "settings")
        return json.dumps([row[name] for name in names], sort_keys=True)

    def add(self, row: dict[str, Any]) -> None:
        """Keeps a row, in the file at once."""
        self.rows[self.key(row)] = row
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")


def paired(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Each method against the base, over the cells that have both.

    Args:
      rows: model, direction, length, seed, method, steps and z.

    Returns:
      For each method in the order of `METHODS`: method, pairs, steps (median), z (mean), the mean
      difference to the base, the ends of an interval that holds for all methods together with
      95 % (Student's t over the models' means, Bonferroni; models, not seeds, are the sample), the
      difference by length, and the share of the pairs in which the method found more (of equal ones
      half).
    """
    methods = [name for name in METHODS if name in rows["method"].unique()]
    wide = rows.pivot("method", index=CELL, values=["z", "steps"], separator="/")
    return [_against_base(wide, name, max(1, len(methods) - 1)) for name in methods]


def _against_base(wide: pl.DataFrame, method: str, tests: int) -> dict[str, Any]:
    both = wide.drop_nulls([f"z/{method}", f"z/{BASE}"])
    both = both.with_columns(gain=pl.col(f"z/{method}") - pl.col(f"z/{BASE}"))
    gain, by_model = both["gain"].to_numpy(), _means(both, "model")
    models, half = np.array(list(by_model.values())), math.nan
    if len(models) > 1:
        quantile = scipy.stats.t.ppf(1 - 0.025 / tests, len(models) - 1)
        half = quantile * models.std(ddof=1) / math.sqrt(len(models))
    return {
        "method": method,
        "pairs": len(gain),
        "steps": float(np.median(both[f"steps/{method}"].to_numpy())),
        "z": float(both[f"z/{method}"].to_numpy().mean()),
        "gain": float(models.mean()),
        "low": float(models.mean() - half),
        "high": float(models.mean() + half),
        "by_length": _means(both, "length"),
        "more": float(((gain > 0) + 0.5 * (gain == 0)).mean()),
    }


def _means(both: pl.DataFrame, by: str) -> dict[Any, float]:
    return dict(both.group_by(by).agg(pl.col("gain").mean()).sort(by).iter_rows())


def table(found: Sequence[dict[str, Any]]) -> str:
    """The results of `paired` as text."""
    lengths = sorted({length for row in found for length in row["by_length"]})
    header = ("method", "pairs", "steps", "mean, sd", "against gcg", "95 %", "better in")
    body = [
        (
            row["method"],
            f"{row['pairs']}",
            f"{row['steps']:.0f}",
            f"{row['z']:.2f}",
            f"{row['gain']:+.2f}",
            f"{row['low']:+.2f}..{row['high']:+.2f}",
            f"{row['more']:.0%}",
            *(f"{row['by_length'].get(length, float('nan')):+.2f}" for length in lengths),
        )
        for row in found
    ]
    return aligned([(*header, *(f"{length} tokens" for length in lengths)), *body])
