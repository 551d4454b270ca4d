"""A job: one model's numbers for a list of rows under one prompt, and its parts on disk."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

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

# What decides a number's last bits, of all that a part says about what computed it.
_DECIDING = ("platform", "device_kind", "jaxlib")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One model's numbers for every row under one prompt.

    A command lists jobs; `setup.enter` completes their fingerprints and finds what is missing.

    Attributes:
      checkpoint: the model.
      path: folder of the parts, relative to the run.
      rows: what is scored. Jobs with the same object are computed in one pass.
      fingerprint: what all parts must agree on; before `setup.enter`, what the command chose.
      missing: row ranges of the parts that are not on disk, ascending.
    """

    checkpoint: Checkpoint
    path: str
    rows: Rows
    fingerprint: Json
    missing: Sequence[Span] = ()

    @property
    def model(self) -> str:
        """The model's slug."""
        return self.checkpoint.card.slug

    @property
    def prompt(self) -> str:
        """The prompt's id."""
        return self.path.rsplit("=")[-1]

    @property
    def step_size(self) -> int:
        """Candidates per step on each device."""
        step: int = self.fingerprint["step_size"]
        return step

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers in a part; the first is the reward or log-probability."""
        return (list(self.rows.part_columns)[-1], *schema.columns_beside(self.fingerprint))

    @property
    def part_columns(self) -> schema.Columns:
        """Columns of a part and their types; raises AssayError for names that cannot be columns."""
        return self.rows.part_columns | schema.objective_columns(self.columns[1:])


Pass = tuple[Job, ...]  # jobs that one pass over their rows computes, one per model


def passes(jobs: Iterable[Job]) -> list[Pass]:
    """Consecutive jobs with the same rows."""
    return [tuple(same) for _, same in itertools.groupby(jobs, key=lambda job: id(job.rows))]


def models_of(one: Iterable[Job]) -> tuple[str, ...]:
    """Slugs of the models of a pass."""
    return tuple(job.model for job in one)


def missing_spans(one: Pass) -> list[Span]:
    """Row ranges that are missing for at least one model of a pass."""
    return sorted({span for job in one for span in job.missing})


def step_of(one: Pass) -> int:
    """Candidates per step of a pass that computes what is missing.

    Raises:
      AssayError: unfinished jobs of the pass have different step sizes.
    """
    first, *others = [job for job in one if job.missing] or one[:1]
    for other in others:
        if other.step_size != first.step_size:
            raise AssayError(
                f"models {first.model} and {other.model} share a pass, but their results were "
                f"begun with step_size={first.step_size} and {other.step_size}; give each its own "
                "command"
            )
    return first.step_size


def is_checked(manifest: Manifest, job: Job) -> bool:
    """Whether a job is complete and passed its self-check; a rebuilt entry has none."""
    entry = manifest.result(job.path)
    return entry["complete"] and entry["self_check"] is not None


def check_present(manifest: Manifest, jobs: Sequence[Job], part_size: int) -> None:
    """Reads and checks every part on disk, and records those that the manifest lacks.

    Raises:
      AssayError: a part is damaged, belongs to another job, or holds other row ranges; parts of an
        unfinished job were computed by another kind of device or compiler, or with other models.
    """
    present: list[tuple[Job, Pass, Span]] = []
    for one in passes(jobs):
        for job in one:
            for name in parts.foreign(manifest.names(job.path), len(job.rows), part_size):
                raise AssayError(
                    f"{manifest.run / job.path / name}: no part of a result of {len(job.rows)} "
                    f"rows with part_size={part_size}; remove it and run again"
                )
            missing = set(job.missing)
            spans = parts.ranges(len(job.rows), part_size)
            present += [(job, one, span) for span in spans if span not in missing]
    files = [manifest.run / job.path / schema.part_name(*span) for job, _, span in present]
    with progress(len(files), "parts", what="checking", delay_s=5) as bar:
        for (job, one, span), data in zip(present, storage.read_ahead(files), strict=True):
            about = _read(manifest, job, span, data).about or {}
            if job.missing:
                folder, models = manifest.run / job.path, sorted(models_of(one))
                _check_same(folder, about, models, manifest.computed_by)
            bar.update()


def read_numbers(manifest: Manifest, job: Job, spans: Iterable[Span]) -> np.ndarray:
    """Numbers of parts on disk, checked: float32 [columns, rows]; adopts unknown parts.

    Raises:
      AssayError: as `parts.read_part`, or a part has other columns.
    """
    frames = [_read(manifest, job, span).frame.select(job.columns) for span in spans]
    return np.concatenate([frame.to_numpy().T for frame in frames], axis=1)


def _check_same(folder: epath.Path, about: Json, models: list[str], computed_by: Json) -> None:
    """Refuses to go on with a job where last bits may differ from those of its parts.

    Another pass over the same decoder may round differently (1e-6), so the parts of one job are all
    computed by one.

    Args:
      folder: of the job.
      about: what one of its parts says.
      models: of the pass that would go on.
      computed_by: what would compute it.

    Raises:
      AssayError: other models share the pass, or it is another kind of device or compiler.
    """
    before = about.get("together", models)
    if before != models:
        raise AssayError(
            f"{folder}: begun in one pass with the models {', '.join(before)}, not "
            f"{', '.join(models)}; give the same models, or remove the folder"
        )
    for name in _DECIDING:
        was, now = about.get("computed_by", computed_by).get(name), computed_by.get(name)
        if was != now:
            raise AssayError(
                f"{folder}: begun with {name}={was!r}, not {now!r}; go on with that, or remove the "
                "folder"
            )


def _read(manifest: Manifest, job: Job, span: Span, data: bytes | None = None) -> parts.Table:
    folder, name = manifest.run / job.path, schema.part_name(*span)
    recorded = manifest.recorded(job.path, name)
    wanted = {**manifest.about(job.path), "rows": provenance.part_rows(*span, len(job.rows))}
    table = parts.read_part(folder, *span, recorded, wanted, data)
    if dict(table.frame.schema) != job.part_columns:
        raise AssayError(f"{folder / name}: other columns than the result's; remove it")
    if recorded is None:  # the process ended between writing the part and the manifest
        manifest.adopt_part(job.path, name, len(table.frame), table.sha256)
    return table
