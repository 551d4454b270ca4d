"""A result of the host loop: which rows it has, which of its parts are on disk, how one is read."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.progress import progress
from engine.runs import parts, provenance, schema
from engine.runs.manifest import Manifest
from engine.runs.parts import Span
from engine.scoring.rows import Rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One model's numbers for every row under one prompt.

    Attributes:
      checkpoint: the model.
      path: folder of the parts, relative to the run.
      rows: what is scored. Results with the same object are computed in one pass.
      columns: names of the numbers in a part; the first is the reward or log-probability.
      spans: row ranges of the parts that are missing, ascending.
    """

    checkpoint: Checkpoint
    path: str
    rows: Rows
    columns: Sequence[str]
    spans: Sequence[Span]

    @property
    def model(self) -> str:
        """The model's slug."""
        return self.checkpoint.card.slug

    @property
    def prompt(self) -> str:
        """The prompt's id."""
        return self.path.rsplit("=")[-1]

    @property
    def part_columns(self) -> schema.Columns:
        """Columns of a part and their types."""
        return self.rows.part_columns | schema.objective_columns(self.columns[1:])


def check_present(manifest: Manifest, results: Sequence[Result], part_size: int) -> None:
    """Reads every part of the results that is on disk; enters those that the manifest lacks.

    Raises:
      AssayError: a part is damaged, belongs to another result, or holds other row ranges.
    """
    every = [(r, parts.ranges(len(r.rows), part_size)) for r in results]
    with progress(
        sum(len(spans) for _, spans in every), "parts", what="checking", delay_s=5
    ) as bar:
        for result, spans in every:
            folder = manifest.run / result.path
            for name in parts.foreign(folder, len(result.rows), part_size):
                raise AssayError(
                    f"{folder / name}: no part of a result of {len(result.rows)} rows with "
                    f"part_size={part_size}; remove it and run again"
                )
            missing = set(result.spans)
            for span in spans:
                if span not in missing:
                    read_numbers(manifest, result, span)
                bar.update()


def is_checked(manifest: Manifest, path: str) -> bool:
    """Whether a result is complete and passed its self-check; one made from its parts did not."""
    entry = manifest.result(path)
    return entry["complete"] and entry["self_check"] is not None


def read_numbers(manifest: Manifest, result: Result, span: Span) -> np.ndarray:
    """Numbers of a part on disk, checked: float32 [columns, rows]; adopts an unknown part.

    Raises:
      AssayError: as `parts.read_part`, or the part has other columns.
    """
    folder, name = manifest.run / result.path, schema.part_name(*span)
    recorded = manifest.recorded(result.path, name)
    wanted = {
        **manifest.about(result.path),
        "rows": provenance.part_rows(*span, len(result.rows)),
    }
    table = parts.read_part(folder, *span, recorded, wanted)
    if dict(table.frame.schema) != result.part_columns:
        raise AssayError(f"{folder / name}: other columns than the result's; remove it")
    if recorded is None:  # the process ended between writing the part and the manifest
        manifest.adopt_part(result.path, name, len(table.frame), table.sha256)
    return table.frame.select(result.columns).to_numpy().T
