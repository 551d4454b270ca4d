"""Prints the models that Assay knows. See configs/models.py."""

import itertools
from collections.abc import Sequence

from configs import models
from launch import cli

_TABLES = {
    "Reward models of the paper": models.MODELS,
    "Reward models of the same machinery": models.NEXT,
    "Language models of the paper (launch.logprobs)": models.LANGUAGE_MODELS,
}
_COLUMNS = ("rank", "nickname", "hub id", "base", "size", "dtype", "BOS", "date")


def main() -> str:
    """The tables of configs/models.py under their titles, the paper's ten first."""
    rows = {title: [_row(spec) for spec in specs.values()] for title, specs in _TABLES.items()}
    columns = zip(_COLUMNS, *itertools.chain(*rows.values()), strict=True)
    widths = [max(map(len, column)) for column in columns]
    parts = [[_line(_COLUMNS, widths)]]
    parts += [[title, *(_line(row, widths) for row in table)] for title, table in rows.items()]
    return "\n\n".join("\n".join(part) for part in parts)


def _row(spec: models.ModelSpec) -> tuple[str, ...]:
    rank = "" if spec.rewardbench_rank is None else str(spec.rewardbench_rank)
    revision = f" @{spec.revision[:8]}" if spec.revision else ""
    return (
        rank,
        spec.nickname,
        spec.hub_id + revision,
        spec.base,
        f"{spec.size_b:g}B",
        spec.dtype,
        spec.bos,
        spec.date,
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


if __name__ == "__main__":
    cli.run(main)
