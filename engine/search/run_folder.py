"""Searches of several models and prompts into a run folder; resumable and self-checked."""

import dataclasses
import functools
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from jax.sharding import Mesh
from tqdm import tqdm

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.planning.admission import Place
from engine.progress import progress
from engine.runs import parts, provenance, schema, storage
from engine.runs.manifest import Manifest
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.search import certificates, jobs
from engine.search.certificates import CertificateJob
from engine.search.drivers import run_search
from engine.search.jobs import SearchJob
from engine.search.objective import SearchObjective
from engine.search.self_check import self_check
from engine.search.trace import Trace, end_step
from engine.settings import AUTO, DIRECTIONS, SearchSettings, SweepSettings
from engine.sweep import setup
from engine.sweep.outcomes import free_models, memory_errors
from engine.sweep.rewards import sweep_replies


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
    universal: Mapping[str, Any] | None = None  # the same, of a universal search
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
      AssayError: bad input; a result begun under another fingerprint; a reward that is not finite;
        a self-check beyond tolerance.
    """
    manifest = setup.open_run(run, checkpoints, prompts, settings, mesh)
    frames = vocabularies(manifest, checkpoints)
    every = jobs.jobs_of(manifest, checkpoints, prompts, frames, settings, mesh, joint=joint)
    certified = certificates.jobs_of(manifest, every, settings, mesh)
    pending = [job for job in every if job.missing]
    open_ended = [job for job in certified if not job.complete]
    results = [_read(manifest, job, *named) for job in every for named in job.complete.items()]
    for checkpoint in checkpoints:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    if check_memory:
        for job in pending:
            jobs.check_memory(job.checkpoint, job.objective, mesh)
        place = Place.of(mesh)
        for one in open_ended:
            certificates.check_memory(one, settings.dtype, place)
    if pending or open_ended:
        setup.begin(manifest, unwritten(manifest, frames))
    results += [_certified(manifest, job) for job in certified if job.complete]
    loaded = _Loaded(mesh, settings)
    with progress(sum(job.steps for job in pending), "steps") as bar:
        for job in pending:
            slug = job.checkpoint.card.slug
            bar.set_description(f"loading {slug}")
            with memory_errors([slug], mesh, "candidates", settings.candidates):
                results += _search(manifest, job, loaded.scorer(job.checkpoint), bar)
    with progress(sum(job.swaps for job in open_ended), "swaps") as bar:
        for one in open_ended:
            results.append(_certify(manifest, one, loaded, bar))
    if processes.writes():
        manifest.save_if_changed()  # files that the manifest lacked
    return results


def score_elsewhere(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    texts: Sequence[str],
    settings: SearchSettings,
    mesh: Mesh,
    *,
    check_memory: bool = True,
) -> int:
    """Scores the texts that searches found under every model, as an item list.

    Args:
      checkpoints: the models that score.
      prompts: prompt id -> text.
      run: run folder.
      texts: found texts, which may repeat.
      settings: `dtype` and `seed` are read.
      mesh: from `engine.mesh.build_mesh`.
      check_memory: whether a model that is larger than the free memory is refused.

    Returns:
      The number of rewards that were computed.
    """
    free_models()
    distinct = sorted(set(texts))
    digest = hashlib.sha256("\0".join(distinct).encode()).hexdigest()[:8]
    sweep = SweepSettings(
        mode="text",
        dtype=settings.dtype,
        step_size=64,
        part_size=4096,
        self_check=4,
        seed=settings.seed,
        pooling=AUTO,
        objectives="none",
        check_memory=check_memory,
    )
    return sweep_replies(checkpoints, prompts, schema.FOUND + digest, distinct, run, sweep, mesh)


def trace_frame(objective: SearchObjective, trace: Trace, direction: str) -> pl.DataFrame:
    """The best sequence after each step of one direction, from its first sequence to its end.

    Returns:
      `schema.SEQUENCE_COLUMNS`; `reward` is not signed.
    """
    settings = objective.settings
    rewards, ids = trace.best(settings.directions.index(direction), settings)
    stop = end_step(rewards, settings)
    rows = np.flatnonzero(np.isfinite(rewards[:stop]))

    @functools.cache
    def text_and_verdict(key: tuple[int, ...]) -> tuple[str, bool]:
        return objective.round_trip.text(key), objective.round_trip.passes(key)

    said = [text_and_verdict(tuple(map(int, ids[row]))) for row in rows]
    return pl.DataFrame(
        {
            "step": rows + 1,
            "reward": np.float32(DIRECTIONS[direction]) * rewards[rows],
            "token_ids": ids[rows].tolist(),
            "text": [text for text, _ in said],
            "round_trips": [passes for _, passes in said],
            "flops": trace.flops_per_direction(settings)[rows],
        },
        schema=schema.SEQUENCE_COLUMNS,
    )


def _search(
    manifest: Manifest, job: SearchJob, scorer: RewardScorer, bar: tqdm
) -> list[SearchResult]:
    """Runs a search to its end and writes one file per direction."""
    objective, began, done = job.objective, time.perf_counter(), bar.n
    settings = objective.settings
    bar.set_description(f"{job.checkpoint.card.slug} · {job.prompt_id} · {settings.method}")

    def show(steps: int, trace: Trace) -> None:
        best = [
            f"{name} {DIRECTIONS[name] * trace.best(d, settings)[0][-1]:.4g}"
            for d, name in enumerate(settings.directions)
        ]
        bar.set_postfix_str(", ".join(best), refresh=False)
        bar.update(done + round(job.spent(steps, trace) * job.steps) - bar.n)

    state = (manifest.run / next(iter(job.missing.values()))).parent.parent
    state /= f"{settings.method}-seed{settings.seed}-{settings.direction}.safetensors"
    trace, rejected = run_search(objective, scorer, state, show)
    bar.update(done + job.steps - bar.n)  # the steps that an early end left out
    seconds = time.perf_counter() - began
    results = []
    for direction, path in job.missing.items():
        steps = trace_frame(objective, trace, direction)
        check = self_check(objective, scorer, steps, path)
        if processes.writes():
            file = manifest.run / path
            about = {
                **manifest.about(path, job.prompts),
                "rows": provenance.part_rows(0, len(steps), len(steps)),
                "self_check": check,
                "rejected": rejected[direction],
                "computed_by": manifest.computed_by,
            }
            digest = parts.write_frame(file, steps, about)
            manifest.record_part(path, file.name, len(steps), digest, seconds / len(job.missing))
            manifest.finish(path, check)
            manifest.result(path)["rejected"] = rejected[direction]
        results.append(_result(job, direction, steps, rejected[direction], new=True))
    if processes.writes():
        manifest.save()  # once for all directions: `state` cannot resume one of them alone
        storage.remove(state)
    return results


def _read(manifest: Manifest, job: SearchJob, direction: str, path: str) -> SearchResult:
    """The result of a search that was complete before."""
    steps, said = processes.from_first(path, lambda: jobs.last_row(manifest, path, job.prompts))
    frame = pl.DataFrame(steps, schema=schema.SEQUENCE_COLUMNS)
    return _result(job, direction, frame, said["rejected"], new=False)


def _result(
    job: SearchJob,
    direction: str,
    steps: pl.DataFrame,
    rejected: int,
    certificate: Mapping[str, Any] | None = None,
    *,
    new: bool,
) -> SearchResult:
    last = steps.row(-1, named=True)
    return SearchResult(
        model=job.checkpoint.card.slug,
        prompt_id=job.prompt_id,
        direction=direction,
        reward=last["reward"],
        text=last["text"],
        rejected=rejected,
        certificate=certificate,
        new=new,
    )


def _certify(manifest: Manifest, job: CertificateJob, loaded: "_Loaded", bar: tqdm) -> SearchResult:
    """Runs the certificate of a search, and writes its file."""
    slug, began = job.search.checkpoint.card.slug, bar.n
    bar.set_description(f"{slug} · {job.search.prompt_id} · certifying {job.direction}")
    with memory_errors([slug], loaded.mesh, "certify_step", job.step_size):
        scorer = loaded.scorer(job.search.checkpoint)
        frame = certificates.certify(manifest, job, scorer, bar.update)
    bar.update(began + job.swaps - bar.n)  # the sweeps that were not needed
    said = processes.from_first(f"said of {job.path}", lambda: manifest.result(job.path))
    return _result(
        job.search, job.direction, frame, said["rejected"], said["certificate"], new=True
    )


def _certified(manifest: Manifest, job: CertificateJob) -> SearchResult:
    """The certificate of a search that was complete before."""
    steps, said = processes.from_first(
        job.path, lambda: jobs.last_row(manifest, job.path, job.search.prompts)
    )
    frame = pl.DataFrame(steps, schema=schema.SEQUENCE_COLUMNS)
    return _result(
        job.search, job.direction, frame, said["rejected"], said["certificate"], new=False
    )


class _Loaded:
    """The model that was loaded last."""

    def __init__(self, mesh: Mesh, settings: SearchSettings):
        self.mesh, self._settings = mesh, settings
        self._held: tuple[Checkpoint, RewardScorer] | None = None

    def scorer(self, checkpoint: Checkpoint) -> RewardScorer:
        """A model, loaded unless it is the last one."""
        if self._held is None or self._held[0] is not checkpoint:
            if self._held is not None:
                self._held = None
                free_models()
            restored = restore([checkpoint], self.mesh, dtype_named(self._settings.dtype))
            step = self._settings.candidates
            self._held = checkpoint, RewardScorer.build(*restored, self.mesh, step_size=step)
        return self._held[1]


def vocabularies(manifest: Manifest, checkpoints: Sequence[Checkpoint]) -> dict[str, pl.DataFrame]:
    """Tokenizer hash -> vocabulary: read from the run, or computed."""
    frames: dict[str, pl.DataFrame] = {}
    for checkpoint in checkpoints:
        name = checkpoint.card.tokenizer_hash
        if name not in frames:
            path = schema.vocab_path(name)
            read = setup.read_vocabulary(manifest, path) if processes.writes() else None
            frames[name] = setup.vocabulary_of(checkpoint) if read is None else read
    return frames


def unwritten(manifest: Manifest, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Path -> vocabulary, of those that the run does not have."""
    if not processes.writes():
        return {}
    paths = {schema.vocab_path(name): frame for name, frame in frames.items()}
    return {path: f for path, f in paths.items() if not storage.exists(manifest.run / path)}
