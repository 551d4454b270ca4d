"""Prints the decoders and heads that are read, and the models that are known by name.

See configs/known_models.py.
"""

import itertools
import sys
import textwrap
from collections.abc import Sequence

from configs import known_models, known_shapes
from engine.convert import hf_families
from launch.common import command

_TABLES = {
    "Reward models of the paper": known_models.MODELS,
    "Reward models of the same machinery": known_models.NEXT,
    "Language models of the paper (assay logprobs)": known_models.LANGUAGE_MODELS,
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
# Kind of a head -> the tensors by which it is recognised.
HEAD_KINDS = {
    "linear": "one row without bias: score, value_head, v_head, regression_head, score_head",
    "affine": "one row with a bias: the same, v_head.summary; or normalize_reward in config.json",
    "objectives": "several rows, of which --config.reward names the reward",
    "mlp": "score.{0,2} or v_head.summary.{0,2}, ReLU between them",
    "urm": "score and weights.fc.{0,2,4}; --config.head=urm-helpfulness reads its first attribute",
    "gated": "regression_layer and gating: ArmoRM, QRM",
    "logits": "lm_head or the embedding: a linear head with --config.reward, else a language model",
}
_COMMIT = 12  # characters of a commit that are shown
_COLUMNS = 100


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    return command.run("models", argv, lambda given: table(), doc=__doc__)


def table() -> str:
    """What is read, then the tables of configs/known_models.py, the paper's ten first."""
    rows = {title: [_row(spec) for spec in specs.values()] for title, specs in _TABLES.items()}
    lines = zip(_HEADER, *itertools.chain(*rows.values()), strict=True)
    widths = [[max(map(len, cells)) for cells in zip(*line, strict=True)] for line in lines]
    parts = [_read(), _text(_HEADER, widths)]
    for title, specs in rows.items():
        parts.append("\n".join([title, *(_text(row, widths) for row in specs)]))
    return "\n\n".join([*parts, _LEGEND])


def _read() -> str:
    """The decoder families and the kinds of heads that conversion reads."""
    wide = max(map(len, HEAD_KINDS))
    families = f"Decoders that are read (model_type): {', '.join(hf_families.FAMILIES)}"
    return "\n".join(
        [
            *textwrap.wrap(families, _COLUMNS, subsequent_indent="  "),
            "Heads that are read, each in sweeps, lists, searches by gradient and with the lens:",
            *(f"  {kind.ljust(wide)}  {tensors}" for kind, tensors in HEAD_KINDS.items()),
        ]
    )


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
