"""The host loop: every missing part of every result, over prompts and models; resumable.

A result is a list of rows (the vocabulary, or a list of replies) under one prompt and model, cut
into fixed parts. First run and resume are one path: "for every missing part". What a row's number
is, and how devices compute it, is a `Pass`'s business.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
import polars as pl
from jax.experimental import multihost_utils
from tqdm import tqdm

from engine.checkpoint.card import REWARD, Checkpoint
from engine.errors import AssayError
from engine.progress import progress
from engine.runs import parts, schema
from engine.runs.environment import library_versions
from engine.runs.manifest import Json, Manifest
from engine.scoring.reward_passes import check_length, dtype_named
from engine.sweep.self_check import check_finite, self_check
from engine.text.chat_template import ChatTemplate
from engine.text.vocabulary import vocabulary, vocabulary_size
from engine.types import PromptIds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How results are computed. `dtype` and `part_size` are part of their fingerprint."""

    dtype: str
    step_size: int  # candidates a device step
    part_size: int  # rows a part
    self_check: int  # rows a result that the plain pass scores again
    seed: int  # of the self-check's sample

    def __post_init__(self):
        dtype_named(self.dtype)
        for name, least in (("step_size", 1), ("part_size", 1), ("self_check", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise AssayError(f"{name}={value!r}; allowed: integers >= {least}")


class Rows(Protocol):
    """What is scored under one prompt."""

    @property
    def prompt(self) -> PromptIds:
        """The conversation that they stand in."""

    @property
    def schema(self) -> schema.Columns:
        """Columns of a part; the last is the first number that the pass gives."""

    def __len__(self) -> int: ...

    def columns(self, start: int, stop: int) -> Mapping[str, Any]:
        """What a part says about its rows beside the number."""

    def longest(self) -> int:
        """Positions of the longest conversation."""


@runtime_checkable
class Repeating(Protocol):
    """Rows of which one may repeat an earlier one, and then has its number."""

    def repeats(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Which rows of a range, from 0, repeat a row of an earlier range, and that row."""


class Pass(Protocol):
    """Models on devices, as the host loop sees them."""

    def prefill(self, prompt: PromptIds) -> Any:
        """What all rows of a prompt share."""

    def score(
        self, prefix: Any, rows: Any, start: int, stop: int, advance: Callable[[int], object]
    ) -> Sequence[np.ndarray]:
        """Numbers of a range of rows; `advance` hears of each step.

        Those of rows that repeat an earlier range's (`Repeating`) may be anything.

        Float32 a model: [stop - start], or [columns, stop - start] where a part has objectives.
        """

    def plain(self, rows: Any, sample: Sequence[int]) -> Sequence[np.ndarray]:
        """Numbers of some rows, as `score` has them, by a pass that shares nothing."""

    def coefficients(self, prefix: Any) -> Sequence[Json | None]:
        """What each model's reward makes of its objectives, where the prompt fixes that."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One prompt under the models that share a pass, and the parts that some of them lack."""

    group: Sequence[Checkpoint]
    rows: Rows
    paths: Sequence[str]  # result of each model, relative to the run
    numbers: Sequence[Sequence[str]]  # columns of each model's parts that the pass gives
    missing: Sequence[tuple[int, int]]

    @property
    def label(self) -> str:
        """What the progress line says."""
        others = f" +{len(self.group) - 1}" if len(self.group) > 1 else ""
        return f"{self.group[0].card.slug}{others} · {self.paths[0].rsplit('=')[-1]}"


def open_run(
    run: str,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    kind: str = REWARD,
) -> Manifest:
    """Admits models of a kind, and prompts; nothing is written before all of them are welcome."""
    manifest = Manifest.open(run)
    schema.check_names(prompts)
    slugs = [c.card.slug for c in checkpoints]
    schema.check_names(slugs)
    if repeated := {slug for slug in slugs if slugs.count(slug) > 1}:
        raise AssayError(f"model {min(repeated)!r} was given twice; slugs must differ")
    if not checkpoints or not prompts:
        raise AssayError("nothing to score; give at least one checkpoint and one prompt")
    for checkpoint in checkpoints:
        checkpoint.expect(kind)
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


def plan(
    manifest: Manifest,
    groups: Sequence[Sequence[Checkpoint]],
    prompts: Mapping[str, str],
    rows: Callable[[Checkpoint, str], Rows],
    path: Callable[[str, str], str],
    about: Mapping[str, Any],
    settings: Settings,
    objectives: Callable[[Checkpoint], Sequence[str]] = lambda checkpoint: (),
) -> list[Job]:
    """What is to be done, a job a group and prompt; admits every result.

    Args:
      manifest: from `open_run`.
      groups: models that share a pass, the deepest first.
      prompts: prompt id -> text.
      rows: checkpoint and text -> what is scored.
      path: slug and prompt id -> the result's folder.
      about: what else must agree for parts to belong to one result.
      settings: of the run.
      objectives: columns that a model's parts have behind those of the rows.
    """
    jobs = []
    for group in groups:
        deepest = group[0]
        for prompt_id, text in prompts.items():
            source = rows(deepest, text)
            paths = [path(c.card.slug, prompt_id) for c in group]
            numbers = [(list(source.schema)[-1], *objectives(c)) for c in group]
            for checkpoint, result, (_, *names) in zip(group, paths, numbers, strict=True):
                schema.objective_columns(names)
                extra = {**about, "objectives": names} if names else about
                manifest.admit_result(result, _fingerprint(checkpoint, source, extra, settings))
            missing = {
                span
                for result in paths
                for span in parts.missing(manifest.run / result, len(source), settings.part_size)
            }
            if missing:  # what is not scored need not be tokenised
                check_length(source.longest(), deepest.card.decoder.max_positions)
            jobs.append(Job(group=group, rows=source, paths=paths, numbers=numbers,
                            missing=sorted(missing)))  # fmt: skip
    return jobs


def _fingerprint(
    checkpoint: Checkpoint, rows: Rows, about: Mapping[str, Any], settings: Settings
) -> Json:
    """What must agree for parts to belong to one result. Devices and step size must not matter."""
    return {
        "checkpoint_hash": checkpoint.card.checkpoint_hash,
        **about,
        "dtype": settings.dtype,
        "rows": len(rows),
        "part_size": settings.part_size,
        "prefix_ids": list(rows.prompt.prefix),
        "suffix_ids": list(rows.prompt.suffix),
    }


def begin(manifest: Manifest, vocabularies: Mapping[str, pl.DataFrame]) -> None:
    """Writes what parts refer to; the manifest first, since a run is known by it."""
    if jax.process_count() > 1:  # every host plans before any host writes
        multihost_utils.sync_global_devices("assay-planned")
    if jax.process_index() != 0:
        return
    for folder in (manifest.run, manifest.run / schema.VOCAB_DIR):
        parts.sweep_temporaries(folder)
    manifest.save()
    for path, frame in vocabularies.items():
        parts.write_frame(manifest.run / path, frame)


def missing_vocabularies(
    manifest: Manifest, checkpoints: Sequence[Checkpoint]
) -> dict[str, pl.DataFrame]:
    """Vocabulary tables that the run lacks, by path."""
    by_path = {schema.vocab_path(c.card.tokenizer_hash): c for c in checkpoints}
    return {
        path: vocabulary_of(c) for path, c in by_path.items() if not (manifest.run / path).exists()
    }


def vocabulary_of(checkpoint: Checkpoint) -> pl.DataFrame:
    """Every id of the checkpoint's tokenizer: `schema.VOCAB_COLUMNS`."""
    rows = checkpoint.card.decoder.vocab_size
    return vocabulary(checkpoint.tokenizer, rows, _conversations(checkpoint))


def _conversations(checkpoint: Checkpoint) -> ChatTemplate | None:
    """The template in which tokens can stand as replies; a language model may have none."""
    try:
        checkpoint.template.split("What?")
    except AssayError:
        return None
    return checkpoint.template


def tokens_of(checkpoint: Checkpoint) -> int:
    """How many ids the checkpoint's tokenizer has."""
    return vocabulary_size(checkpoint.tokenizer, checkpoint.card.decoder.vocab_size)


def run_jobs(
    manifest: Manifest,
    jobs: Sequence[Job],
    settings: Settings,
    load: Callable[[Sequence[Checkpoint]], Pass],
    finished: Callable[[Checkpoint, str, np.ndarray], None] = lambda *result: None,
) -> int:
    """Does what is missing; returns how many numbers were computed.

    `finished` is called on the writing host as soon as a result is complete: with its model, its
    folder and its numbers, float32 [columns, rows].

    `load` puts a group's models on the devices; it is called once for each that lacks something.

    Raises:
      AssayError: a number that is not finite (its rows named), a self-check beyond tolerance.
    """
    total = sum(stop - start for job in jobs for start, stop in job.missing)
    pending = [job for job in jobs if job.missing or _unfinished(manifest, job)]
    numbers = 0
    with progress(total) as bar:
        for _, sharing in itertools.groupby(pending, key=lambda job: id(job.group)):
            for index, job in enumerate(sharing):
                if index == 0:
                    bar.set_description(f"loading {job.group[0].card.slug}")
                    models = load(job.group)
                bar.set_description(job.label)
                prefix = models.prefill(job.rows.prompt)
                numbers += _score_job(manifest, job, models, prefix, settings, bar)
                _finish_job(manifest, job, models, prefix, settings, finished)
    return numbers


def _unfinished(manifest: Manifest, job: Job) -> bool:
    return any(not manifest.result(path)["complete"] for path in job.paths)


def _writes() -> bool:
    return jax.process_index() == 0


def _score_job(
    manifest: Manifest, job: Job, models: Pass, prefix: Any, settings: Settings, bar: tqdm
) -> int:
    """Writes the missing parts; returns how many rows they hold."""
    new, key = 0, next(iter(job.rows.schema))
    results = [
        _Written(manifest, path, job.rows, names, settings.part_size)
        for path, names in zip(job.paths, job.numbers, strict=True)
    ]
    for start, stop in job.missing:
        began, before = time.perf_counter(), bar.n
        scored = models.score(prefix, job.rows, start, stop, bar.update)
        bar.update(stop - start - (bar.n - before))  # duplicates were scored once
        for checkpoint, written, values in zip(job.group, results, scored, strict=True):
            if (start, stop) not in written.missing:
                continue
            values = written.completed(start, stop, np.atleast_2d(values))
            check_finite(checkpoint.card.slug, key, start, written.names, values)
            new += stop - start
            if _writes():
                result, folder = written.result, manifest.run / written.result
                frame = _part(job.rows, start, written.names, values)
                digest = parts.write_part(folder, start, stop, frame)
                seconds = (time.perf_counter() - began) / len(job.group)
                manifest.record_part(
                    result, schema.part_name(start, stop), stop - start, digest, seconds
                )
        if _writes():
            manifest.save()
    return new


class _Written:
    """The numbers of one result, as they were on disk and as they come: [columns, rows]."""

    def __init__(
        self, manifest: Manifest, result: str, rows: Rows, names: Sequence[str], part_size: int
    ):
        self.result, self.names = result, names
        self.missing = set(parts.missing(manifest.run / result, len(rows), part_size))
        self.rows = rows if isinstance(rows, Repeating) else None
        self.numbers = np.full((len(names), len(rows)), np.nan, np.float32)
        if self.rows is not None and self.missing:
            for start, stop in set(parts.ranges(len(rows), part_size)) - self.missing:
                part = _read_part(manifest, result, rows, names, start, stop)
                self.numbers[:, start:stop] = part

    def completed(self, start: int, stop: int, values: np.ndarray) -> np.ndarray:
        """Fills in the rows of a missing part that repeat rows of earlier parts.

        Parts come in ascending order, so those are here: what is identical has identical numbers,
        whether one process computed all parts or several did.
        """
        if self.rows is not None:
            repeated, sources = self.rows.repeats(start, stop)
            values[:, repeated] = self.numbers[:, sources]
        self.numbers[:, start:stop] = values
        return values


def _part(rows: Rows, start: int, names: Sequence[str], values: np.ndarray) -> pl.DataFrame:
    keys = rows.columns(start, start + values.shape[1])
    return pl.DataFrame({**keys, **dict(zip(names, values, strict=True))}, _schema(rows, names))


def _schema(rows: Rows, names: Sequence[str]) -> schema.Columns:
    return rows.schema | schema.objective_columns(names[1:])


def _finish_job(
    manifest: Manifest,
    job: Job,
    models: Pass,
    prefix: Any,
    settings: Settings,
    finished: Callable[[Checkpoint, str, np.ndarray], None],
) -> None:
    """Holds a random sample of what was written against the plain pass, then closes the result."""
    rows = job.rows
    rng = np.random.default_rng([settings.seed, len(rows), *rows.prompt.prefix])
    size = min(settings.self_check, len(rows))
    sample = np.sort(rng.choice(len(rows), size, replace=False))
    plain, coefficients = models.plain(rows, sample.tolist()), models.coefficients(prefix)
    if not _writes():
        return
    results = zip(job.group, job.paths, job.numbers, plain, coefficients, strict=True)
    for checkpoint, result, names, expected, gate in results:
        numbers = _read_result(manifest, result, rows, names, settings.part_size)
        written = numbers[:, sample]
        where = f"self-check of {result}"
        check = self_check(where, names, sample, written, np.atleast_2d(expected), settings.dtype)
        manifest.finish(result, check, gate)
        finished(checkpoint, result, numbers)
    manifest.save()


def _read_result(
    manifest: Manifest, result: str, rows: Rows, names: Sequence[str], part_size: int
) -> np.ndarray:
    """Numbers of a result from disk, [columns, rows]."""
    parts.sweep_temporaries(manifest.run / result)
    spans = parts.ranges(len(rows), part_size)
    read = [_read_part(manifest, result, rows, names, *span) for span in spans]
    return np.concatenate(read, axis=1)


def _read_part(
    manifest: Manifest, result: str, rows: Rows, names: Sequence[str], start: int, stop: int
) -> np.ndarray:
    """Numbers of a part on disk, [columns, stop - start]; it is held against its hash."""
    path = manifest.run / result / schema.part_name(start, stop)
    frame, digest = parts.read_part(manifest.run / result, start, stop)
    recorded = manifest.result(result)["parts"].get(path.name)
    if recorded is None:  # the process died between writing the part and noting it
        columns = rows.columns(start, stop)
        keys = pl.DataFrame(columns, schema={name: rows.schema[name] for name in columns})
        if dict(frame.schema) != _schema(rows, names) or not frame.drop(names).equals(keys):
            raise AssayError(f"{path}: not a part of this result; remove it")
        manifest.record_part(result, path.name, len(frame), digest, 0.0)
    elif recorded["sha256"] != digest:
        raise AssayError(f"{path}: differs from its hash in the manifest; remove it")
    return frame.select(names).to_numpy().T


def _devices() -> dict[str, str | int]:
    return {
        "device_kind": jax.devices()[0].device_kind,
        "device_count": jax.device_count(),
        "process_count": jax.process_count(),
    }
