"""Which searches and certificates a run lacks: jobs, entered in the manifest and checked.

A universal search writes a file for each judge that takes token ids: the same sequences, each with
the rewards of one model under one prompt. They are filed as searches of the method
`<method>-<rule>-<hash of the judges>`. A certificate is filed like a search of the method
`<method>-ascent`: one row per sweep. Its file holds the sweeps too, from which a larger budget goes
on.
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
from engine.planning import fitting
from engine.planning.machines import DeviceRoom
from engine.planning.memory import Model, SearchWork, SweepWork, weight_bytes
from engine.runs import parts, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.scoring.batches import padded_length, rows_of_step
from engine.scoring.rows import pooling_of
from engine.search.certificate import PositionSweep
from engine.search.objective import Reader, SearchObjective, SearchProblem
from engine.search.step import first_changes, planned_steps, step_flops
from engine.search.universal import SAMPLE
from engine.settings import AUTO, DIRECTIONS, ENUMERATIONS, SearchSettings
from engine.sweep import setup
from engine.sweep.jobs import Job, recorded_step

_LONGEST_PROMPT_ID = 100  # characters; an id is the name of a folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """One search, or the certificate of what one found in one direction: jobs of one pass.

    A job is a file, of one model under one prompt in one direction. If one file is missing, all of
    its direction are written again.
    """

    problem: SearchProblem  # what is maximised, in the directions that are missing
    prompts: Sequence[str]  # ids of prompts that a file names beside the one in its path
    jobs: Sequence[Job]  # a joint search has one for all prompts
    searched: str = ""  # of a certificate, the file of the search
    step_size: int = 0  # of a certificate, swaps per step on each device
    known: Sequence[PositionSweep] = ()  # of a certificate, the sweeps that its file holds

    @property
    def missing(self) -> list[str]:
        """Directions that are not complete."""
        return _missing(self.jobs)

    @property
    def settings(self) -> SearchSettings:
        """Settings of the search, in the directions that are missing."""
        return self.problem.objective.settings

    @property
    def slugs(self) -> list[str]:
        """The models."""
        return [model.card.slug for model in self.problem.models]

    @property
    def title(self) -> str:
        """Models and prompts, as a progress bar names them."""
        return " · ".join([*self.slugs, *self.problem.prompts])

    @property
    def amount(self) -> int:
        """Planned steps (`planned_steps`), without the operations of readers.

        Of a certificate, rewards that its budget allows, of those that are not known yet.
        """
        whole = self.problem.objective
        if self.searched:
            sweeps = max(0, self.settings.certify - len(self.known))
            return sweeps * int(whole.allowed.sum()) * len(whole.prompts)
        return planned_steps(self.settings, sum(map(step_flops, self.problem.objectives)))


def searches_of(
    manifest: Manifest,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    frames: Mapping[str, pl.DataFrame],
    settings: SearchSettings,
    mesh: Mesh,
    *,
    joint: bool = False,
    rule: str = "",
) -> list[Search]:
    """One search per model and prompt; nothing is written.

    With `joint` one search per model, for all prompts; with a rule one for all models and prompts.
    """
    first_changes(settings)
    models = [list(checkpoints)] if rule else [[checkpoint] for checkpoint in checkpoints]
    texts = [{prompt_id: text} for prompt_id, text in prompts.items()]
    jobs = []
    for group in models:
        for judged in [dict(prompts)] if joint or rule else texts:
            problem = SearchProblem.build(group, judged, frames, settings, rule)
            of = [_joint_id(list(judged))] if joint else list(problem.prompts)
            jobs.append(_search_of(manifest, problem, of, mesh))
    return jobs


def _search_of(
    manifest: Manifest, problem: SearchProblem, prompt_ids: Sequence[str], mesh: Mesh
) -> Search:
    """A search whose files are of `prompt_ids`, entered in the manifest."""
    settings, method, said = problem.objective.settings, problem.objective.settings.method, {}
    if problem.rule:
        method = f"{method}-{problem.rule}-{problem.group}"
        judges = {"rule": problem.rule, "judges": problem.group, "sample": SAMPLE}
        said = {"universal": judges}
    about, jobs = [] if problem.rule else list(problem.prompts), []
    for direction in settings.directions:
        for model, one in zip(problem.models, problem.objectives, strict=False):
            whole = [prompt for _, prompt in one.round_trip.conversations]
            each = [[prompt] for prompt in whole] if problem.rule else [whole]
            for prompt_id, judged in zip(prompt_ids, each, strict=True):
                where = model.card.slug, prompt_id, direction, method, settings.seed
                fingerprint = settings.fingerprint(direction) | {
                    **model.card.identity,
                    **pooling_of(model, AUTO).choice,
                    "prefix_ids": [list(split.prefix) for split in judged],
                    "suffix_ids": list(judged[0].suffix),
                    **said,
                    **meshes.identity(mesh),
                }
                path = schema.sequences_path(*where)
                job = Job(checkpoint=model, path=path, fingerprint=fingerprint)
                jobs.append(_enter(manifest, job, about))
    left = _missing(jobs) or settings.directions
    problem = problem.narrowed("both" if len(left) == len(DIRECTIONS) else left[0])
    return Search(problem=problem, prompts=about, jobs=jobs)


def _missing(jobs: Sequence[Job]) -> list[str]:
    """Directions of which a file is missing."""
    return list(dict.fromkeys(job.direction for job in jobs if job.missing))


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
        one = Model.of(list(search.problem.models)).on(room, settings.dtype)
        step = fitting.fitting_step(one, _sweep_work(search.problem.objective))
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
        problem=search.problem.narrowed(direction),
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
    dtype, models, room = search.settings.dtype, search.problem.models, DeviceRoom.of(mesh)
    if search.searched:
        one = Model.of(list(models)).on(room, dtype)
        if reason := fitting.refusal(one, _sweep_work(search.problem.objective, search.step_size)):
            raise AssayError(reason.replace("step_size=", "certify_step="))
        return
    placed = [Model.of([model]).on(room, dtype) for model in models]
    held = sum(map(weight_bytes, placed))
    for model, one in zip(placed, search.problem.members, strict=True):
        free = room.usable - (held - weight_bytes(model))
        left = dataclasses.replace(model, usable=free)
        if reason := fitting.refusal(left, _work(one, search.problem.objective)):
            beside = "beside the other models of the universal search: " * (len(models) > 1)
            raise AssayError(f"{beside}{reason}")


def _sweep_work(objective: SearchObjective, step_size: int | None = None) -> SweepWork:
    """The sweeps of a certificate, whose longest prompt ends with the reply."""
    length = objective.settings.length
    longest = max(len(prompt.prefix) for prompt in objective.prompts)
    own = length + len(objective.suffix)
    return SweepWork(prefix=longest + length, own=own, step_size=step_size, self_check=1)


def _work(one: SearchObjective | Reader, whole: SearchObjective) -> SearchWork:
    """The step of one model of a search; of a reader, the one that takes most memory."""
    settings, candidates = whole.settings, whole.settings.candidates
    prefix = max(len(split.prefix) for split in one.prompts)
    suffix = max(len(split.suffix) for split in one.prompts)
    first, length, reads = first_changes(settings), settings.length, isinstance(one, Reader)

    def size(positions: int) -> int:
        rows = rows_of_step(candidates, positions, candidates)  # fewer rows of longer replies
        return rows * positions * (prefix + positions)

    if isinstance(one, Reader):
        lengths = {padded_length(n + suffix) for n in range(1, one.most_tokens + 1)}
        length = max(lengths, key=size) - suffix
    return SearchWork(
        prefix=prefix,
        own=length + suffix,
        length=length,
        candidates=candidates,
        attempts=len(whole.signs),
        together=1 if reads else len(one.prompts),
        gradient=settings.takes_gradient and not reads,
        packed=first[0] < first[-1] and not reads,
        enumerates=settings.method in ENUMERATIONS or reads,
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
    for key in ("rejected", "certificate", "universal"):
        if key in about:
            manifest.result(path)[key] = about[key]


def _joint_id(prompt_ids: Sequence[str]) -> str:
    name = ".".join(["mean", *prompt_ids])
    if len(name) <= _LONGEST_PROMPT_ID:
        return name
    return f"mean.of-{len(prompt_ids)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
