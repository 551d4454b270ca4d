"""A job: the numbers of one model under one prompt, which of them are missing, and their step."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl
from etils import epath

from engine.checkpoint.card import Checkpoint
from engine.display import progress
from engine.errors import AssayError
from engine.planning import DeviceRoom, Model, SweepWork, fitting_step, refusal
from engine.runs import parts, provenance, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.parts import Span
from engine.runs.reader import Json
from engine.scoring.batches import SHORT
from engine.scoring.rows import Rows
from engine.settings import Settings

# What decides a number's last bits, of all that a part says about what computed it.
_DECIDING = ("platform", "device_kind", "jaxlib")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What a command is to compute of one model under one prompt, and where it lies in the run.

    A command lists jobs; entering them completes their fingerprints and finds what is missing.
    """

    checkpoint: Checkpoint  # the model
    path: str  # folder of the parts, or the file of a search; relative to the run
    fingerprint: Json  # what all parts must agree on; before the job is entered, what was chosen
    missing: Sequence[Span] = ()  # rows of parts not on disk, ascending; of a search's file (0, 1)

    @property
    def model(self) -> str:
        """The model's slug."""
        return self.checkpoint.card.slug

    @property
    def prompt(self) -> str:
        """The prompt's id; the list's name where conversations have prompts of their own."""
        list_name = self.path.split("/")[1]
        return self.path.partition("/prompt=")[2].partition("/")[0] or list_name

    @property
    def direction(self) -> str:
        """Of a search: `max` or `min`."""
        return self.path.partition("/direction=")[2].partition("/")[0]

    @property
    def step_size(self) -> int:
        """Candidates per step on each device."""
        step: int = self.fingerprint["step_size"]
        return step


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsJob(Job):
    """One model's numbers for every row under one prompt."""

    rows: Rows  # what is scored; jobs with the same object are computed in one pass

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers in a part; the first is the reward or log-probability."""
        return (list(self.rows.part_columns)[-1], *schema.columns_beside(self.fingerprint))

    @property
    def part_columns(self) -> schema.Columns:
        """Columns of a part and their types; raises AssayError for names that cannot be columns."""
        return self.rows.part_columns | schema.objective_columns(self.columns[1:])


JobGroup = tuple[RowsJob, ...]  # jobs with the same rows, one per model: computed in one pass


def grouped(jobs: Iterable[RowsJob]) -> list[JobGroup]:
    """Consecutive jobs with the same rows."""
    return [tuple(same) for _, same in itertools.groupby(jobs, key=lambda job: id(job.rows))]


def models_of(group: Iterable[RowsJob]) -> tuple[str, ...]:
    """Slugs of the models of a group."""
    return tuple(job.model for job in group)


def missing_spans(group: JobGroup) -> list[Span]:
    """Row ranges that are missing for at least one model of a group."""
    return sorted({span for job in group for span in job.missing})


def step_of(group: JobGroup) -> int:
    """Candidates per step with which what is missing is computed; raises AssayError for several."""
    first, *rest = [job for job in group if job.missing] or group[:1]
    for other in rest:
        if other.step_size != first.step_size:
            raise AssayError(
                f"models {first.model} and {other.model} share a pass, but their results were "
                f"begun with step_size={first.step_size} and {other.step_size}; give each its own "
                "command"
            )
    return first.step_size


def is_checked(manifest: Manifest, job: RowsJob) -> bool:
    """Whether a job is complete and passed its self-check; a rebuilt entry has none."""
    entry = manifest.result(job.path)
    return entry["complete"] and entry["self_check"] is not None


def check_parts(manifest: Manifest, jobs: Sequence[RowsJob], part_size: int) -> None:
    """Reads and checks every part on disk, and records those that the manifest lacks.

    Raises:
      AssayError: a part is damaged, belongs to another job, or holds other row ranges; parts of an
        unfinished job were computed by another kind of device or compiler, or with other models.
    """
    present: list[tuple[RowsJob, JobGroup, Span]] = []
    for group in grouped(jobs):
        for job in group:
            for name in parts.foreign(manifest.names(job.path), len(job.rows), part_size):
                raise AssayError(
                    f"{manifest.run / job.path / name}: no part of a result of {len(job.rows)} "
                    f"rows with part_size={part_size}; remove it and run again"
                )
            missing = set(job.missing)
            spans = parts.ranges(len(job.rows), part_size)
            present += [(job, group, span) for span in spans if span not in missing]
    files = [manifest.run / job.path / schema.part_name(*span) for job, _, span in present]
    with progress(len(files), "parts", what="checking", delay_s=5) as bar:
        for (job, group, span), data in zip(present, storage.read_ahead(files), strict=True):
            about = read_part(manifest, job.path, span, job.part_columns, data).about
            if job.missing:
                folder, models = manifest.run / job.path, sorted(models_of(group))
                _check_same(folder, about, models, manifest.computed_by)
            bar.update()


def read_numbers(manifest: Manifest, job: RowsJob, spans: Iterable[Span]) -> np.ndarray:
    """Numbers of parts on disk, checked: float32 [columns, rows]; adopts unknown parts."""
    read = (read_part(manifest, job.path, span, job.part_columns).frame for span in spans)
    return np.concatenate([frame.select(job.columns).to_numpy().T for frame in read], axis=1)


def _check_same(folder: epath.Path, about: Json, models: list[str], computed_by: Json) -> None:
    """Raises AssayError for a job whose last bits may differ from those of its part `about`.

    Another pass over the same decoder may round differently (1e-6), so one job's parts all come
    from one pass, of the same models, on one kind of device and with one compiler.
    """
    before = about["together"]
    if before != models:
        raise AssayError(
            f"{folder}: begun in one pass with the models {', '.join(before)}, not "
            f"{', '.join(models)}; give the same models, or remove the folder"
        )
    for name in _DECIDING:
        was, now = about["computed_by"][name], computed_by[name]
        if was != now:
            raise AssayError(
                f"{folder}: begun with {name}={was!r}, not {now!r}; go on with that, or remove the "
                "folder"
            )


def read_part(
    manifest: Manifest,
    path: str,
    span: Span,
    columns: schema.Columns | None = None,
    data: bytes | None = None,
) -> parts.ReadFile:
    """A part of a result, checked; one that the manifest lacks is recorded.

    `data` are its bytes, if they were read already. Raises AssayError for a part that is damaged,
    belongs to something else, or has other columns.
    """
    name, about = schema.part_name(*span), _about(manifest, path, span)
    recorded = manifest.recorded(path, name)
    table = parts.read_frame(manifest.run / path / name, recorded, about, data)
    if columns is not None and dict(table.frame.schema) != columns:
        raise AssayError(
            f"{manifest.run / path / name}: other columns than the result's; remove it"
        )
    if recorded is None:  # the process ended between writing the part and the manifest
        manifest.adopt_part(path, name, len(table.frame), table.sha256)
    return table


def write_part(
    manifest: Manifest, path: str, span: Span, frame: pl.DataFrame, made_with: Json, seconds: float
) -> None:
    """Writes a part of a result with how it was computed, and records it in the manifest."""
    about = _about(manifest, path, span) | made_with | {"computed_by": manifest.computed_by}
    digest = parts.write_part(manifest.run / path, *span, frame, about)
    manifest.record_part(path, schema.part_name(*span), len(frame), digest, seconds)


def _about(manifest: Manifest, path: str, span: Span) -> Json:
    rows = manifest.result(path)["fingerprint"]["rows"]
    return {**manifest.about(path), "rows": provenance.part_rows(*span, rows)}


def choose_step(
    manifest: Manifest, same_models: Sequence[JobGroup], settings: Settings, room: DeviceRoom
) -> int:
    """Candidates per step on each device, for all passes of models that share a decoder.

    It is the step that the settings name; else the step that the run records for these models, so
    that one run has one step; else what memory and the kind of device allow. A recorded step may no
    longer fit: `refusals` says so.
    """
    if settings.step_size is not None:
        return settings.step_size
    folders = {job.path.partition("/prompt=")[0] for group in same_models for job in group}
    for path in sorted(manifest.content["results"]):
        recorded = recorded_step(manifest, path)
        if recorded and path.partition("/prompt=")[0] in folders:
            return recorded
    rows = [group[0].rows for group in same_models]
    positions = 1 + max(len(each.prompt.suffix) for each in rows)
    if any(each.any_length for each in rows):
        positions = SHORT
    model = Model.of([job.checkpoint for job in same_models[0]])
    longest = max(each.context for each in rows)
    work = SweepWork(prefix=longest, own=positions, self_check=settings.self_check)
    try:
        placed = model.on(room, settings.dtype)
    except AssayError:  # a mesh that does not fit the model: `refusals` says so
        placed = model.on(room._replace(model=1), settings.dtype)
    return fitting_step(placed, work)


def recorded_step(manifest: Manifest, path: str) -> int | None:
    """The step of a result that the run holds already."""
    entry = manifest.content["results"].get(path, {})
    step: int | None = entry.get("fingerprint", {}).get("step_size")
    return step


def refusals(
    jobs: Sequence[RowsJob], settings: Settings, room: DeviceRoom
) -> Mapping[tuple[str, ...], str]:
    """Why models cannot be loaded, by the slugs of models that share a pass; empty if all can.

    Only models with missing parts count.

    Raises:
      AssayError: none of them can, or jobs of one group are recorded with different steps.
    """
    reasons: dict[tuple[str, ...], str] = {}
    by_models: dict[tuple[str, ...], list[JobGroup]] = {}
    for group in grouped(jobs):
        if any(job.missing for job in group):
            by_models.setdefault(models_of(group), []).append(group)
    for models, same_models in by_models.items():
        step = max(step_of(group) for group in same_models)
        rows = [group[0].rows for group in same_models]
        model = Model.of([job.checkpoint for job in same_models[0]])
        try:
            placed = model.on(room, settings.dtype)
        except AssayError as error:
            reasons[models] = str(error)
            continue
        work = SweepWork(
            prefix=max(each.context for each in rows),
            own=min(each.shortest_candidate for each in rows),
            step_size=step,
            self_check=min(settings.self_check, max(min(len(r), r.checked_at_once) for r in rows)),
        )
        if settings.check_memory and (reason := refusal(placed, work)):
            reasons[models] = reason
    if reasons and len(reasons) == len(by_models):
        raise AssayError(next(iter(reasons.values())))
    return reasons
