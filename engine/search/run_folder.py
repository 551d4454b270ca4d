"""Searches of several models and prompts into a run folder; resumable and self-checked."""

import dataclasses
import functools
import hashlib
import io
import time
from collections.abc import Mapping, Sequence

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
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.search.drivers import planned_steps, run_search
from engine.search.objective import SearchObjective
from engine.search.settings import DIRECTIONS, SearchSettings
from engine.search.step import proposed_changes
from engine.search.trace import Trace, end_step
from engine.sweep import setup
from engine.sweep.rewards import SweepSettings, sweep_replies
from engine.sweep.self_check import SELF_CHECK_TOLERANCE

_LONGEST_PROMPT_ID = 100  # characters; an id is the name of a folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best sequence of one model under one prompt in one direction."""

    model: str  # slug
    prompt_id: str
    direction: str  # max or min
    reward: float
    text: str
    rejected: int  # candidates rejected because their text does not round-trip
    new: bool  # whether this call searched it; False: read from the run


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchJob:
    """The search of one model under one prompt, or under several that are judged together."""

    checkpoint: Checkpoint
    prompt_id: str
    objective: SearchObjective  # of the directions that are missing in the run
    missing: Mapping[str, str]  # direction -> file to write, relative to the run
    complete: Mapping[str, str]  # direction -> file that exists, relative to the run

    @property
    def steps(self) -> int:
        """Planned steps (`planned_steps`)."""
        return planned_steps(self.objective)

    def spent(self, steps: int, trace: Trace) -> float:
        """The share of its budget of steps or FLOPs that a search has used, 0 to 1."""
        settings = self.objective.settings
        flops = settings.flops and trace.flops_per_direction(settings)[-1] / settings.flops
        return min(1.0, max(steps / settings.steps, flops))


def search_sequences(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SearchSettings,
    mesh: Mesh,
    *,
    joint: bool = False,
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

    Returns:
      One result per model, prompt and direction: first those that were complete before.

    Raises:
      AssayError: bad input; a result begun under another fingerprint; a reward that is not finite;
        a self-check beyond tolerance.
    """
    manifest = setup.open_run(run, checkpoints, prompts)
    frames = _vocabularies(manifest, checkpoints)
    texts_by_id = {prompt_id: [text] for prompt_id, text in prompts.items()}
    if joint:
        texts_by_id = {_joint_id(list(prompts)): list(prompts.values())}
    every = [
        _job(manifest, checkpoint, prompt_id, texts, frames, settings, mesh)
        for checkpoint in checkpoints
        for prompt_id, texts in texts_by_id.items()
    ]
    pending = [job for job in every if job.missing]
    results = [_read(manifest, job, *named) for job in every for named in job.complete.items()]
    for checkpoint in checkpoints:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    if pending:
        setup.begin(manifest, _unwritten(manifest, frames))
    loaded = None
    with progress(sum(job.steps for job in pending), "steps") as bar:
        for job in pending:
            bar.set_description(f"loading {job.checkpoint.card.slug}")
            if loaded is None or loaded[0] is not job.checkpoint:
                loaded = None  # frees the last model before the next one is read
                loaded = job.checkpoint, _scorer(job.checkpoint, mesh, settings.dtype, settings)
            results += _search(manifest, job, loaded[1], bar)
    return results


def score_elsewhere(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    texts: Sequence[str],
    settings: SearchSettings,
    mesh: Mesh,
) -> int:
    """Scores the texts that searches found under every model, as an item list.

    Args:
      checkpoints: the models that score.
      prompts: prompt id -> text.
      run: run folder.
      texts: found texts, which may repeat.
      settings: `dtype` and `seed` are read.
      mesh: from `engine.mesh.build_mesh`.

    Returns:
      The number of rewards that were computed.
    """
    distinct = sorted(set(texts))
    digest = hashlib.sha256("\0".join(distinct).encode()).hexdigest()[:8]
    sweep = SweepSettings(
        mode="text",
        dtype=settings.dtype,
        step_size=64,
        part_size=4096,
        self_check=4,
        seed=settings.seed,
        pooling="last",
        objectives="none",
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


def _job(
    manifest: Manifest,
    checkpoint: Checkpoint,
    prompt_id: str,
    texts: Sequence[str],
    frames: Mapping[str, pl.DataFrame],
    settings: SearchSettings,
    mesh: Mesh,
) -> SearchJob:
    """The search of one model under prompts that are judged together; nothing is written.

    Args:
      manifest: of the run.
      checkpoint: the model.
      prompt_id: under which the results are filed.
      texts: the prompts.
      frames: tokenizer hash -> vocabulary.
      settings: of the search.
      mesh: the devices.
    """
    prompts = [checkpoint.template.split(text) for text in texts]
    missing, complete = {}, {}
    for direction in settings.directions:
        path = schema.sequences_path(
            checkpoint.card.slug, prompt_id, direction, settings.method, settings.seed
        )
        fingerprint = settings.fingerprint(direction) | {
            "checkpoint_hash": checkpoint.card.checkpoint_hash,
            "prefix_ids": [list(p.prefix) for p in prompts],
            "suffix_ids": list(prompts[0].suffix),
            **meshes.identity(mesh),
        }
        manifest.admit_result(path, fingerprint)
        exists = manifest.result(path)["complete"] and (manifest.run / path).exists()
        (complete if exists else missing)[direction] = path
    directions = tuple(missing) or settings.directions
    direction = "both" if len(directions) == len(DIRECTIONS) else directions[0]
    own = dataclasses.replace(settings, direction=direction)
    frame = frames[checkpoint.card.tokenizer_hash]
    objective = SearchObjective.build(checkpoint, prompts, frame, own)
    proposed_changes(own)
    return SearchJob(
        checkpoint=checkpoint,
        prompt_id=prompt_id,
        objective=objective,
        missing=missing,
        complete=complete,
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
        check = _self_check(objective, scorer, job.checkpoint, steps, path)
        if jax.process_index() == 0:
            file = manifest.run / path
            digest = parts.write_frame(file, steps)
            manifest.record_part(path, file.name, len(steps), digest, seconds / len(job.missing))
            manifest.finish(path, check)
            manifest.result(path)["rejected"] = rejected[direction]
        results.append(_result(job, direction, steps, rejected[direction], new=True))
    if jax.process_index() == 0:
        manifest.save()  # once for all directions: `state` cannot resume one of them alone
        state.unlink(missing_ok=True)
    return results


def _read(manifest: Manifest, job: SearchJob, direction: str, path: str) -> SearchResult:
    """The result of a search that was complete before.

    Raises:
      AssayError: the file differs from its hash.
    """
    file, result = manifest.run / path, manifest.result(path)
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != result["parts"][file.name]["sha256"]:
        raise AssayError(f"{file}: differs from its hash in the manifest; remove it")
    return _result(job, direction, pl.read_parquet(io.BytesIO(data)), result["rejected"], new=False)


def _result(
    job: SearchJob, direction: str, steps: pl.DataFrame, rejected: int, *, new: bool
) -> SearchResult:
    last = steps.row(-1, named=True)
    return SearchResult(
        model=job.checkpoint.card.slug,
        prompt_id=job.prompt_id,
        direction=direction,
        reward=last["reward"],
        text=last["text"],
        rejected=rejected,
        new=new,
    )


def _joint_id(prompt_ids: Sequence[str]) -> str:
    name = ".".join(["mean", *prompt_ids])
    if len(name) <= _LONGEST_PROMPT_ID:
        return name
    return f"mean.of-{len(prompt_ids)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _self_check(
    objective: SearchObjective,
    scorer: RewardScorer,
    checkpoint: Checkpoint,
    steps: pl.DataFrame,
    path: str,
) -> dict[str, int | float]:
    """Scores the last sequence of a trace again by the plain pass in float32.

    Args:
      objective: of the search.
      scorer: the model in the dtype of the search.
      checkpoint: the model.
      steps: from `trace_frame`.
      path: of the result, for the message.

    Returns:
      The entry of the manifest: the difference between the two rewards, its tolerance, and the
      reward of the conversation that is tokenised from the sequence's text.

    Raises:
      AssayError: the difference exceeds the tolerance.
    """
    dtype = objective.settings.dtype
    if dtype != "float32":
        scorer = _scorer(checkpoint, scorer.mesh, "float32", objective.settings)
    last = steps.row(-1, named=True)
    ids = [[*p.prefix, *last["token_ids"], *p.suffix] for p in objective.prompts]
    texts = [objective.template.sequences(p.prompt, [last["text"]])[0] for p in objective.prompts]
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


def _scorer(
    checkpoint: Checkpoint, mesh: Mesh, dtype: str, settings: SearchSettings
) -> RewardScorer:
    restored = restore([checkpoint], mesh, dtype_named(dtype))
    return RewardScorer.build(*restored, mesh, step_size=settings.candidates)


def _vocabularies(manifest: Manifest, checkpoints: Sequence[Checkpoint]) -> dict[str, pl.DataFrame]:
    """Tokenizer hash -> vocabulary: read from the run, or computed."""
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
    """Path -> vocabulary, of those that the run does not have."""
    paths = {schema.vocab_path(name): frame for name, frame in frames.items()}
    return {path: f for path, f in paths.items() if not (manifest.run / path).exists()}
