"""Searches of several models and prompts into a run folder; resumable and self-checked."""

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from etils import epath
from jax.sharding import Mesh
from tqdm import tqdm

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.display import progress
from engine.runs import parts, provenance, storage
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.scoring.reward_passes import RewardScorer, dtype_named, self_check, tolerance_of_one
from engine.search import certificate, jobs
from engine.search.certificate import Ascent
from engine.search.jobs import Search
from engine.search.loop import Trace, run_search, trace_frame
from engine.search.objective import SearchObjective
from engine.settings import DIRECTIONS, SearchSettings
from engine.sweep import setup
from engine.sweep.jobs import Job
from engine.sweep.outcomes import free_models, memory_errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best sequence of one model under one prompt in one direction."""

    model: str  # slug
    prompt_id: str
    direction: str  # max or min
    reward: float
    text: str
    rejected: int  # candidates rejected because their text does not round-trip
    certificate: Mapping[str, Any] | None = None  # Any: JSON of the manifest; None: of a search
    new: bool  # whether this call searched it; False: read from the run


def search_sequences(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SearchSettings,
    mesh: Mesh,
    *,
    joint: bool = False,
    check_memory: bool = True,
) -> list[SearchResult]:
    """Searches every model under every prompt and writes the traces to `run/sequences`.

    Args:
      checkpoints: the models.
      prompts: prompt id -> text.
      run: run folder, new or to be continued.
      settings: of every search.
      mesh: from `engine.mesh.build_mesh`.
      joint: one search per model for sequences with a high (or low) mean reward over all prompts;
        its prompt id is `mean.<id>.<id>…`, or holds a hash if that is too long.
      check_memory: whether a model that is larger than the free memory is refused.

    Returns:
      One result per model, prompt and direction: first those that were complete before.

    Raises:
      AssayError: bad input; a result that the run holds with another fingerprint; a reward that is
        not finite; a self-check beyond tolerance.
    """
    manifest = setup.open_run(run, checkpoints, prompts, settings, mesh)
    vocabularies = setup.vocabularies(manifest, checkpoints)
    for checkpoint in checkpoints:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    every = jobs.searches_of(
        manifest, checkpoints, prompts, vocabularies, settings, mesh, joint=joint
    )
    certificates = jobs.certificates_of(manifest, every, settings, mesh)
    missing = [search for search in [*every, *certificates] if search.missing]
    for search in missing if check_memory else ():
        jobs.check_memory(search, mesh)
    if missing:
        setup.begin(manifest, vocabularies)
    results = [one for search in [*every, *certificates] for one in _results(manifest, search)]
    held: dict[str, RewardScorer] = {}  # the model of the last search, by its slug
    for what, of in (("steps", every), ("swaps", certificates)):
        of = [search for search in of if search.missing]
        with progress(sum(search.amount for search in of), what) as bar:
            for search in of:
                bar.set_description(f"loading {search.slug}")
                size = "certify_step" if search.searched else "candidates"
                step = search.step_size or settings.candidates
                with memory_errors([search.slug], mesh, size, step):
                    scorer = _scorer(search, held, mesh, settings)
                    (_certify if search.searched else _search)(manifest, search, scorer, bar)
                results += _results(manifest, search, new=True)
    if processes.writes():
        manifest.save_if_changed()  # files that the manifest lacked
    return results


def _search(manifest: Manifest, search: Search, scorer: RewardScorer, bar: tqdm) -> None:
    """Runs a search to its end, or resumes it, and writes its files."""
    objective, settings, done = search.objective, search.settings, bar.n
    began = time.perf_counter()
    bar.set_description(f"{search.title} · {settings.method}")

    def show(steps: int, trace: Trace) -> None:
        best = [
            f"{name} {DIRECTIONS[name] * trace.best(d, settings)[0][-1]:.4g}"
            for d, name in enumerate(settings.directions)
        ]
        bar.set_postfix_str(", ".join(best), refresh=False)
        bar.update(done + min(steps, search.amount) - bar.n)

    missing = [job for job in search.jobs if job.missing]
    state = _state_file(manifest, search, missing[0])
    trace, rejected = run_search(objective, scorer, state, show)
    bar.update(done + search.amount - bar.n)  # the steps that an early end left out
    seconds = (time.perf_counter() - began) / len(missing)
    for job in missing:
        frame = trace_frame(objective, trace, job.direction)
        check = check_last_step(objective, scorer, frame, job.path)
        said: Json = {"rejected": rejected[job.direction]}
        _write(manifest, job.path, search.prompts, frame, check, said, seconds)
    if processes.writes():
        manifest.save()  # once for all directions: `state` cannot resume one of them alone
        storage.remove(state)


def _state_file(manifest: Manifest, search: Search, job: Job) -> epath.Path:
    """Where an unfinished search lies, one of whose missing files is that of `job`."""
    settings = search.settings
    name = f"{settings.method}-seed{settings.seed}-{settings.direction}.safetensors"
    return (manifest.run / job.path).parent.parent / name


def _certify(manifest: Manifest, search: Search, scorer: RewardScorer, bar: tqdm) -> None:
    """Runs a certificate to its end; its file is written after each sweep, and resumes it."""
    began, done, objective = time.perf_counter(), bar.n, search.objective
    [job], direction = search.jobs, search.settings.direction
    path = job.path
    bar.set_description(f"{search.title} · certifying {direction}")
    read = functools.partial(jobs.last_row, manifest, search.searched, search.prompts)
    found, _ = processes.from_first(f"found in {search.searched}", read)

    def save(ascent: Ascent) -> None:
        frame = certificate.ascent_frame(objective, scorer, ascent, found["flops"])
        check = check_last_step(objective, scorer, frame, path)
        said = {
            "rejected": ascent.rejected,
            "certificate": certificate.summary(objective, ascent, found),
            "sweeps": [sweep.to_json() for sweep in ascent.sweeps],
        }
        if processes.writes():
            # Until the file is replaced, the manifest does not vouch for it.
            manifest.forget_parts(path, [path.rpartition("/")[2]])
            manifest.save()
            seconds = time.perf_counter() - began
            _write(manifest, path, search.prompts, frame, check, said, seconds)
            manifest.save()

    certificate.run_certificate(
        objective,
        scorer,
        found,
        search.known,
        step_size=search.step_size,
        save=save,
        advance=bar.update,
    )
    bar.update(done + search.amount - bar.n)  # the sweeps that were not needed


def check_last_step(
    objective: SearchObjective, scorer: RewardScorer, steps: pl.DataFrame, path: str
) -> dict[str, int | float]:
    """Scores the last sequence of a trace again by the plain pass, for the manifest.

    Returns:
      The difference between the two rewards, its tolerance, and the reward of the conversation that
      is tokenised from the sequence's text.

    Raises:
      AssayError: the difference exceeds the tolerance; it names `path`.
    """
    last = steps.row(-1, named=True)
    ids = [[*p.prefix, *last["token_ids"], *p.suffix] for p in objective.prompts]
    texts = [objective.template.sequences(p.prompt, [last["text"]])[0] for p in objective.prompts]
    read_at = [len(one) - 1 for one in ids] + [objective.pooling.position(one) for one in texts]
    plain = scorer.plain_rewards([*ids, *texts], read_at)[0].reshape(2, -1).mean(1)
    written, step = np.array([[last["reward"]]], np.float32), np.array([last["step"]])
    dtype, where = objective.settings.dtype, f"self-check of {path}"
    within = tolerance_of_one(dtype, objective.config)
    check = self_check(where, ["reward"], step, written, plain[:1, None], dtype, tolerance=within)
    return {**check, "reward_from_text": float(plain[1])}


def _write(
    manifest: Manifest,
    path: str,
    prompts: Sequence[str],
    frame: pl.DataFrame,
    check: Json,
    said: Json,
    seconds: float,
) -> None:
    """Writes a search's file on process 0, and enters it in the manifest, which is not saved.

    `said` is what the file says beside its self-check: `rejected`, and what its kind has.
    """
    if not processes.writes():
        return
    about = {
        **manifest.about(path, prompts),
        "rows": provenance.part_rows(0, len(frame), len(frame)),
        "self_check": check,
        **said,
        "computed_by": manifest.computed_by,
    }
    file = manifest.run / path
    digest = parts.write_frame(file, frame, about)
    manifest.record_part(path, file.name, len(frame), digest, seconds)
    jobs.finish(manifest, path, about)


def _results(manifest: Manifest, search: Search, *, new: bool = False) -> list[SearchResult]:
    """Results in a search's files: those just written if `new`, else those complete before."""
    results = []
    for job in search.jobs:
        if new == (job.direction in search.missing):
            read = functools.partial(jobs.last_row, manifest, job.path, search.prompts)
            last, said = processes.from_first(job.path, read)
            results.append(
                SearchResult(
                    model=job.model,
                    prompt_id=job.prompt,
                    direction=job.direction,
                    reward=last["reward"],
                    text=last["text"],
                    rejected=said["rejected"],
                    certificate=said["certificate"] if search.searched else None,
                    new=new,
                )
            )
    return results


def _scorer(
    search: Search, held: dict[str, RewardScorer], mesh: Mesh, settings: SearchSettings
) -> RewardScorer:
    """The model of a search: the one that is `held`, or another in place of it."""
    if search.slug not in held:
        held.clear()
        free_models()
        restored = restore([search.checkpoint], mesh, dtype_named(settings.dtype))
        held[search.slug] = RewardScorer.build(*restored, mesh, step_size=settings.candidates)
    return held[search.slug]
