"""Which searches a run lacks: jobs, entered in the run and checked."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence

import polars as pl
from etils import epath
from jax.sharding import Mesh

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.planning import fitting
from engine.planning.machines import DeviceRoom
from engine.planning.memory import Model, SearchWork
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.scoring.rows import pooling_of
from engine.search.objective import SearchObjective
from engine.search.step import first_changes, planned_steps, step_flops
from engine.settings import AUTO, SearchSettings
from engine.settings import identity_of as settings_identity
from engine.sweep import setup
from engine.sweep.jobs import Job, identity_of

_LONGEST_PROMPT_ID = 100  # characters; an id is the name of a folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """One search: jobs of one pass.

    A job is a result, of the model in one direction; one for all prompts of a joint search.
    """

    checkpoint: Checkpoint
    objective: SearchObjective  # in the directions that are missing
    prompts: Sequence[str]  # ids
    jobs: Sequence[Job]

    @property
    def missing(self) -> list[str]:
        """Directions that are not complete."""
        return [job.direction for job in self.jobs if job.missing]

    @property
    def settings(self) -> SearchSettings:
        """Settings of the search, in the directions that are missing."""
        return self.objective.settings

    @property
    def slug(self) -> str:
        """The model."""
        return self.checkpoint.card.slug

    @property
    def title(self) -> str:
        """Model and prompts, as a progress bar names them."""
        return " · ".join([self.slug, *self.prompts])

    @property
    def amount(self) -> int:
        """Planned steps."""
        return planned_steps(self.settings, step_flops(self.objective))


def searches_of(
    folder: RunFolder,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    frames: Mapping[str, pl.DataFrame],
    settings: SearchSettings,
    mesh: Mesh,
    *,
    joint: bool = False,
) -> list[Search]:
    """One search per model and prompt, with `joint` one per model; nothing is written.

    `frames` are by tokenizer hash.
    """
    first_changes(settings)
    every = [dict(prompts)] if joint else [{name: text} for name, text in prompts.items()]
    return [
        _search_of(
            folder, model, judged, frames[model.card.tokenizer_hash], settings, mesh, joint=joint
        )
        for model in checkpoints
        for judged in every
    ]


def _search_of(
    folder: RunFolder,
    model: Checkpoint,
    prompts: Mapping[str, str],
    vocabulary: pl.DataFrame,
    settings: SearchSettings,
    mesh: Mesh,
    *,
    joint: bool,
) -> Search:
    """A search whose results are entered in the run."""
    splits = [model.template.split(text) for text in prompts.values()]
    objective, jobs = SearchObjective.build(model, splits, vocabulary, settings), []
    named = _joint_id(list(prompts)) if joint else next(iter(prompts))
    for direction in settings.directions:
        path = schema.sequences_path(
            model.card.slug, named, direction, settings.method, settings.seed
        )
        identity = identity_of(
            model,
            splits,
            objective.settings,
            search=settings_identity(objective.settings) | {"direction": direction},
            pooling=pooling_of(model, AUTO).kind,
        )
        setup.enter_result(folder, path, identity, prompts=list(prompts))
        read = functools.partial(_missing, folder, path, settings)
        missing = [(0, 1)] * processes.from_first(f"trace of {path}", read)
        jobs.append(Job(checkpoint=model, path=path, identity=identity, missing=missing))
    search = Search(checkpoint=model, objective=objective, prompts=list(prompts), jobs=jobs)
    if len(search.missing) == 1:
        narrowed = objective.narrowed(search.missing[0])
        return dataclasses.replace(search, objective=narrowed)
    return search


def _missing(folder: RunFolder, path: str, settings: SearchSettings) -> bool:
    """Whether a search has no trace, or its state is still there, of all its directions.

    A process that ends between the records of two directions leaves the state: both are then
    written again. Raises AssayError for a damaged trace.
    """
    folder.results[path].frames()
    both = dataclasses.replace(settings, direction="both")
    return bool(folder.results[path].missing) or storage.exists(state_file(folder, path, both))


def state_file(folder: RunFolder, path: str, settings: SearchSettings) -> epath.Path:
    """Where an unfinished search lies, of which `path` is one result."""
    name = f"{settings.method}-seed{settings.seed}-{settings.direction}.safetensors"
    return (folder.run / path).parent.parent / name


def check_memory(search: Search, mesh: Mesh) -> None:
    """Raises AssayError for a search that this machine cannot hold."""
    model = Model.of([search.checkpoint]).on(DeviceRoom.of(mesh), search.settings.dtype)
    if reason := fitting.refusal(model, _work(search.objective)):
        raise AssayError(reason)


def _work(objective: SearchObjective) -> SearchWork:
    """The step of a search."""
    settings, first = objective.settings, first_changes(objective.settings)
    return SearchWork(
        prefix=max(len(split.prefix) for split in objective.prompts),
        own=settings.length + len(objective.suffix),
        length=settings.length,
        candidates=settings.candidates,
        attempts=len(objective.signs),
        together=len(objective.prompts),
        gradient=settings.takes_gradient,
        packed=first[0] < first[-1],
    )


def _joint_id(prompt_ids: Sequence[str]) -> str:
    name = ".".join(["mean", *prompt_ids])
    if len(name) <= _LONGEST_PROMPT_ID:
        return name
    return f"mean.of-{len(prompt_ids)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
