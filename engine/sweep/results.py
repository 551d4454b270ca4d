"""A result of the host loop: which rows it has, which of its parts are on disk, how one is read."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from etils import epath

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.progress import progress
from engine.runs import parts, provenance, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.parts import Span
from engine.runs.reader import Json
from engine.scoring.rows import Rows

# Of what computed a part, what decides a number's last bits.
_DECIDING = ("platform", "device_kind", "jaxlib")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One model's numbers for every row under one prompt.

    Attributes:
      checkpoint: the model.
      path: folder of the parts, relative to the run.
      rows: what is scored. Results with the same object are computed in one pass.
      columns: names of the numbers in a part; the first is the reward or log-probability.
      spans: row ranges of the parts that are missing, ascending.
      step_size: candidates per step on each device.
    """

    checkpoint: Checkpoint
    path: str
    rows: Rows
    columns: Sequence[str]
    spans: Sequence[Span]
    step_size: int

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

    A store sends several parts at a time.

    Raises:
      AssayError: a part is damaged, belongs to another result, or holds other row ranges; parts of
        a result that goes on were computed elsewhere, or in one pass with other models.
    """
    present: list[tuple[Result, Span]] = []
    for result in results:
        folder = manifest.run / result.path
        for name in parts.foreign(manifest.names(result.path), len(result.rows), part_size):
            raise AssayError(
                f"{folder / name}: no part of a result of {len(result.rows)} rows with "
                f"part_size={part_size}; remove it and run again"
            )
        missing = set(result.spans)
        spans = parts.ranges(len(result.rows), part_size)
        present += [(result, span) for span in spans if span not in missing]
    together = models_together(results)
    files = [manifest.run / r.path / schema.part_name(*span) for r, span in present]
    with progress(len(files), "parts", what="checking", delay_s=5) as bar:
        for (result, span), data in zip(present, storage.read_ahead(files), strict=True):
            about = _read(manifest, result, span, data).about or {}
            if result.spans:
                models = together[id(result.rows)]
                _check_same(manifest.run / result.path, about, models, manifest.computed_by)
            bar.update()


def models_together(results: Sequence[Result]) -> dict[int, list[str]]:
    """Identity of the rows -> slugs of the models that one pass scores on them.

    Another pass over the same decoder may round differently (1e-6), so the parts of one result are
    all computed by one.
    """
    together: dict[int, list[str]] = {}
    for result in results:
        together.setdefault(id(result.rows), []).append(result.model)
    return {rows: sorted(models) for rows, models in together.items()}


def step_of(results: Sequence[Result]) -> int:
    """Candidates per step of a pass that computes the missing parts of some results.

    Raises:
      AssayError: some were begun with another step than others.
    """
    missing = [result for result in results if result.spans] or results[:1]
    first = missing[0]
    for other in missing:
        if other.step_size != first.step_size:
            raise AssayError(
                f"models {first.model} and {other.model} share a pass, but their results were "
                f"begun with step_size={first.step_size} and {other.step_size}; give each its own "
                "command"
            )
    return first.step_size


def is_checked(manifest: Manifest, path: str) -> bool:
    """Whether a result is complete and passed its self-check; one made from its parts did not."""
    entry = manifest.result(path)
    return entry["complete"] and entry["self_check"] is not None


def read_numbers(manifest: Manifest, result: Result, span: Span) -> np.ndarray:
    """Numbers of a part on disk, checked: float32 [columns, rows]; adopts an unknown part.

    Raises:
      AssayError: as `parts.read_part`, or the part has other columns.
    """
    return _read(manifest, result, span).frame.select(result.columns).to_numpy().T


def _check_same(folder: epath.Path, about: Json, models: list[str], computed_by: Json) -> None:
    """Refuses to go on with a result that was begun where last bits may differ.

    Args:
      folder: of the result.
      about: what one of its parts says.
      models: of the pass that would go on.
      computed_by: what would compute it.

    Raises:
      AssayError: other models share the pass, or it is another kind of device or compiler.
    """
    begun = about.get("together", models)
    if begun != models:
        raise AssayError(
            f"{folder}: begun in one pass with the models {', '.join(begun)}, not "
            f"{', '.join(models)}; give the same models, or remove the folder"
        )
    before = about.get("computed_by", computed_by)
    for name in _DECIDING:
        if before.get(name) != computed_by.get(name):
            raise AssayError(
                f"{folder}: begun with {name}={before.get(name)!r}, not "
                f"{computed_by.get(name)!r}; go on with that, or remove the folder"
            )


def _read(manifest: Manifest, result: Result, span: Span, data: bytes | None = None) -> parts.Table:
    folder, name = manifest.run / result.path, schema.part_name(*span)
    recorded = manifest.recorded(result.path, name)
    wanted = {
        **manifest.about(result.path),
        "rows": provenance.part_rows(*span, len(result.rows)),
    }
    table = parts.read_part(folder, *span, recorded, wanted, data)
    if dict(table.frame.schema) != result.part_columns:
        raise AssayError(f"{folder / name}: other columns than the result's; remove it")
    if recorded is None:  # the process ended between writing the part and the manifest
        manifest.adopt_part(result.path, name, len(table.frame), table.sha256)
    return table
