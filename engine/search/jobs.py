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
from engine.planning import admission
from engine.planning.machines import DeviceRoom
from engine.planning.memory import SearchWork, SweepWork, fitting_step, weight_bytes
from engine.runs import parts, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.scoring.batches import padded_length, rows_of_step
from engine.search import gcg
from engine.search.certificate import PositionSweep
from engine.search.loop import Trace
from engine.search.objective import Reader, SearchObjective, SearchProblem
from engine.search.universal import SAMPLE
from engine.settings import AUTO, DIRECTIONS, ENUMERATIONS, SearchSettings
from engine.sweep import setup
from engine.sweep.jobs import recorded_step
from engine.sweep.reward_jobs import pooling_of

_LONGEST_PROMPT_ID = 100  # characters; an id is the name of a folder

Files = Mapping[tuple[str, str], str]  # slug, prompt id -> file, relative to the run


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchJob:
    """One search, or the certificate of what one found in one direction.

    Unlike a sweep's `Job`, which lacks ranges of rows of one path, it has files of several models,
    directions and prompts, and lacks whole directions.

    Attributes:
      problem: what is maximised, in the directions that are missing.
      prompts: ids of prompts that a file names beside the one in its path.
      files: direction -> (slug, prompt id) -> file; a joint search has one id for all prompts.
      fingerprints: file -> of its result.
      missing: directions that are not complete.
      searched: of a certificate, the file of the search.
      step_size: of a certificate, swaps per step on each device.
      known: of a certificate, the sweeps that its file holds.
    """

    problem: SearchProblem
    prompts: Sequence[str]
    files: Mapping[str, Files]
    fingerprints: Mapping[str, Json]
    missing: Sequence[str]
    searched: str = ""
    step_size: int = 0
    known: Sequence[PositionSweep] = ()

    @property
    def settings(self) -> SearchSettings:
        """Settings of the search, in the directions that are missing."""
        return self.problem.whole.settings

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
        """Planned steps (`gcg.planned_steps`), without the operations of readers.

        Of a certificate, rewards that its budget allows, of those that are not known yet.
        """
        whole = self.problem.whole
        if self.searched:
            sweeps = max(0, self.settings.certify - len(self.known))
            return sweeps * int(whole.allowed.sum()) * len(whole.prompts)
        return gcg.planned_steps(self.settings, sum(map(gcg.step_flops, self.problem.objectives)))

    def spent(self, steps: int, trace: Trace) -> float:
        """The share of its budget of steps or FLOPs that a search has used, 0 to 1."""
        settings = self.settings
        flops = settings.flops and trace.flops_per_direction(settings)[-1] / settings.flops
        return min(1.0, max(steps / settings.steps, flops))


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
) -> list[SearchJob]:
    """One search per model and prompt; nothing is written.

    With `joint` one search per model, for all prompts; with a rule one for all models and prompts.
    """
    gcg.first_changes(settings)
    models = [list(checkpoints)] if rule else [[checkpoint] for checkpoint in checkpoints]
    texts = [{prompt_id: text} for prompt_id, text in prompts.items()]
    jobs = []
    for group in models:
        for judged in [dict(prompts)] if joint or rule else texts:
            problem = SearchProblem.build(group, judged, frames, settings, rule)
            of = [_joint_id(list(judged))] if joint else list(problem.prompts)
            jobs.append(_search_job(manifest, problem, of, mesh))
    return jobs


def _search_job(
    manifest: Manifest, problem: SearchProblem, prompt_ids: Sequence[str], mesh: Mesh
) -> SearchJob:
    """A search whose files are of `prompt_ids`, entered in the manifest."""
    settings, method, said = problem.whole.settings, problem.whole.settings.method, {}
    if problem.rule:
        method = f"{method}-{problem.rule}-{problem.group}"
        judges = {"rule": problem.rule, "judges": problem.group, "sample": SAMPLE}
        said = {"universal": judges}
    about = [] if problem.rule else list(problem.prompts)
    files: dict[str, dict[tuple[str, str], str]] = {}
    fingerprints = {}
    for direction in settings.directions:
        files[direction] = {}
        for model, one in zip(problem.models, problem.each, strict=True):
            if not isinstance(one, SearchObjective):
                continue
            whole = [prompt for _, prompt in one.round_trip.conversations]
            each = [[prompt] for prompt in whole] if problem.rule else [whole]
            for prompt_id, judged in zip(prompt_ids, each, strict=True):
                name = model.card.slug, prompt_id
                path = schema.sequences_path(*name, direction, method, settings.seed)
                files[direction][name] = path
                fingerprints[path] = settings.fingerprint(direction) | {
                    **model.card.identity,
                    **pooling_of(model, AUTO).choice,
                    "prefix_ids": [list(split.prefix) for split in judged],
                    "suffix_ids": list(judged[0].suffix),
                    **said,
                    **meshes.identity(mesh),
                    **setup.numerics_entry(manifest, path, whole=_is_whole(manifest, path)),
                }
                setup.admit_fingerprint(manifest, path, fingerprints[path])
    complete = processes.from_first(
        f"searches by {method} of {', '.join(prompt_ids)}",
        lambda: _complete(manifest, files, about),
    )
    missing = [direction for direction in files if direction not in complete]
    left = missing or settings.directions
    direction = "both" if len(left) == len(DIRECTIONS) else left[0]
    return SearchJob(
        problem=problem.with_settings(dataclasses.replace(settings, direction=direction)),
        prompts=about,
        files=files,
        fingerprints=fingerprints,
        missing=missing,
    )


def _complete(manifest: Manifest, files: Mapping[str, Files], prompts: Sequence[str]) -> list[str]:
    """The directions that need not be searched again; raises AssayError for a damaged file.

    A file that the manifest lacks is written again, by the search's state that is still there.
    """
    complete = []
    for direction, of in files.items():
        there = [path for path in of.values() if storage.exists(manifest.run / path)]
        for path in there:
            read_table(manifest, path, prompts)
        if len(there) == len(of) and all(manifest.result(path)["complete"] for path in there):
            complete.append(direction)
    return complete


def certificates_of(
    manifest: Manifest, searches: Sequence[SearchJob], settings: SearchSettings, mesh: Mesh
) -> list[SearchJob]:
    """One certificate per search and direction; none without a budget. Nothing is written."""
    return [
        _certificate_job(manifest, search, direction, settings, DeviceRoom.of(mesh))
        for search in (searches if settings.certify else ())
        for direction in sorted(search.files, key=lambda d: d in search.missing)
    ]


def _certificate_job(
    manifest: Manifest,
    search: SearchJob,
    direction: str,
    settings: SearchSettings,
    room: DeviceRoom,
) -> SearchJob:
    """The certificate of one search in one direction, entered in the manifest."""
    [(of, searched)] = search.files[direction].items()
    method = f"{settings.method}{schema.ASCENT}"
    path = schema.sequences_path(*of, direction, method, settings.seed)
    step = settings.certify_step or recorded_step(manifest, path)
    if not step:
        one = admission.model_of_checkpoints(list(search.problem.models)).on(room, settings.dtype)
        step, _ = fitting_step(one, _sweep_work(search.problem.whole))
    said = manifest.content["results"].get(path, {}).get("certificate", {})
    whole_file = _is_whole(manifest, path) and _suffices(said, settings.certify)
    # The search may be complete, and keep its numerics: the certificate has others.
    fingerprint = {k: v for k, v in search.fingerprints[searched].items() if k != "numerics"}
    fingerprint |= setup.numerics_entry(manifest, path, whole=whole_file)
    fingerprint |= {"ascent": 1, "step_size": step}
    setup.admit_fingerprint(manifest, path, fingerprint)
    known, complete = processes.from_first(
        f"certificate {path}", lambda: _present(manifest, search, path, searched, settings.certify)
    )
    narrowed = dataclasses.replace(search.settings, direction=direction)
    return dataclasses.replace(
        search,
        problem=search.problem.with_settings(narrowed),
        files={direction: {of: path}},
        fingerprints={path: fingerprint},
        missing=() if complete else (direction,),
        searched=searched,
        step_size=step,
        known=tuple(map(PositionSweep.from_json, known)),
    )


def _suffices(said: Mapping[str, Any], budget: int) -> bool:
    """Whether a certificate's summary is certified, or has used the budget of sweeps."""
    return bool(said.get("certified")) or said.get("sweeps", 0) >= budget


def _present(
    manifest: Manifest, search: SearchJob, path: str, searched: str, budget: int
) -> tuple[list[list[Any]], bool]:
    """Sweeps of a certificate that the run holds, and whether a budget allows no more.

    Raises AssayError if it certifies another sequence than the search's file holds.
    """
    file = manifest.run / path
    if not storage.exists(file):
        return [], False
    table = read_table(manifest, path, search.prompts)
    about = table.about
    said = about.get("certificate", {})
    if storage.exists(manifest.run / searched):
        found = read_table(manifest, searched, search.prompts).frame["token_ids"][-1].to_list()
        if said.get("searched_ids") != found:
            raise AssayError(
                f"{file}: certifies another sequence than {searched} holds; remove it and run again"
            )
    if not manifest.result(path)["complete"]:
        manifest.adopt_part(path, file.name, len(table.frame), table.sha256)
        finish(manifest, path, about)
    complete, known = _suffices(said, budget), about.get("sweeps", [])
    return known, complete


def check_memory(job: SearchJob, mesh: Mesh) -> None:
    """Raises AssayError for a search or certificate that this machine cannot hold."""
    dtype, models, room = job.settings.dtype, job.problem.models, DeviceRoom.of(mesh)
    if job.searched:
        one = admission.model_of_checkpoints(list(models)).on(room, dtype)
        if reason := admission.refusal(one, _sweep_work(job.problem.whole, job.step_size)):
            raise AssayError(reason.replace("step_size=", "certify_step="))
        return
    placed = [admission.model_of_checkpoints([model]).on(room, dtype) for model in models]
    held = sum(map(weight_bytes, placed))
    for model, one in zip(placed, job.problem.each, strict=True):
        free = room.usable - (held - weight_bytes(model))
        left = dataclasses.replace(model, usable=free)
        if reason := admission.refusal(left, _work(one, job.problem.whole)):
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
    settings, attempts = whole.settings, len(whole.signs)
    candidates = settings.candidates
    if isinstance(one, SearchObjective):
        first = gcg.first_changes(settings)
        return SearchWork(
            prefix=max(len(prompt.prefix) for prompt in one.prompts),
            suffix=len(one.suffix),
            length=settings.length,
            candidates=candidates,
            attempts=attempts,
            together=len(one.prompts),
            gradient=settings.takes_gradient,
            merged=len(gcg.whole_replies(settings)),
            packed=first[0] < first[-1],
            enumerates=settings.method in ENUMERATIONS,
        )
    prefix = max(len(split.prefix) for split in one.prompts)
    suffix = max(len(split.suffix) for split in one.prompts)

    def size(positions: int) -> int:
        rows = rows_of_step(candidates, positions, candidates)  # fewer rows of longer replies
        return rows * positions * (prefix + positions)

    lengths = {padded_length(n + suffix) for n in range(1, one.most + 1)}
    return SearchWork(
        prefix=prefix,
        suffix=suffix,
        length=max(lengths, key=size) - suffix,
        candidates=candidates,
        attempts=attempts,
        gradient=False,
        packed=False,
        enumerates=True,
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


def _is_whole(manifest: Manifest, path: str) -> bool:
    """Whether a search is complete and its file is there; all processes say the same."""
    complete = manifest.content["results"].get(path, {}).get("complete", False)
    return complete and processes.from_first(
        f"file of {path}", lambda: storage.exists(manifest.run / path)
    )


def _joint_id(prompt_ids: Sequence[str]) -> str:
    name = ".".join(["mean", *prompt_ids])
    if len(name) <= _LONGEST_PROMPT_ID:
        return name
    return f"mean.of-{len(prompt_ids)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
