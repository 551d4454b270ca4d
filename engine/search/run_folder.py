"""Searches of several models and prompts into a run folder; resumable and self-checked."""

import dataclasses
import functools
import time
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from jax.sharding import Mesh
from tqdm import tqdm

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.display import progress
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.runs.identity import from_json, to_json
from engine.runs.result import Certificate, SelfCheck
from engine.scoring.reward_passes import RewardScorer, dtype_named, self_check
from engine.search import jobs
from engine.search.certificate import certificate, replies_of
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
    certificate: Certificate | None  # None: no swap was scored
    new: bool  # whether this call searched or certified it; False: read from the run


def search_sequences(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SearchSettings,
    mesh: Mesh,
    *,
    joint: bool = False,
    certify: bool = False,
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
      certify: whether every swap of one token of what was found is scored.
      check_memory: whether a model that is larger than the free memory is refused.

    Returns:
      One result per model, prompt and direction: first those that were complete before.

    Raises:
      AssayError: bad input; a result that the run holds with another identity; a reward that is
        not finite; a self-check beyond tolerance.
    """
    folder = setup.open_run(run, checkpoints, prompts, settings, mesh)
    vocabularies = setup.vocabularies(folder, checkpoints)
    for checkpoint in checkpoints:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    every = jobs.searches_of(
        folder, checkpoints, prompts, vocabularies, settings, mesh, joint=joint
    )
    missing = [search for search in every if search.missing]
    for search in missing if check_memory else ():
        jobs.check_memory(search, mesh)
    if missing:
        setup.begin(folder, vocabularies)
    held: dict[str, RewardScorer] = {}  # the model of the last search, by its slug
    with progress(sum(search.amount for search in missing), "steps") as bar:
        for search in missing:
            bar.set_description(f"loading {search.slug}")
            with memory_errors([search.slug], mesh, "candidates", settings.candidates):
                _search(folder, search, _scorer(search, held, mesh, settings), bar)
    new = {job.path for search in missing for job in search.jobs if job.missing}
    open_ = []
    for search, job in [(each, job) for each in every for job in each.jobs if certify]:
        known = functools.partial(_is_certified, folder, job)
        if not processes.from_first(f"certificate of {job.path}", known):
            open_.append((search, job))
    with progress(sum(replies_of(search.objective) for search, _ in open_), "swaps") as bar:
        for search, job in open_:
            bar.set_description(f"loading {search.slug}")
            with memory_errors([search.slug], mesh, "candidates", settings.candidates):
                _certify(folder, search, job, _scorer(search, held, mesh, settings), bar)
            new.add(job.path)
    found = [_result(folder, job, new) for search in every for job in search.jobs]
    return sorted(found, key=lambda one: one.new)


def _search(folder: RunFolder, search: Search, scorer: RewardScorer, bar: tqdm) -> None:
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
    state = jobs.state_file(folder, missing[0].path, settings)
    trace, rejected = run_search(objective, scorer, state, show)
    bar.update(done + search.amount - bar.n)  # the steps that an early end left out
    seconds = (time.perf_counter() - began) / len(missing)
    for job in missing:
        frame = trace_frame(objective, trace, job.direction)
        check = check_last_step(objective, scorer, frame, job.path)
        if processes.writes():
            result = folder.results[job.path]
            result.self_check, result.environment = check, folder.environment
            result.rejected = rejected[job.direction]
            result.write(schema.TRACE, frame, folder.way, seconds)
    if processes.writes():
        storage.remove(state)


def _certify(folder: RunFolder, search: Search, job: Job, scorer: RewardScorer, bar: tqdm) -> None:
    """Scores the swaps of what a search found in one direction, and notes them in its result."""
    bar.set_description(f"{search.title} · {job.direction}")
    last = processes.from_first(job.path, functools.partial(_last_row, folder, job))
    objective = search.objective.narrowed(job.direction)
    said = certificate(objective, scorer, np.array(last["token_ids"], np.int32), bar.update)
    if processes.writes():
        folder.results[job.path].certificate = said
        folder.results[job.path].save()


def check_last_step(
    objective: SearchObjective, scorer: RewardScorer, steps: pl.DataFrame, path: str
) -> SelfCheck:
    """Scores the last sequence of a trace again by the plain pass, and its text as a chat would.

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
    compared = schema.SINGLE if objective.config.experts else schema.LARGEST
    check = self_check(where, ["reward"], step, written, plain[:1, None], dtype, compared=compared)
    return dataclasses.replace(check, reward_from_text=float(plain[1]))


def _is_certified(folder: RunFolder, job: Job) -> bool:
    return folder.results[job.path].certificate is not None


# Any: values of the columns.
def _last_row(folder: RunFolder, job: Job) -> dict[str, Any]:
    """The last row of a search's trace."""
    return folder.results[job.path].frame(schema.TRACE).row(-1, named=True)


def _result(folder: RunFolder, job: Job, new: Container[str]) -> SearchResult:
    """What a search found in one direction; `new` has the paths of this call."""

    def read() -> dict[str, Any]:  # Any: JSON values
        last, result = _last_row(folder, job), folder.results[job.path]
        certificate = result.certificate and to_json(result.certificate)
        kept = {"reward": last["reward"], "text": last["text"], "rejected": result.rejected or 0}
        return {**kept, "certificate": certificate}

    said = processes.from_first(job.path, read)
    certificate = said.pop("certificate")
    return SearchResult(
        model=job.model,
        prompt_id=job.prompt,
        direction=job.direction,
        certificate=certificate and from_json(Certificate, certificate),
        new=job.path in new,
        **said,
    )


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
