"""Searches of models under prompts into a run folder; resumable, self-checked."""

import dataclasses
import functools
import hashlib
import io
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import polars as pl
from jax.sharding import Mesh
from tqdm import tqdm

from engine import mesh as meshes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError
from engine.progress import progress
from engine.runs import parts, schema
from engine.runs.manifest import Manifest
from engine.scoring.reward_passes import Scorer, dtype_named
from engine.search import loop
from engine.search.climb import planned_steps
from engine.search.objective import Problem
from engine.search.settings import DIRECTIONS, SearchSettings
from engine.search.step import plan_of
from engine.sweep import setup
from engine.sweep.rewards import SweepSettings, sweep_replies
from engine.sweep.self_check import SELF_CHECK_TOLERANCE

_LONGEST_ID = 100  # of a prompt: it is a folder's name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What one search found."""

    model: str
    prompt: str
    direction: str
    reward: float
    text: str
    rejected: int  # candidates, for their text
    new: bool  # by this call


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One model under one prompt (or several, judged together), and the directions it lacks."""

    checkpoint: Checkpoint
    prompt: str  # id
    problem: Problem  # its direction: what is missing
    paths: Mapping[str, str]  # direction -> file, relative to the run
    complete: Mapping[str, str]  # the same of directions that are there

    @property
    def steps(self) -> int:
        """About how many there will be, if nothing ends it early."""
        return planned_steps(self.problem)

    def spent(self, steps: int, trace: loop.Trace) -> float:
        """The share of its budgets, steps and FLOPs, that a search has spent."""
        settings = self.problem.settings
        flops = trace.flops_of(settings)[-1] / settings.flops if settings.flops else 0.0
        return min(1.0, max(steps / settings.steps, flops))


def search_sequences(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SearchSettings,
    mesh: Mesh,
    *,
    joint: bool = False,
) -> list[Found]:
    """Searches every model under every prompt into `run/sequences`.

    Args:
      checkpoints: models, one search each.
      prompts: prompt id -> text.
      run: run folder, new or to be continued.
      settings: of every search.
      mesh: from `engine.mesh.build_mesh`.
      joint: one search for sequences that all prompts reward, by the mean reward; filed under the
        prompt id `mean.<id>.<id>…`, or a hash where that is long.

    Returns:
      What the searches found, those first that were complete before and are not run again.

    Raises:
      AssayError: bad input, a result begun under another fingerprint, a reward that is not finite,
        a self-check beyond tolerance.
    """
    manifest = setup.open_run(run, checkpoints, prompts)
    frames = _vocabularies(manifest, checkpoints)
    asked = {name: [text] for name, text in prompts.items()}
    if joint:
        asked = {_joint_id(list(prompts)): list(prompts.values())}
    planned = [
        _plan(manifest, checkpoint, name, texts, frames, settings)
        for checkpoint in checkpoints
        for name, texts in asked.items()
    ]
    pending = [job for job in planned if job.paths]
    found = [_read(manifest, job, *named) for job in planned for named in job.complete.items()]
    for checkpoint in checkpoints:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    if pending:
        setup.begin(manifest, _unwritten(manifest, frames))
    loaded = None
    with progress(sum(job.steps for job in pending), "steps") as bar:
        for job in pending:
            bar.set_description(f"loading {job.checkpoint.card.slug}")
            if loaded is None or loaded[0] is not job.checkpoint:
                loaded = None  # before the next one is read
                loaded = job.checkpoint, _scorer(job.checkpoint, mesh, settings.dtype, settings)
            found += _search(manifest, job, loaded[1], bar)
    return found


def score_elsewhere(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    texts: Sequence[str],
    settings: SearchSettings,
    mesh: Mesh,
) -> int:
    """Scores found texts under every model, as an item list: what one model likes, do others?"""
    distinct = sorted(set(texts))
    digest = hashlib.sha256("\0".join(distinct).encode()).hexdigest()[:8]
    data = mesh.shape["data"]
    sweep = SweepSettings(
        mode="text", dtype=settings.dtype, step_size=64 * data, part_size=4096, self_check=4,
        seed=settings.seed, pooling="last", objectives="none",
    )  # fmt: skip
    return sweep_replies(checkpoints, prompts, schema.FOUND + digest, distinct, run, sweep, mesh)


def trace_frame(problem: Problem, trace: loop.Trace, direction: str) -> pl.DataFrame:
    """The best after each step of one direction, from the first that was found.

    Returns:
      `schema.SEQUENCE_COLUMNS`; reward is the model's own, whichever direction was sought.
    """
    settings = problem.settings
    rewards, ids = trace.best(settings.directions.index(direction), settings)
    stop = loop.end_of(rewards, settings)
    rows = np.flatnonzero(np.isfinite(rewards[:stop]))
    round_trip = functools.cache(lambda key: (problem.round_trip.text(key),
                                              problem.round_trip.passes(key)))  # fmt: skip
    said = [round_trip(tuple(map(int, ids[row]))) for row in rows]
    return pl.DataFrame(
        {
            "step": rows + 1,
            "reward": np.float32(DIRECTIONS[direction]) * rewards[rows],
            "token_ids": ids[rows].tolist(),
            "text": [text for text, _ in said],
            "round_trips": [passes for _, passes in said],
            "flops": trace.flops_of(settings)[rows],
        },
        schema=schema.SEQUENCE_COLUMNS,
    )


def _plan(
    manifest: Manifest,
    checkpoint: Checkpoint,
    prompt: str,
    texts: Sequence[str],
    frames: Mapping[str, pl.DataFrame],
    settings: SearchSettings,
) -> Job:
    split = [checkpoint.template.split(text) for text in texts]
    paths, complete = {}, {}
    for direction in settings.directions:
        path = schema.sequences_path(
            checkpoint.card.slug, prompt, direction, settings.method, settings.seed
        )
        fingerprint = settings.fingerprint(direction) | {
            "checkpoint_hash": checkpoint.card.checkpoint_hash,
            "prefix_ids": [list(p.prefix) for p in split],
            "suffix_ids": list(split[0].suffix),
        }
        manifest.admit_result(path, fingerprint)
        there = manifest.result(path)["complete"] and (manifest.run / path).exists()
        (complete if there else paths)[direction] = path
    missing = tuple(paths) or settings.directions
    sought = "both" if len(missing) == len(DIRECTIONS) else missing[0]
    own = dataclasses.replace(settings, direction=sought)
    frame = frames[checkpoint.card.tokenizer_hash]
    problem = Problem.build(checkpoint, split, frame, own)
    plan_of(own)
    return Job(
        checkpoint=checkpoint, prompt=prompt, problem=problem, paths=paths, complete=complete
    )


def _search(manifest: Manifest, job: Job, scorer: Scorer, bar: tqdm) -> list[Found]:
    """Runs a job to its end and writes a file a direction."""
    problem, began, done = job.problem, time.perf_counter(), bar.n
    settings = problem.settings
    bar.set_description(f"{job.checkpoint.card.slug} · {job.prompt} · {settings.method}")

    def tell(steps: int, trace: loop.Trace) -> None:
        best = [
            f"{name} {DIRECTIONS[name] * trace.best(d, settings)[0][-1]:.4g}"
            for d, name in enumerate(settings.directions)
        ]
        bar.set_postfix_str(", ".join(best), refresh=False)
        bar.update(done + round(job.spent(steps, trace) * job.steps) - bar.n)

    state = (manifest.run / next(iter(job.paths.values()))).parent.parent
    state /= f"{settings.method}-seed{settings.seed}-{settings.direction}.safetensors"
    trace, rejected = loop.run(problem, scorer, state, tell)
    bar.update(done + job.steps - bar.n)  # what an early end left out
    seconds = time.perf_counter() - began
    found = []
    for direction, path in job.paths.items():
        steps = trace_frame(problem, trace, direction)
        check = _self_check(problem, scorer, job.checkpoint, steps, path)
        if jax.process_index() == 0:
            file = manifest.run / path
            digest = parts.write_frame(file, steps)
            manifest.record_part(path, file.name, len(steps), digest, seconds / len(job.paths))
            manifest.finish(path, check)
            manifest.result(path)["rejected"] = rejected[direction]
        found.append(_last(job, direction, steps, rejected[direction], new=True))
    if jax.process_index() == 0:
        manifest.save()  # of all directions at once: what is noted cannot go on from `state`
        state.unlink(missing_ok=True)
    return found


def _read(manifest: Manifest, job: Job, direction: str, path: str) -> Found:
    """What a complete search had found; its file is held against its hash."""
    file, result = manifest.run / path, manifest.result(path)
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != result["parts"][file.name]["sha256"]:
        raise AssayError(f"{file}: differs from its hash in the manifest; remove it")
    return _last(job, direction, pl.read_parquet(io.BytesIO(data)), result["rejected"], new=False)


def _last(job: Job, direction: str, steps: pl.DataFrame, rejected: int, *, new: bool) -> Found:
    last = steps.row(-1, named=True)
    return Found(
        model=job.checkpoint.card.slug, prompt=job.prompt, direction=direction,
        reward=last["reward"], text=last["text"], rejected=rejected, new=new,
    )  # fmt: skip


def _joint_id(prompts: Sequence[str]) -> str:
    name = ".".join(["mean", *prompts])
    if len(name) <= _LONGEST_ID:
        return name
    return f"mean.of-{len(prompts)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _self_check(
    problem: Problem, scorer: Scorer, checkpoint: Checkpoint, steps: pl.DataFrame, path: str
) -> dict[str, Any]:
    """Holds what was found against the plain pass in float32, from its ids and from its text."""
    dtype = problem.settings.dtype
    if dtype != "float32":
        scorer = _scorer(checkpoint, scorer.mesh, "float32", problem.settings)
    last = steps.row(-1, named=True)
    ids = [[*p.prefix, *last["token_ids"], *p.suffix] for p in problem.prompts]
    texts = [problem.template.sequences(p.prompt, [last["text"]])[0] for p in problem.prompts]
    plain = scorer.plain_rewards([*ids, *texts])[0].reshape(2, -1).mean(1)
    tolerance = SELF_CHECK_TOLERANCE[dtype]
    difference, allowed = abs(plain[0] - last["reward"]), tolerance * max(1.0, abs(plain[0]))
    if not difference <= allowed:
        raise AssayError(
            f"self-check of {path}: reward {last['reward']:.6g}, the plain pass gives "
            f"{plain[0]:.6g}; allowed difference {allowed:.2g}"
        )
    return {
        "candidates": 1,
        "max_abs_difference": float(difference),
        "tolerance": tolerance,
        "reward_from_text": float(plain[1]),
    }


def _scorer(checkpoint: Checkpoint, mesh: Mesh, dtype: str, settings: SearchSettings) -> Scorer:
    data = mesh.shape["data"]
    step_size = -(-settings.candidates // data) * data
    restored = restore([checkpoint], mesh, dtype_named(dtype))
    return Scorer.build(*restored, mesh, step_size=step_size)


def _vocabularies(manifest: Manifest, checkpoints: Sequence[Checkpoint]) -> dict[str, pl.DataFrame]:
    """Tokenizer hash -> its table: the run's, or made."""
    frames: dict[str, pl.DataFrame] = {}
    for checkpoint in checkpoints:
        name = checkpoint.card.tokenizer_hash
        if name not in frames:
            path = manifest.run / schema.vocab_path(name)
            frames[name] = (
                pl.read_parquet(io.BytesIO(path.read_bytes()))
                if path.exists()
                else setup.vocabulary_of(checkpoint)
            )
    return frames


def _unwritten(manifest: Manifest, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    paths = {schema.vocab_path(name): frame for name, frame in frames.items()}
    return {path: f for path, f in paths.items() if not (manifest.run / path).exists()}
