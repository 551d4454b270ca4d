"""Prints the reward models that Assay knows. See configs/models.py."""

from collections.abc import Sequence

from configs import models
from launch import cli

_COLUMNS = ("rank", "nickname", "hub id", "base", "size", "dtype", "BOS", "date")


def main() -> str:
    """The table of configs/models.py, the paper's ten first."""
    rows = [_row(spec) for spec in models.KNOWN.values()]
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    lines = [_line(row, widths) for row in (_COLUMNS, *rows)]
    ten = len(models.MODELS)
    return "\n".join([lines[0], *lines[1 : ten + 1], "", *lines[ten + 1 :]])


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
