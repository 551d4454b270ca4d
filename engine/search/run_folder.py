"""Searches of several models and prompts into a run folder; resumable and self-checked."""

import dataclasses
import functools
import hashlib
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
from engine.planning.admission import Place
from engine.progress import progress
from engine.runs import schema, storage
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.search import certificates, jobs, judges, universal
from engine.search.baselines import SuffixScorer
from engine.search.jobs import Job
from engine.search.judges import IdsJudge, Judge, TextJudge
from engine.search.loop import run_search
from engine.search.objective import SearchObjective
from engine.search.trace import Trace, end_step
from engine.settings import AUTO, DIRECTIONS, SearchSettings, SweepSettings
from engine.sweep import setup
from engine.sweep.outcomes import free_models, memory_errors
from engine.sweep.reward_jobs import sweep_replies


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best sequence of one model under one prompt in one direction."""

    model: str  # slug
    prompt_id: str
    direction: str  # max or min
    reward: float
    text: str
    rejected: int  # candidates rejected because their text does not round-trip; 0 if universal
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
    rule: str = "",
    check_memory: bool = True,
) -> list[SearchResult]:
    """Searches every model under every prompt and writes the traces to `run/sequences`.

    Args:
      checkpoints: the models. Of a universal search all are loaded at once; those that do not
        share the first one's tokenizer read texts, give no gradient and get no file.
      prompts: prompt id -> text.
      run: run folder, new or to be continued.
      settings: of every search.
      mesh: from `engine.mesh.build_mesh`.
      joint: one search per model for sequences with a high (or low) mean reward over all prompts;
        its prompt id is `mean.<id>.<id>…`, or holds a hash if that is too long.
      rule: a universal search, one for all models and prompts: by the `mean` or the `minimum` of
        their standardised rewards; "": a search for each.
      check_memory: whether a model that is larger than the free memory is refused.

    Returns:
      One result per model, prompt and direction: first those that were complete before; of a
      universal search by direction, then in the order in which models and prompts are named.

    Raises:
      AssayError: bad input; a result that the run holds with another fingerprint; a reward that is
        not finite; a self-check beyond tolerance.
    """
    if rule:
        judges.check_rule(rule, len(checkpoints) * len(prompts))
    manifest = setup.open_run(run, checkpoints, prompts, settings, mesh)
    frames = _vocabularies(manifest, checkpoints)
    for checkpoint in checkpoints:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    of = manifest, checkpoints, prompts, frames, settings, mesh
    every = [jobs.universal_search(*of, rule=rule)] if rule else jobs.searches_of(*of, joint=joint)
    certified = certificates.jobs_of(manifest, every, settings, mesh)
    searches = [job for job in every if job.missing]
    certifying = [job for job in certified if job.missing]
    for job in searches if check_memory else ():
        jobs.check_memory(job, mesh)
    for job in certifying if check_memory else ():
        certificates.check_memory(job, Place.of(mesh))
    if searches or certifying:
        for job in searches:
            judges.announce(job.readers.values())
        setup.begin(manifest, _unwritten(manifest, frames))
    complete = [one for job in (*every, *certified) for one in _results(manifest, job, new=False)]
    loaded = _Loaded(mesh, settings)
    new = []
    with progress(sum(job.steps for job in searches), "steps") as bar:
        for job in searches:
            bar.set_description(f"loading {', '.join(job.models)}")
            with memory_errors(list(job.models), mesh, "candidates", settings.candidates):
                _search(manifest, job, loaded, bar)
            new += _results(manifest, job, new=True)
    with progress(sum(job.swaps for job in certifying), "swaps") as bar:
        for job in certifying:
            with memory_errors(list(job.models), mesh, "certify_step", job.step_size):
                _certify(manifest, job, loaded, bar)
            new += _results(manifest, job, new=True)
    if processes.writes():
        manifest.save_if_changed()  # files that the manifest lacked
    if not rule:
        return [*complete, *new]
    named = [(checkpoint.card.slug, prompt) for checkpoint in checkpoints for prompt in prompts]
    order = list(DIRECTIONS)
    return sorted(
        [*complete, *new],
        key=lambda r: (order.index(r.direction), named.index((r.model, r.prompt_id))),
    )


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


def rewards_of_judge(frame: pl.DataFrame, judge: IdsJudge) -> pl.DataFrame:
    """The sequences of a trace with the rewards of one judge, not standardised."""
    ids, place = np.unique(np.array(frame["token_ids"].to_list()), axis=0, return_inverse=True)
    rewards = SuffixScorer(judge.objective, judge.scorer).rewards((), ids.astype(np.int32))
    return frame.with_columns(reward=pl.Series(rewards[place.ravel()], dtype=pl.Float32))


def _search(manifest: Manifest, job: Job, loaded: "_Loaded", bar: tqdm) -> None:
    """Runs a search to its end, or resumes it, and writes its files."""
    objective, settings, done = job.objective, job.objective.settings, bar.n
    scorers = loaded.scorers(job)
    judged, read = _judges(job, scorers) if job.rule else ([], [])
    driver = universal.universal_driver(objective, judged, job.rule, read) if job.rule else None
    began = time.perf_counter()
    bar.set_description(f"{' · '.join([*job.models, *job.prompts])} · {settings.method}")

    def show(steps: int, trace: Trace) -> None:
        best = [
            f"{name} {DIRECTIONS[name] * trace.best(d, settings)[0][-1]:.4g}"
            for d, name in enumerate(settings.directions)
        ]
        bar.set_postfix_str(", ".join(best), refresh=False)
        bar.update(done + round(job.spent(steps, trace) * job.steps) - bar.n)

    state, first = _state_file(manifest, job), scorers[next(iter(job.each))]
    trace, rejected = run_search(objective, first, state, show, driver)
    bar.update(done + job.steps - bar.n)  # the steps that an early end left out
    files = len(job.missing) * len(job.files[job.missing[0]])
    seconds = (time.perf_counter() - began) / files
    by_name = {(judge.model, judge.prompt_id): judge for judge in judged}
    for direction in job.missing:
        steps = trace_frame(objective, trace, direction)
        said: Json = {"rejected": rejected[direction]}
        if job.rule:
            said["universal"] = _said_of(job, steps, [*judged, *read])
        for name, path in job.files[direction].items():
            scored = (objective, steps)
            if job.rule:
                judge = by_name[name]
                scored = (judge.objective, rewards_of_judge(steps, judge))
            check = jobs.self_check(scored[0], scorers[name[0]], scored[1], path)
            jobs.write(manifest, path, job.about_prompts, scored[1], check, said, seconds)
    if processes.writes():
        manifest.save()  # once for all directions: `state` cannot resume one of them alone
        storage.remove(state)


def _judges(
    job: Job, scorers: Mapping[str, RewardScorer]
) -> tuple[list[IdsJudge], list[TextJudge]]:
    """The judges of a universal search: those of token ids and those of texts."""
    judged: list[IdsJudge] = []
    read: list[TextJudge] = []
    for slug, scorer in scorers.items():
        if slug in job.readers:
            read += judges.text_judges(job.readers[slug], job.objective, scorer)
        else:
            judged += judges.ids_judges(slug, job.prompts, job.each[slug], scorer)
    return judged, read


def _said_of(job: Job, steps: pl.DataFrame, every: Sequence[Judge]) -> Mapping[str, Any]:
    """What the files of a universal search say of it: JSON values."""
    return {
        "rule": job.rule,
        "group": job.group,
        "objective": steps["reward"][-1],
        "judges": [[one.model, one.prompt_id, one.mean, one.sd] for one in every],
        **({"readers": sorted(job.readers)} if job.readers else {}),
    }


def _state_file(manifest: Manifest, job: Job) -> epath.Path:
    """Where an unfinished search lies."""
    settings = job.objective.settings
    name = f"{settings.method}-seed{settings.seed}-{settings.direction}.safetensors"
    if job.rule:
        return manifest.run / schema.SEQUENCES_DIR / f"universal-{job.group}-{name}"
    [path] = job.files[job.missing[0]].values()
    return (manifest.run / path).parent.parent / name


def _certify(manifest: Manifest, job: Job, loaded: "_Loaded", bar: tqdm) -> None:
    """Runs the certificate of a search, and writes its file."""
    began, [slug] = bar.n, job.models
    names = " · ".join([slug, *job.prompts])
    bar.set_description(f"{names} · certifying {job.missing[0]}")
    certificates.certify(manifest, job, loaded.scorers(job)[slug], bar.update)
    bar.update(began + job.swaps - bar.n)  # the sweeps that were not needed


def _results(manifest: Manifest, job: Job, *, new: bool) -> list[SearchResult]:
    """Results in a job's files: those just written if `new`, else those complete before."""
    results = []
    for direction, files in job.files.items():
        for (slug, prompt_id), path in files.items() if new == (direction in job.missing) else ():
            read = functools.partial(jobs.last_row, manifest, path, job.about_prompts)
            last, said = processes.from_first(path, read)
            results.append(
                SearchResult(
                    model=slug,
                    prompt_id=prompt_id,
                    direction=direction,
                    reward=last["reward"],
                    text=last["text"],
                    rejected=0 if job.rule else said["rejected"],
                    certificate=said["certificate"] if job.searched else None,
                    universal=said["universal"] if job.rule else None,
                    new=new,
                )
            )
    return results


class _Loaded:
    """The models that were loaded last."""

    def __init__(self, mesh: Mesh, settings: SearchSettings):
        self._mesh, self._settings = mesh, settings
        self._held: dict[str, RewardScorer] = {}

    def scorers(self, job: Job) -> dict[str, RewardScorer]:
        """The models of a job by slug, loaded unless they are those of the last one."""
        if list(self._held) != list(job.models):
            if self._held:
                self._held = {}
                free_models()
            step, dtype = self._settings.candidates, dtype_named(self._settings.dtype)
            for slug, checkpoint in job.models.items():
                restored = restore([checkpoint], self._mesh, dtype)
                self._held[slug] = RewardScorer.build(*restored, self._mesh, step_size=step)
        return self._held


def _vocabularies(manifest: Manifest, checkpoints: Sequence[Checkpoint]) -> dict[str, pl.DataFrame]:
    """Tokenizer hash -> vocabulary: read from the run, or computed."""
    frames: dict[str, pl.DataFrame] = {}
    for checkpoint in checkpoints:
        name = checkpoint.card.tokenizer_hash
        if name not in frames:
            path = schema.vocab_path(name)
            read = setup.read_vocabulary(manifest, path) if processes.writes() else None
            frames[name] = setup.vocabulary_of(checkpoint) if read is None else read
    return frames


def _unwritten(manifest: Manifest, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Path -> vocabulary, of those that the run does not have."""
    if not processes.writes():
        return {}
    paths = {schema.vocab_path(name): frame for name, frame in frames.items()}
    return {path: f for path, f in paths.items() if not storage.exists(manifest.run / path)}
