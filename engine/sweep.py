"""The host loop: every missing part of every result, over prompts and reward models; resumable.

A result is a list of rows (the vocabulary, or a list of replies) under one prompt and model, cut
into fixed parts. First run and resume are one path: "for every missing part".
"""

import dataclasses
import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import polars as pl
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from tqdm import tqdm

from engine import mesh as meshes
from engine.candidates import MODES, Bucket, ReplyRows, Rows, TokenRows, vocabulary, vocabulary_size
from engine.checkpoint.store import Checkpoint, restore, sharing_groups
from engine.errors import AssayError
from engine.runs import parts, schema
from engine.runs.environment import library_versions
from engine.runs.manifest import Manifest, items_hash
from engine.scoring import Scorer, check_length, check_step, dtype_named
from engine.types import Prefix, PromptIds

# Largest allowed difference between the response pass and the plain pass, relative to
# max(1, |reward|): what two orders of summation differ by in that dtype, with a margin.
SELF_CHECK_TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """How results are computed. `mode`, `dtype` and `part_size` are part of their fingerprint."""

    mode: str
    dtype: str
    step_size: int  # candidates a device step
    part_size: int  # rows a part
    self_check: int  # rows a result that the plain pass scores again
    seed: int  # of the self-check's sample

    def __post_init__(self):
        dtype_named(self.dtype)
        if self.mode not in MODES:
            raise AssayError(f"mode={self.mode!r}; allowed: {', '.join(map(repr, MODES))}")
        for name, least in (("step_size", 1), ("part_size", 1), ("self_check", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise AssayError(f"{name}={value!r}; allowed: integers >= {least}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One prompt under the models that share a pass, and the parts that some of them lack."""

    group: Sequence[Checkpoint]
    prompt: PromptIds
    rows: Rows
    paths: Sequence[str]  # result of each model, relative to the run
    missing: Sequence[tuple[int, int]]

    @property
    def label(self) -> str:
        """What the progress line says."""
        others = f" +{len(self.group) - 1}" if len(self.group) > 1 else ""
        return f"{self.group[0].card.slug}{others} · {self.paths[0].rsplit('=')[-1]}"


def sweep_vocabulary(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
) -> int:
    """Scores every token under every prompt and model into `run/scores`.

    Args:
      checkpoints: models; those on one decoder share a pass.
      prompts: prompt id -> text.
      run: run folder, new or to be continued.
      settings: mode must be `ids`.
      mesh: from `engine.mesh.build_mesh`.

    Returns:
      How many rewards were computed; 0 where the run was complete.

    Raises:
      AssayError: bad input, a result begun under another fingerprint, a reward that is not finite
        (its token ids named), a self-check beyond tolerance.
    """
    if settings.mode != "ids":
        raise AssayError(f"mode={settings.mode!r}; allowed for a vocabulary sweep: 'ids'")

    def rows(checkpoint: Checkpoint, prompt: PromptIds) -> Rows:
        size = vocabulary_size(checkpoint.template, checkpoint.card.decoder.vocab_size)
        return TokenRows(prompt, size)

    manifest = _open(run, checkpoints, prompts)
    jobs = _plan(manifest, checkpoints, prompts, rows, schema.scores_path, settings)
    _check_mesh(jobs, settings, mesh)
    _begin(manifest, _missing_vocabularies(manifest, checkpoints))
    return _run(manifest, jobs, settings, mesh)


def sweep_replies(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    name: str,
    replies: Sequence[str],
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
) -> int:
    """Scores the list `replies` of any lengths into `run/items/<name>`; see `sweep_vocabulary`."""
    if not replies:
        raise AssayError(f"item list {name!r}: empty; allowed: at least one reply")

    def rows(checkpoint: Checkpoint, prompt: PromptIds) -> Rows:
        return ReplyRows(prompt, checkpoint.template, replies, settings.mode)

    def path(model: str, prompt: str) -> str:
        return schema.items_path(name, model, prompt)

    schema.check_names([name])
    manifest = _open(run, checkpoints, prompts)
    manifest.admit("lists", name, {"rows": len(replies), "items_hash": items_hash(replies)})
    jobs = _plan(manifest, checkpoints, prompts, rows, path, settings)
    _check_mesh(jobs, settings, mesh)
    _begin(manifest, {})
    return _run(manifest, jobs, settings, mesh)


def score_buckets(
    scorer: Scorer,
    prefix: Prefix,
    buckets: Sequence[Bucket],
    rows: int,
    advance: Callable[[int], object] = lambda candidates: None,
) -> np.ndarray:
    """Rewards of the rows that the buckets stand for: float32 [M, rows].

    `advance` is told how many candidates each step finished.
    """
    rewards = np.empty((len(scorer.params["readouts"]), rows), np.float32)
    for bucket in buckets:
        steps = []
        for step in scorer.rewards(prefix, bucket.candidates):
            steps.append(step)
            advance(step.shape[1])
        scored = np.concatenate(steps, axis=1)
        rewards[:, bucket.rows] = scored[:, bucket.row_candidate]
    return rewards


def _open(run: str, checkpoints: Sequence[Checkpoint], prompts: Mapping[str, str]) -> Manifest:
    """Admits models and prompts; nothing is written before all of them are welcome."""
    manifest = Manifest.open(run)
    schema.check_names(prompts)
    slugs = [c.card.slug for c in checkpoints]
    schema.check_names(slugs)
    if repeated := {slug for slug in slugs if slugs.count(slug) > 1}:
        raise AssayError(f"model {min(repeated)!r} was given twice; slugs must differ")
    if not checkpoints or not prompts:
        raise AssayError("nothing to score; give at least one checkpoint and one prompt")
    for checkpoint in checkpoints:
        card = checkpoint.card
        present = manifest.content["models"].get(card.slug, {})
        if present.get("checkpoint_hash") == card.checkpoint_hash:
            continue  # the same model, wherever it was converted from
        manifest.admit(
            "models",
            card.slug,
            {
                "source": card.source,
                "revision": card.revision,
                "checkpoint_hash": card.checkpoint_hash,
                "decoder_hash": card.decoder_hash,
                "vocab": card.tokenizer_hash,
                "template": dataclasses.asdict(card.policy),
            },
        )
    for prompt, text in prompts.items():
        manifest.admit("prompts", prompt, text)
    manifest.content["environment"] = {**library_versions(), **_devices()}
    return manifest


def _plan(
    manifest: Manifest,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    rows: Callable[[Checkpoint, PromptIds], Rows],
    path: Callable[[str, str], str],
    settings: SweepSettings,
) -> list[Job]:
    jobs = []
    for group in sharing_groups(checkpoints):
        deepest = group[0]
        for prompt_id, text in prompts.items():
            prompt = deepest.template.split(text)
            source = rows(deepest, prompt)
            check_length(source.longest(), deepest.card.decoder.max_positions)
            paths = [path(c.card.slug, prompt_id) for c in group]
            for checkpoint, result in zip(group, paths, strict=True):
                manifest.admit_result(result, _fingerprint(checkpoint, prompt, source, settings))
            missing = {
                span
                for result in paths
                for span in parts.missing(manifest.run / result, len(source), settings.part_size)
            }
            jobs.append(Job(group=group, prompt=prompt, rows=source, paths=paths,
                            missing=sorted(missing)))  # fmt: skip
    return jobs


def _check_mesh(jobs: Sequence[Job], settings: SweepSettings, mesh: Mesh) -> None:
    check_step(settings.step_size, mesh)
    for job in jobs:
        meshes.check_mesh(mesh, job.group[0].card.decoder)


def _fingerprint(
    checkpoint: Checkpoint, prompt: PromptIds, rows: Rows, settings: SweepSettings
) -> dict[str, Any]:
    """What must agree for parts to belong to one result. Devices and step size must not matter."""
    return {
        "checkpoint_hash": checkpoint.card.checkpoint_hash,
        "mode": settings.mode,
        "dtype": settings.dtype,
        "rows": len(rows),
        "part_size": settings.part_size,
        "prefix_ids": list(prompt.prefix),
        "suffix_ids": list(prompt.suffix),
    }


def _begin(manifest: Manifest, vocabularies: Mapping[str, pl.DataFrame]) -> None:
    """Writes what parts refer to; the manifest first, since a run is known by it."""
    if jax.process_count() > 1:  # every host plans before any host writes
        multihost_utils.sync_global_devices("assay-sweep-planned")
    if jax.process_index() != 0:
        return
    for folder in (manifest.run, manifest.run / schema.VOCAB_DIR):
        parts.sweep_temporaries(folder)
    manifest.save()
    for path, frame in vocabularies.items():
        parts.write_frame(manifest.run / path, frame)


def _run(manifest: Manifest, jobs: Sequence[Job], settings: SweepSettings, mesh: Mesh) -> int:
    writes = jax.process_index() == 0
    total = sum(stop - start for job in jobs for start, stop in job.missing)
    pending = [job for job in jobs if job.missing or _unfinished(manifest, job)]
    rewards = 0
    with _progress(total) as bar:
        for _, sharing in itertools.groupby(pending, key=lambda job: id(job.group)):
            for index, job in enumerate(sharing):
                if index == 0:
                    bar.set_description(f"loading {job.group[0].card.slug}")
                    restored = restore(job.group, mesh, dtype_named(settings.dtype))
                    scorer = Scorer.build(*restored, mesh, step_size=settings.step_size)
                bar.set_description(job.label)
                rewards += _score_job(manifest, job, scorer, bar, writes)
                _finish_job(manifest, job, scorer, settings, writes)
    return rewards


def _unfinished(manifest: Manifest, job: Job) -> bool:
    return any(not manifest.result(path)["complete"] for path in job.paths)


def _score_job(manifest: Manifest, job: Job, scorer: Scorer, bar: tqdm, writes: bool) -> int:
    """Writes the missing parts; returns how many rewards they hold."""
    if not job.missing:
        return 0
    prefix, new = scorer.prefill(job.prompt), 0
    for start, stop in job.missing:
        began, before = time.perf_counter(), bar.n
        buckets = job.rows.buckets(start, stop)
        rewards = score_buckets(scorer, prefix, buckets, stop - start, bar.update)
        bar.update(stop - start - (bar.n - before))  # duplicates were scored once
        for checkpoint, result, values in zip(job.group, job.paths, rewards, strict=True):
            folder = manifest.run / result
            if (folder / schema.part_name(start, stop)).exists():
                continue
            check_rewards(checkpoint.card.slug, job.rows, start, values)
            new += len(values)
            if writes:
                columns = {**job.rows.columns(start, stop), "reward": values}
                frame = pl.DataFrame(columns, schema=job.rows.schema)
                digest = parts.write_part(folder, start, stop, frame)
                seconds = (time.perf_counter() - began) / len(job.group)
                manifest.record_part(
                    result, schema.part_name(start, stop), stop - start, digest, seconds
                )
        if writes:
            manifest.save()
    return new


def _finish_job(
    manifest: Manifest, job: Job, scorer: Scorer, settings: SweepSettings, writes: bool
) -> None:
    """Holds a random sample of what was written against the plain pass, then closes the result."""
    rng = np.random.default_rng([settings.seed, len(job.rows), *job.prompt.prefix])
    size = min(settings.self_check, len(job.rows))
    sample = np.sort(rng.choice(len(job.rows), size, replace=False))
    plain = scorer.plain_rewards(job.rows.sequences(sample.tolist()))
    if not writes:
        return
    for result, expected in zip(job.paths, plain, strict=True):
        written = _read_result(manifest, result, job.rows, settings.part_size)
        difference = np.abs(written[sample] - expected)
        tolerance = SELF_CHECK_TOLERANCE[settings.dtype]
        worst = int(np.argmax(difference / np.maximum(1, np.abs(expected))))
        allowed = tolerance * max(1.0, abs(float(expected[worst])))
        if not difference[worst] <= allowed:
            raise AssayError(
                f"self-check of {result}: row {sample[worst]} has reward "
                f"{written[sample[worst]]:.6g}, the plain pass gives {expected[worst]:.6g}; "
                f"allowed difference {allowed:.2g}"
            )
        check = {"candidates": size, "max_abs_difference": float(difference.max()),
                 "tolerance": tolerance}  # fmt: skip
        manifest.finish(result, check)
    manifest.save()


def _read_result(manifest: Manifest, result: str, rows: Rows, part_size: int) -> np.ndarray:
    """Every reward of a result from disk; each part is held against the manifest's hash."""
    rewards, folder = [], manifest.run / result
    parts.sweep_temporaries(folder)
    for start, stop in parts.ranges(len(rows), part_size):
        frame, digest = parts.read_part(folder, start, stop)
        name = schema.part_name(start, stop)
        recorded = manifest.result(result)["parts"].get(name)
        if recorded is None:  # the process died between writing the part and noting it
            columns = rows.columns(start, stop)
            keys = pl.DataFrame(columns, schema={name: rows.schema[name] for name in columns})
            if dict(frame.schema) != rows.schema or not frame.drop("reward").equals(keys):
                raise AssayError(f"{folder / name}: not a part of this result; remove it")
            manifest.record_part(result, name, len(frame), digest, 0.0)
        elif recorded["sha256"] != digest:
            raise AssayError(f"{folder / name}: differs from its hash in the manifest; remove it")
        rewards.append(frame["reward"].to_numpy())
    return np.concatenate(rewards)


def check_rewards(model: str, rows: Rows, start: int, rewards: np.ndarray) -> None:
    """Raises AssayError naming the rows, counted from `start`, whose reward is not finite."""
    bad = np.flatnonzero(~np.isfinite(rewards))
    if len(bad):
        ids = ", ".join(str(start + i) for i in bad[:5]) + (", …" if len(bad) > 5 else "")
        raise AssayError(
            f"model {model!r}: the reward is not finite for {next(iter(rows.schema))} {ids} "
            f"({len(bad)} of {len(rewards)} rows from {start}); none of these rows was written"
        )


def _missing_vocabularies(
    manifest: Manifest, checkpoints: Sequence[Checkpoint]
) -> dict[str, pl.DataFrame]:
    """Vocabulary tables that the run lacks, by path."""
    by_path = {schema.vocab_path(c.card.tokenizer_hash): c for c in checkpoints}
    return {
        path: vocabulary(checkpoint.template, checkpoint.card.decoder.vocab_size)
        for path, checkpoint in by_path.items()
        if not (manifest.run / path).exists()
    }


def _progress(total: int) -> tqdm:
    quiet = jax.process_index() != 0 or total == 0
    interval = 0.5 if sys.stderr.isatty() else 15.0
    return tqdm(total=total, unit=" candidates", unit_scale=True, mininterval=interval,
                disable=quiet, smoothing=0.1, dynamic_ncols=True)  # fmt: skip


def _devices() -> dict[str, str | int]:
    return {
        "device_kind": jax.devices()[0].device_kind,
        "device_count": jax.device_count(),
        "process_count": jax.process_count(),
    }
