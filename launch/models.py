"""Prints the models that Assay knows, two lines a model. See configs/known_models.py."""

import itertools
import sys
from collections.abc import Sequence

from configs import known_models, known_shapes
from launch.common import command

_TABLES = {
    "Reward models of the paper": known_models.MODELS,
    "Reward models of the same machinery": known_models.NEXT,
    "Language models of the paper (launch.logprobs)": known_models.LANGUAGE_MODELS,
}
_HEADER = (
    ("rank", "nickname", "developer", "base", "size", "head", "BOS", "date", "tensor bytes"),
    ("    ", "hub id", "revision", "dtype"),
)
_LEGEND = """\
rank: RewardBench's. BOS, date: policy of the chat template. -: none.
tensor bytes: as the repository states them, or computed from the shapes. dtype: as far as known.
revision: the commit that is fetched; unpinned: the newest one.
A conversion that finds another head, other shapes or other tensor bytes is refused."""
_COMMIT = 12  # characters of a commit that are shown


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    return command.run("models", argv, lambda given: table(), doc=__doc__)


def table() -> str:
    """The tables of configs/known_models.py under their titles, the paper's ten first."""
    rows = {title: [_row(spec) for spec in specs.values()] for title, specs in _TABLES.items()}
    lines = zip(_HEADER, *itertools.chain(*rows.values()), strict=True)
    widths = [[max(map(len, cells)) for cells in zip(*line, strict=True)] for line in lines]
    parts = [_text(_HEADER, widths)]
    for title, specs in rows.items():
        parts.append("\n".join([title, *(_text(row, widths) for row in specs)]))
    return "\n\n".join([*parts, _LEGEND])


def _row(spec: known_models.ModelSpec) -> tuple[tuple[str, ...], ...]:
    rank = "-" if spec.rewardbench_rank is None else str(spec.rewardbench_rank)
    expected = known_shapes.expected_bytes(spec)
    size = "unknown" if expected is None else f"{expected:,}"
    model = (rank, spec.nickname, spec.developer, spec.base, f"{spec.size_b:g}B")
    policy = (spec.head or "-", spec.bos, spec.date or "-", size)
    revision = spec.revision[:_COMMIT] if spec.revision else "unpinned"
    return (*model, *policy), ("", spec.hub_id, revision, spec.dtype)


def _text(row: Sequence[Sequence[str]], widths: Sequence[Sequence[int]]) -> str:
    return "\n".join(_line(cells, wide) for cells, wide in zip(row, widths, strict=True))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
