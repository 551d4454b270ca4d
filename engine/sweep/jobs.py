"""A job: the numbers of one model under one prompt, which of them are missing, and their step."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.display import progress
from engine.errors import AssayError
from engine.planning import DeviceRoom, Model, SweepWork, fitting_step, refusal
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.runs.identity import Identity
from engine.runs.result import Span
from engine.scoring.batches import SHORT
from engine.scoring.rows import Rows
from engine.settings import SearchSettings, Settings, settings_identity
from engine.types import PromptIds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What a command is to compute of one model under one prompt, and where it lies in the run.

    A command lists jobs; entering them finds what is missing.
    """

    checkpoint: Checkpoint  # the model
    path: str  # folder of the result, relative to the run
    identity: Identity  # what all parts must agree on
    missing: Sequence[Span] = ()  # rows of parts not on disk, ascending; of a search (0, 1)

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


def identity_of(
    checkpoint: Checkpoint,
    prompt: PromptIds,
    settings: Settings | SearchSettings,
    **resolved: Any,  # of the fields of `Identity`
) -> Identity:
    """The identity of a model's result: its checkpoint, ids around the reply, and settings.

    `resolved` replaces settings that depend on the model, such as `mode=auto`.
    """
    chosen = settings_identity(settings)
    if isinstance(settings, SearchSettings):
        chosen = {"dtype": chosen["dtype"], "search": resolved.pop("search", chosen)}
    return Identity(
        **checkpoint.card.identity,
        prefix_ids=(prompt.prefix,) if prompt.prefix else (),
        suffix_ids=prompt.suffix,
        **(chosen | resolved),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsJob(Job):
    """One model's numbers for every row under one prompt."""

    rows: Rows  # what is scored; jobs with the same object are computed in one pass
    checked: bool = False  # whether it is complete, and was compared with the plain pass
    step_size: int = 0  # candidates per step on each device

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers in a part; the first is the reward or log-probability."""
        beside = (*self.identity.objectives, *schema.lens_columns(self.identity.lens))
        return (list(self.rows.part_columns)[-1], *beside)

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


def missing_of_any(group: JobGroup) -> list[Span]:
    """Row ranges that are missing for at least one model of a group."""
    return sorted({span for job in group for span in job.missing})


def read_parts(folder: RunFolder, jobs: Iterable[RowsJob]) -> None:
    """Reads and checks every part that the results of jobs have.

    Raises AssayError for a part that is damaged, or that belongs to something else.
    """
    results = [folder.results[job.path] for job in jobs]
    present = [(result, name) for result in results for name in result.parts]
    files = [result.folder / name for result, name in present]
    with progress(len(files), "parts", what="checking", delay_s=5) as bar:
        for (result, name), data in zip(present, storage.read_ahead(files), strict=True):
            result.frame(name, data)
            bar.update()


def recorded_step(folder: RunFolder, job: RowsJob) -> int | None:
    """The step with which the run computed the job's model on a device of this kind.

    Of the job's result, else of another prompt's. So one run has one step, and a result that goes
    on has the bytes of one that was never stopped.
    """
    same_model, device = job.path.partition("/prompt=")[0], ("platform", "device_kind")
    paths = [path for path in folder.results if path.partition("/prompt=")[0] == same_model]
    for path in sorted(paths, key=lambda path: (path != job.path, path)):
        for way in reversed(folder.results[path].ways):
            step = way.get("step_size")
            if isinstance(step, int) and all(way.get(k) == folder.way.get(k) for k in device):
                return step
    return None


def choose_step(
    same_models: Sequence[JobGroup],
    recorded: Iterable[int | None],
    settings: Settings,
    room: DeviceRoom,
) -> int:
    """Candidates per step on each device, for all passes of models that share a decoder.

    It is the step that the settings name; else the first that the run has `recorded`; else what
    memory and the kind of device allow. A recorded step may no longer fit: `refusals` says so.
    """
    known = next(filter(None, recorded), None)
    if settings.step_size is not None or known:
        return settings.step_size or known or 0
    rows = [group[0].rows for group in same_models]
    positions = 1 + max(len(r.prompt.suffix) for r in rows)
    if any(r.any_length for r in rows):
        positions = SHORT
    model = Model.of([job.checkpoint for job in same_models[0]])
    longest = max(r.context for r in rows)
    work = SweepWork(prefix=longest, own=positions, self_check=settings.self_check)
    try:
        placed = model.on(room, settings.dtype)
    except AssayError:  # a mesh that does not fit the model: `refusals` says so
        placed = model.on(room._replace(model=1), settings.dtype)
    return fitting_step(placed, work)


def refusals(
    jobs: Sequence[RowsJob], settings: Settings, room: DeviceRoom
) -> Mapping[tuple[str, ...], str]:
    """Why models cannot be loaded, by the slugs of models that share a pass; empty if all can.

    Only models with missing parts count.

    Raises AssayError where none of them can, or with several processes where one cannot.
    """
    reasons: dict[tuple[str, ...], str] = {}
    by_models: dict[tuple[str, ...], list[JobGroup]] = {}
    for group in grouped(jobs):
        if any(job.missing for job in group):
            by_models.setdefault(models_of(group), []).append(group)
    for models, same_models in by_models.items():
        step = same_models[0][0].step_size
        rows = [group[0].rows for group in same_models]
        model = Model.of([job.checkpoint for job in same_models[0]])
        try:
            placed = model.on(room, settings.dtype)
        except AssayError as error:
            reasons[models] = str(error)
            continue
        work = SweepWork(
            prefix=max(r.context for r in rows),
            own=min(r.shortest_candidate for r in rows),
            step_size=step,
            self_check=max(
                min(settings.self_check, len(r), r.checked_at_once) + len(r.baseline) for r in rows
            ),
        )
        if settings.check_memory and (reason := refusal(placed, work)):
            reasons[models] = reason
    if reasons and (len(reasons) == len(by_models) or processes.count() > 1):
        raise AssayError(next(iter(reasons.values())))
    return reasons
