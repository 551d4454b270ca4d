"""Searches of several models and prompts into a run folder; resumable and self-checked."""

import dataclasses
import functools
import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
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
from engine.runs import parts, provenance, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.scoring.reward_passes import RewardScorer, dtype_named, self_check, tolerance_of_one
from engine.search import certificate, jobs
from engine.search.baselines import SuffixScorer
from engine.search.certificate import Ascent
from engine.search.jobs import Search
from engine.search.loop import Trace, run_problem, trace_frame
from engine.search.objective import SearchObjective, SearchProblem
from engine.search.universal import IdsJudge, Judge
from engine.settings import AUTO, DIRECTIONS, SearchSettings, SweepSettings
from engine.sweep import setup
from engine.sweep.jobs import Job
from engine.sweep.outcomes import free_models, memory_errors
from engine.sweep.reward_jobs import sweep_rewards


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
    manifest = setup.open_run(run, checkpoints, prompts, settings, mesh)
    vocabularies = setup.vocabularies(manifest, checkpoints)
    for checkpoint in checkpoints:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    every = jobs.searches_of(
        manifest, checkpoints, prompts, vocabularies, settings, mesh, joint=joint, rule=rule
    )
    certificates = jobs.certificates_of(manifest, every, settings, mesh)
    missing = [search for search in [*every, *certificates] if search.missing]
    for search in missing if check_memory else ():
        jobs.check_memory(search, mesh)
    if missing:
        for search in missing:
            if not search.searched:
                search.problem.announce()
        setup.begin(manifest, vocabularies)
    results = [one for search in [*every, *certificates] for one in _results(manifest, search)]
    held: dict[str, RewardScorer] = {}
    for what, of in (("steps", every), ("swaps", certificates)):
        of = [search for search in of if search.missing]
        with progress(sum(search.amount for search in of), what) as bar:
            for search in of:
                bar.set_description(f"loading {', '.join(search.slugs)}")
                size = "certify_step" if search.searched else "candidates"
                step = search.step_size or settings.candidates
                with memory_errors(search.slugs, mesh, size, step):
                    scorers = _scorers(search, held, mesh, settings)
                    (_certify if search.searched else _search)(manifest, search, scorers, bar)
                results += _results(manifest, search, new=True)
    if processes.writes():
        manifest.save_if_changed()  # files that the manifest lacked
    if not rule:
        return results
    named = [(checkpoint.card.slug, prompt) for checkpoint in checkpoints for prompt in prompts]
    order = list(DIRECTIONS)
    return sorted(
        results, key=lambda r: (order.index(r.direction), named.index((r.model, r.prompt_id)))
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
    """Scores the texts that searches found, which may repeat, under every model, as an item list.

    Of the settings, `dtype` and `seed` are read. Returns the number of rewards that were computed.
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
    items = schema.FOUND + digest, distinct
    return sweep_rewards(checkpoints, prompts, run, sweep, mesh, items=items)


def _search(
    manifest: Manifest, search: Search, scorers: Mapping[str, RewardScorer], bar: tqdm
) -> None:
    """Runs a search to its end, or resumes it, and writes its files."""
    problem, settings, done = search.problem, search.settings, bar.n
    began = time.perf_counter()
    bar.set_description(f"{search.title} · {settings.method}")

    def show(steps: int, trace: Trace) -> None:
        best = [
            f"{name} {DIRECTIONS[name] * trace.best(d, settings)[0][-1]:.4g}"
            for d, name in enumerate(settings.directions)
        ]
        bar.set_postfix_str(", ".join(best), refresh=False)
        bar.update(done + min(steps, search.amount) - bar.n)

    missing = [job for job in search.jobs if job.direction in search.missing]
    state = _state_file(manifest, search, missing[0])
    trace, rejected, judges = run_problem(problem, scorers.values(), state, show)
    bar.update(done + search.amount - bar.n)  # the steps that an early end left out
    seconds = (time.perf_counter() - began) / len(missing)
    by_name = {(j.model, j.prompt_id): j for j in judges if isinstance(j, IdsJudge)}
    traces = {d: trace_frame(problem.objective, trace, d) for d in search.missing}
    for job in missing:
        judged, frame = problem.objective, traces[job.direction]
        said: Json = {"rejected": rejected[job.direction]}
        if problem.rule:
            said["universal"] = _universal_entry(problem, frame, judges)
            judge = by_name[job.model, job.prompt]
            judged, frame = judge.objective, rewards_of_judge(frame, judge)
        check = check_last_step(judged, scorers[job.model], frame, job.path)
        _write(manifest, job.path, search.prompts, frame, check, said, seconds)
    if processes.writes():
        manifest.save()  # once for all directions: `state` cannot resume one of them alone
        storage.remove(state)


def _universal_entry(
    problem: SearchProblem, steps: pl.DataFrame, judges: Iterable[Judge]
) -> Mapping[str, Any]:
    """What the files of a universal search say of it: JSON values."""
    readers = sorted(reader.checkpoint.card.slug for reader in problem.readers)
    return {
        "rule": problem.rule,
        "group": problem.group,
        "objective": steps["reward"][-1],
        "judges": [[one.model, one.prompt_id, one.mean, one.sd] for one in judges],
        **({"readers": readers} if readers else {}),
    }


def rewards_of_judge(frame: pl.DataFrame, judge: IdsJudge) -> pl.DataFrame:
    """The sequences of a trace with the rewards of one judge, not standardised."""
    ids, place = np.unique(np.array(frame["token_ids"].to_list()), axis=0, return_inverse=True)
    rewards = SuffixScorer(judge.objective, judge.scorer).rewards((), ids.astype(np.int32))
    return frame.with_columns(reward=pl.Series(rewards[place.ravel()], dtype=pl.Float32))


def _state_file(manifest: Manifest, search: Search, job: Job) -> epath.Path:
    """Where an unfinished search lies, one of whose missing files is that of `job`."""
    settings = search.settings
    name = f"{settings.method}-seed{settings.seed}-{settings.direction}.safetensors"
    if search.problem.rule:
        return manifest.run / schema.SEQUENCES_DIR / f"universal-{search.problem.group}-{name}"
    return (manifest.run / job.path).parent.parent / name


def _certify(
    manifest: Manifest, search: Search, scorers: Mapping[str, RewardScorer], bar: tqdm
) -> None:
    """Runs a certificate to its end; its file is written after each sweep, and resumes it."""
    began, done, objective = time.perf_counter(), bar.n, search.problem.objective
    [scorer], [job], direction = scorers.values(), search.jobs, search.settings.direction
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
    results, rule = [], search.problem.rule
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
                    rejected=0 if rule else said["rejected"],
                    certificate=said["certificate"] if search.searched else None,
                    universal=said["universal"] if rule else None,
                    new=new,
                )
            )
    return results


def _scorers(
    search: Search, held: dict[str, RewardScorer], mesh: Mesh, settings: SearchSettings
) -> dict[str, RewardScorer]:
    """The models of a search by slug: those that are `held`, or others in place of them."""
    if list(held) != search.slugs:
        held.clear()
        free_models()
        for slug, model in zip(search.slugs, search.problem.models, strict=True):
            restored = restore([model], mesh, dtype_named(settings.dtype))
            held[slug] = RewardScorer.build(*restored, mesh, step_size=settings.candidates)
    return held
