"""Which searches and certificates a run lacks: jobs, entered in the manifest and checked.

A certificate is filed like a search of the method `<method>-ascent`: one row per sweep. Its file
holds the sweeps too, from which a larger budget goes on.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from jax.sharding import Mesh

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.planning import DeviceRoom, Model, SearchWork, SweepWork, fitting_step, refusal
from engine.runs import parts, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.scoring.rows import pooling_of
from engine.search.certificate import PositionSweep
from engine.search.objective import SearchObjective
from engine.search.step import first_changes, planned_steps, step_flops
from engine.settings import AUTO, ENUMERATIONS, SearchSettings
from engine.sweep import setup
from engine.sweep.jobs import Job, recorded_step

_LONGEST_PROMPT_ID = 100  # characters; an id is the name of a folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """One search, or the certificate of what one found in one direction: jobs of one pass.

    A job is a file, of the model in one direction; one file for all prompts of a joint search.
    """

    checkpoint: Checkpoint
    objective: SearchObjective  # in the directions that are missing
    prompts: Sequence[str]  # ids
    jobs: Sequence[Job]
    searched: str = ""  # of a certificate, the file of the search
    step_size: int = 0  # of a certificate, swaps per step on each device
    known: Sequence[PositionSweep] = ()  # of a certificate, the sweeps that its file holds

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
        """Planned steps; of a certificate, rewards within its budget that are not known yet."""
        if self.searched:
            sweeps = max(0, self.settings.certify - len(self.known))
            return sweeps * int(self.objective.allowed.sum()) * len(self.objective.prompts)
        return planned_steps(self.settings, step_flops(self.objective))


def searches_of(
    manifest: Manifest,
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
            manifest, model, judged, frames[model.card.tokenizer_hash], settings, mesh, joint=joint
        )
        for model in checkpoints
        for judged in every
    ]


def _search_of(
    manifest: Manifest,
    model: Checkpoint,
    prompts: Mapping[str, str],
    vocabulary: pl.DataFrame,
    settings: SearchSettings,
    mesh: Mesh,
    *,
    joint: bool,
) -> Search:
    """A search whose files are entered in the manifest."""
    splits = [model.template.split(text) for text in prompts.values()]
    objective, jobs = SearchObjective.build(model, splits, vocabulary, settings), []
    named = _joint_id(list(prompts)) if joint else next(iter(prompts))
    for direction in settings.directions:
        path = schema.sequences_path(
            model.card.slug, named, direction, settings.method, settings.seed
        )
        fingerprint = objective.settings.fingerprint(direction) | {
            **model.card.identity,
            **pooling_of(model, AUTO).choice,
            "prefix_ids": [list(split.prefix) for split in splits],
            "suffix_ids": list(splits[0].suffix),
            **meshes.identity(mesh),
        }
        job = Job(checkpoint=model, path=path, fingerprint=fingerprint)
        jobs.append(_enter(manifest, job, list(prompts)))
    search = Search(checkpoint=model, objective=objective, prompts=list(prompts), jobs=jobs)
    if len(search.missing) == 1:
        narrowed = objective.narrowed(search.missing[0])
        return dataclasses.replace(search, objective=narrowed)
    return search


def _enter(
    manifest: Manifest, job: Job, prompts: Sequence[str], *, enough: bool = True, **last: int
) -> Job:
    """Enters the job of a file in the manifest, and finds whether it is missing.

    A file that the manifest lacks is written again, by the search's state that is still there.
    `enough` says whether a complete file has all that is asked for; `last` ends the fingerprint.

    Raises:
      AssayError: a damaged file, or one of another fingerprint.
    """
    path = job.path
    there = processes.from_first(f"file of {path}", lambda: storage.exists(manifest.run / path))
    whole = there and enough and manifest.content["results"].get(path, {}).get("complete", False)
    numerics = setup.numerics_entry(manifest, path, whole=whole)
    fingerprint = {**job.fingerprint, **numerics, **last}
    job = setup.entered(manifest, job, fingerprint, [] if whole else [(0, 1)])
    if there and processes.writes():
        read_table(manifest, path, prompts)
    return job


def certificates_of(
    manifest: Manifest, searches: Sequence[Search], settings: SearchSettings, mesh: Mesh
) -> list[Search]:
    """One certificate per search and direction; none without a budget. Nothing is written."""
    return [
        _certificate_of(manifest, search, job, settings, DeviceRoom.of(mesh))
        for search in (searches if settings.certify else ())
        for job in sorted(search.jobs, key=lambda job: bool(job.missing))
    ]


def _certificate_of(
    manifest: Manifest, search: Search, found: Job, settings: SearchSettings, room: DeviceRoom
) -> Search:
    """The certificate of what a search found in one direction, entered in the manifest."""
    direction, method = found.direction, f"{settings.method}{schema.ASCENT}"
    path = schema.sequences_path(found.model, found.prompt, direction, method, settings.seed)
    step = settings.certify_step or recorded_step(manifest, path)
    if not step:
        one = Model.of([search.checkpoint]).on(room, settings.dtype)
        step = fitting_step(one, _sweep_work(search.objective))
    said = manifest.content["results"].get(path, {}).get("certificate", {})
    # The search may be complete, and keep its numerics: the certificate has others.
    fingerprint = {k: v for k, v in found.fingerprint.items() if k != "numerics"}
    job = Job(checkpoint=found.checkpoint, path=path, fingerprint=fingerprint)
    enough = _suffices(said, settings.certify)
    job = _enter(manifest, job, search.prompts, enough=enough, ascent=1, step_size=step)
    known, complete = processes.from_first(
        f"certificate {path}",
        lambda: _present(manifest, search, path, found.path, settings.certify),
    )
    return Search(
        checkpoint=search.checkpoint,
        objective=search.objective.narrowed(direction),
        prompts=search.prompts,
        jobs=[dataclasses.replace(job, missing=[] if complete else [(0, 1)])],
        searched=found.path,
        step_size=step,
        known=tuple(map(PositionSweep.from_json, known)),
    )


def _suffices(said: Mapping[str, Any], budget: int) -> bool:
    """Whether a certificate's summary is certified, or has used the budget of sweeps."""
    return bool(said.get("certified")) or said.get("sweeps", 0) >= budget


def _present(
    manifest: Manifest, search: Search, path: str, searched: str, budget: int
) -> tuple[list[list[Any]], bool]:
    """Sweeps of a certificate that the run holds, and whether a budget allows no more.

    Raises AssayError if it certifies another sequence than the search's file holds.
    """
    file = manifest.run / path
    if not storage.exists(file):
        return [], False
    table = read_table(manifest, path, search.prompts)
    said = table.about["certificate"]
    if storage.exists(manifest.run / searched):
        found = read_table(manifest, searched, search.prompts).frame["token_ids"][-1].to_list()
        if said["searched_ids"] != found:
            raise AssayError(
                f"{file}: certifies another sequence than {searched} holds; remove it and run again"
            )
    if not manifest.result(path)["complete"]:
        manifest.adopt_part(path, file.name, len(table.frame), table.sha256)
        finish(manifest, path, table.about)
    return table.about["sweeps"], _suffices(said, budget)


def check_memory(search: Search, mesh: Mesh) -> None:
    """Raises AssayError for a search or certificate that this machine cannot hold."""
    model = Model.of([search.checkpoint]).on(DeviceRoom.of(mesh), search.settings.dtype)
    if search.searched:
        if reason := refusal(model, _sweep_work(search.objective, search.step_size)):
            raise AssayError(reason.replace("step_size=", "certify_step="))
    elif reason := refusal(model, _work(search.objective)):
        raise AssayError(reason)


def _sweep_work(objective: SearchObjective, step_size: int | None = None) -> SweepWork:
    """The sweeps of a certificate, whose longest prompt ends with the reply."""
    length = objective.settings.length
    longest = max(len(prompt.prefix) for prompt in objective.prompts)
    own = length + len(objective.suffix)
    return SweepWork(prefix=longest + length, own=own, step_size=step_size, self_check=1)


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
        enumerates=settings.method in ENUMERATIONS,
    )


def read_table(manifest: Manifest, path: str, prompts: Sequence[str]) -> parts.ReadFile:
    """A search's file, checked; `prompts` are those that it names beside the one in its path."""
    file = manifest.run / path
    recorded = manifest.recorded(path, file.name)
    return parts.read_frame(file, recorded, manifest.about(path, prompts))


# Any: values of the columns.
def last_row(manifest: Manifest, path: str, prompts: Sequence[str]) -> tuple[dict[str, Any], Json]:
    """The last row of a search's file, and the search's entry of the manifest."""
    row = read_table(manifest, path, prompts).frame.row(-1, named=True)
    return row, manifest.result(path)


def finish(manifest: Manifest, path: str, about: Json) -> None:
    """Notes in the manifest that a search is complete, with what its file says of it."""
    manifest.finish(path, about["self_check"])
    for key in ("rejected", "certificate"):
        if key in about:
            manifest.result(path)[key] = about[key]


def _joint_id(prompt_ids: Sequence[str]) -> str:
    name = ".".join(["mean", *prompt_ids])
    if len(name) <= _LONGEST_PROMPT_ID:
        return name
    return f"mean.of-{len(prompt_ids)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
