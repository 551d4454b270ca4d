"""Prints the models that Assay knows, two lines a model. See configs/models.py."""

import itertools
from collections.abc import Sequence

from configs import models
from launch import cli

_TABLES = {
    "Reward models of the paper": models.MODELS,
    "Reward models of the same machinery": models.NEXT,
    "Language models of the paper (launch.logprobs)": models.LANGUAGE_MODELS,
}
_HEADER = (
    ("rank", "nickname", "developer", "base", "size", "head", "BOS", "date", "tensor bytes"),
    ("    ", "hub id", "revision", "dtype"),
)
_LEGEND = """\
rank: RewardBench's. BOS, date: policy of the chat template. dtype: as published, where known.
A conversion that finds another head or other tensor bytes is refused. -: none."""


def main() -> str:
    """The tables of configs/models.py under their titles, the paper's ten first."""
    rows = {title: [_row(spec) for spec in specs.values()] for title, specs in _TABLES.items()}
    lines = zip(_HEADER, *itertools.chain(*rows.values()), strict=True)
    widths = [[max(map(len, cells)) for cells in zip(*line, strict=True)] for line in lines]
    parts = [_text(_HEADER, widths)]
    parts += ["\n".join([title, *(_text(row, widths) for row in table)])
              for title, table in rows.items()]  # fmt: skip
    return "\n\n".join([*parts, _LEGEND])


def _row(spec: models.ModelSpec) -> tuple[tuple[str, ...], ...]:
    rank = "-" if spec.rewardbench_rank is None else str(spec.rewardbench_rank)
    size = "not known" if spec.tensor_bytes is None else f"{spec.tensor_bytes:,}"
    head, date = spec.head or "-", spec.date or "-"
    return (
        (rank, spec.nickname, spec.developer, spec.base, f"{spec.size_b:g}B", head, spec.bos,
         date, size),
        ("", spec.hub_id, spec.revision or "not pinned", spec.dtype),
    )  # fmt: skip


def _text(row: Sequence[Sequence[str]], widths: Sequence[Sequence[int]]) -> str:
    return "\n".join(_line(cells, wide) for cells, wide in zip(row, widths, strict=True))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


if __name__ == "__main__":
    cli.run(main)
