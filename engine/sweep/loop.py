"""The host loop: computes and writes the missing parts of jobs; resumable.

A job is cut into fixed parts. A first run and a resumed one take the same way: every missing part
is computed and written.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import polars as pl
from jax.sharding import Mesh
from tqdm import tqdm

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.display import progress
from engine.errors import AssayError
from engine.runs import parts, provenance, schema
from engine.runs.manifest import Manifest
from engine.runs.parts import Span
from engine.runs.reader import Json
from engine.scoring.reward_passes import check_finite, self_check
from engine.scoring.rows import Rows
from engine.settings import Settings
from engine.sweep import setup
from engine.sweep.jobs import (
    Job,
    JobGroup,
    advise,
    grouped,
    is_checked,
    missing_spans,
    models_of,
    read_numbers,
    step_of,
)
from engine.sweep.outcomes import OnOutcomes, Outcomes, SomeFailed, memory_errors
from engine.types import PromptIds

# A first part of so many rows is told of alone, where the other rows take longer than so many s.
_MANY, _LONG_S = 1000, 10.0


class Scorer(Protocol):
    """Models on devices that share a pass, as the host loop sees them."""

    # What a prefix is, and which rows fit, differs by scorer: hence Any.
    def prefill(self, prompt: PromptIds) -> Any:
        """What all rows under a prompt share."""

    def score(
        self, prefix: Any, rows: Any, start: int, stop: int, advance: Callable[[int], object]
    ) -> Sequence[np.ndarray]:
        """Numbers of rows [start, stop) per model: float32 [columns, stop - start].

        Values of duplicate rows (`Rows.duplicates`) are ignored. `advance` is called after each
        step with its number of candidates.
        """

    def score_plainly(self, rows: Any, sample: Sequence[int]) -> Sequence[np.ndarray]:
        """The same for some rows, by a pass that shares nothing between them."""

    def coefficients(self, prefix: Any) -> Sequence[Json | None]:
        """Weights of each model's objectives in its reward, where the prompt fixes them."""


# Puts models that share a pass on the devices, for steps of a size.
Load = Callable[[Sequence[Checkpoint], int], Scorer]
# Called with each job that is completed, and its numbers float32 [columns, rows]; also with those
# of the first rows alone, see `run`.
OnNumbers = Callable[[Job, np.ndarray], object]


def run(
    manifest: Manifest,
    jobs: Sequence[Job],
    load: Load,
    settings: Settings,
    mesh: Mesh,
    *,
    on_numbers: OnNumbers = lambda job, numbers: None,
    on_outcomes: OnOutcomes = lambda outcomes: None,
    tables: Mapping[str, pl.DataFrame] = MappingProxyType({}),
) -> int:
    """Records jobs in the run's manifest and computes their missing parts.

    Jobs of one pass are adjacent, and so are passes of the same models. `load` is called once for
    models with a missing part, after the models before them were released; `on_numbers`, on process
    0, for each job that this call completes, and after the first part of the first pass if the rest
    of that pass takes long; `on_outcomes`, there too, with what became of each model.
    `tables` are written into the run first, by path.

    A model that fails does not stop the other models. With several processes this holds for
    failures of loading, of the prefix pass and of the numbers; any other failure ends all
    processes.

    Returns:
      The number of rows that were computed, over all jobs.

    Raises:
      AssayError: as `setup.enter`; a damaged part; a number that is not finite, with its rows; a
        self-check beyond tolerance; damaged weights; no memory.
      SomeFailed: any of these, for some models of several; the other models are complete.
    """
    jobs, refused = setup.enter(manifest, jobs, settings, mesh)
    advise(jobs, settings.part_size, mesh.shape["data"])
    if processes.writes():
        swept = (job.checkpoint for job in jobs if "token_id" in job.rows.part_columns)
        tables = {**setup.vocabularies(manifest, swept)[1], **tables}
    setup.begin(manifest, tables, jobs, settings.part_size)
    pending = [
        group
        for group in grouped(jobs)
        if any(job.missing or not is_checked(manifest, job) for job in group)
    ]
    outcomes, computed = Outcomes([job.model for job in jobs]), 0
    load = functools.partial(_load, load, mesh, refused)
    unit = pending[0][0].rows.unit if pending else "candidates"
    total = sum(stop - start for group in pending for start, stop in missing_spans(group))
    with progress(total, unit) as bar:
        for (models, step), same_models in itertools.groupby(
            pending, key=lambda group: (models_of(group), step_of(group))
        ):
            bar.set_description(f"loading {models[0]}")
            memory = memory_errors(models, mesh, "step_size", step)
            with outcomes.group(models), memory, _writing(manifest) as write:
                state = _Loop(manifest, settings, bar, write, outcomes, on_numbers)
                computed += state.compute(list(same_models), load, step)
    if not processes.writes():
        return computed
    if pending:
        manifest.save()
    for job in jobs:
        outcomes[job.model].done += manifest.result(job.path)["complete"]
    on_outcomes(outcomes.all())
    if any(outcome.failure for outcome in outcomes.all()):
        raise SomeFailed(outcomes.all())
    return computed


def _load(
    load: Load,
    mesh: Mesh,
    refused: Mapping[tuple[str, ...], str],
    checkpoints: Sequence[Checkpoint],
    step: int,
) -> Scorer:
    """Loads models that fit the mesh and the memory."""
    models = tuple(checkpoint.card.slug for checkpoint in checkpoints)
    for checkpoint in checkpoints:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    if reason := refused.get(models):
        raise AssayError(reason)
    with memory_errors(models, mesh, "step_size", step):
        return load(checkpoints, step)


@contextlib.contextmanager
def _writing(manifest: Manifest) -> Iterator[Callable[..., None]]:
    """Yields what runs a write (function, arguments) while the next part is computed.

    An error of a write surfaces at the next one, or at the end. The manifest of a run that fails is
    saved, also where Ctrl-C stops a command of one process. SIGTERM ends the process at once
    (`engine.processes.end`): parts that are written and not recorded are adopted when the command
    runs again (`engine.sweep.jobs.check_parts`).
    """
    last: list[concurrent.futures.Future[object]] = []

    def start(write: Callable[..., object], *arguments: Any) -> None:  # Any: of the write
        if last:
            last.pop().result()
        last.append(pool.submit(write, *arguments))

    with concurrent.futures.ThreadPoolExecutor(1, "assay-write") as pool:
        try:
            yield start
            if last:
                last.pop().result()
        except BaseException:  # Ctrl-C too: parts that are on disk are recorded
            pool.shutdown()
            if processes.writes():
                with contextlib.suppress(AssayError):  # the first error is the one to report
                    manifest.save()
            raise


@dataclasses.dataclass(frozen=True)
class _Loop:
    """The passes of models that share a decoder, and where their numbers and failures go."""

    manifest: Manifest
    settings: Settings
    bar: tqdm
    write: Callable[..., None]  # from `_writing`
    outcomes: Outcomes
    on_numbers: OnNumbers

    def compute(self, same_models: Sequence[JobGroup], load: Load, step: int) -> int:
        """Loads the models and computes their passes; they are released when it returns."""
        checkpoints = [job.checkpoint for job in same_models[0]]
        load_here = functools.partial(load, checkpoints, step)
        scorer = self.outcomes.everywhere(models_of(same_models[0]), "loading", load_here)
        return sum(self._compute_group(scorer, jobs) for jobs in same_models)

    def _compute_group(self, scorer: Scorer, jobs: JobGroup) -> int:
        """Computes, checks and closes the jobs of one pass; returns the number of new rows."""
        first, models = jobs[0], models_of(jobs)
        if self.outcomes.agree_all_failed(models):
            return 0
        more = f" +{len(jobs) - 1}" if len(jobs) > 1 else ""
        self.bar.set_description(f"{first.model}{more} · {first.prompt}")
        prefix, coefficients = None, [None] * len(jobs)  # of rows with prompts of their own
        if first.rows.prompt.prefix:
            prefill = functools.partial(scorer.prefill, first.rows.prompt)
            prefix = self.outcomes.everywhere(models, f"prompt {first.prompt!r}", prefill)
            coefficients = scorer.coefficients(prefix)
        # Process 0 alone reads and writes parts; the rest compute with it.
        known = [self._known(job) for job in jobs] if processes.writes() else []
        nothing_yet = self.bar.n == 0
        for span in missing_spans(jobs):
            began, before = time.perf_counter(), self.bar.n
            scored = scorer.score(prefix, first.rows, *span, self.bar.update)
            self.bar.update(span[1] - span[0] - (self.bar.n - before))  # duplicates took no step
            if processes.writes():
                each = list(zip(jobs, known, scored, coefficients, strict=True))
                seconds = time.perf_counter() - began
                self._check_and_queue(span, each, seconds / len(jobs))
                left = seconds * (len(first.rows) / span[1] - 1)
                if nothing_yet and span[0] == 0 and span[1] >= _MANY and left > _LONG_S:
                    self._tell_first(span, zip(jobs, known, strict=True))
            if self.outcomes.agree_all_failed(models):
                return 0
        sample = self._sample(first.rows)
        plain = scorer.score_plainly(first.rows, sample.tolist())
        if processes.writes():
            checks = list(zip(jobs, plain, coefficients, strict=True))
            self.write(self._close, checks, sample)
        going = [job for job in jobs if not self.outcomes[job.model].failure]
        return sum(stop - start for job in going for start, stop in job.missing)

    def _tell_first(self, span: Span, known: Iterable[tuple[Job, np.ndarray]]) -> None:
        """Passes on the numbers of the first part, of the jobs that had it to compute."""
        for job, numbers in known:
            if span in job.missing and not self.outcomes[job.model].failure:
                self.on_numbers(job, numbers[:, : span[1]])

    @contextlib.contextmanager
    def _alone(self, job: Job) -> Iterator[None]:
        """Records an error inside as the failure of this job's model; other models go on."""
        try:
            yield
        except AssayError as error:
            self.outcomes.fail([job.model], error, known=True)

    def _known(self, job: Job) -> np.ndarray:
        """Numbers that duplicates take from parts on disk: float32 [columns, rows]."""
        numbers = np.empty((len(job.columns), len(job.rows)), np.float32)
        if any(len(job.rows.duplicates(*span)[0]) for span in job.missing):
            for start, stop in parts.ranges(len(job.rows), self.settings.part_size):
                if (start, stop) not in job.missing:
                    numbers[:, start:stop] = read_numbers(self.manifest, job, [(start, stop)])
        return numbers

    def _check_and_queue(
        self,
        span: Span,
        each: Sequence[tuple[Job, np.ndarray, np.ndarray, Json | None]],
        seconds: float,
    ) -> None:
        """Checks the numbers of one span, and writes them beside the next step.

        `each`: jobs with all their numbers so far, those of the span, and coefficients.
        """
        models, new = sorted(job.model for job, *_ in each), []
        for job, numbers, values, weights in each:
            if span in job.missing and not self.outcomes[job.model].failure:
                with self._alone(job):
                    part = self._fill(job, span, numbers, values)
                    new.append((job, part, {"coefficients": weights, "together": models}))
        self.write(self._write, span, new, seconds)

    def _fill(self, job: Job, span: Span, numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Puts a part's values into `numbers`, and returns it with those of duplicates.

        Parts are computed in ascending order, so the first row of every duplicate is known, and a
        resumed run writes the same bytes as an uninterrupted one.
        """
        (start, stop), rows = span, job.rows
        part = numbers[:, start:stop]
        part[...] = values
        places, sources = rows.duplicates(start, stop)
        part[:, places] = numbers[:, sources]
        key = next(iter(rows.part_columns))
        check_finite(job.model, key, start, job.columns, part, rows.keys(start, stop)[key])
        return part

    def _write(
        self, span: Span, new: Iterable[tuple[Job, np.ndarray, Json]], seconds: float
    ) -> None:
        """Writes each job's part of one span: its numbers, and how they were computed."""
        name = schema.part_name(*span)
        for job, part, made_with in new:
            columns = {**job.rows.keys(*span), **dict(zip(job.columns, part, strict=True))}
            frame = pl.DataFrame(columns, job.part_columns)
            about = {
                **self.manifest.about(job.path),
                "rows": provenance.part_rows(*span, len(job.rows)),
                **made_with,
                "computed_by": self.manifest.computed_by,
            }
            digest = parts.write_part(self.manifest.run / job.path, *span, frame, about)
            self.manifest.record_part(job.path, name, len(frame), digest, seconds)
            self.outcomes[job.model].rows += len(frame)
        self.manifest.save_if_due()

    def _sample(self, rows: Rows) -> np.ndarray:
        """The rows that the self-check takes, ascending."""
        rng = np.random.default_rng([self.settings.seed, len(rows), *rows.prompt.prefix])
        size = min(self.settings.self_check, len(rows))
        return np.sort(rng.choice(len(rows), size, replace=False))

    def _close(
        self, checks: Iterable[tuple[Job, np.ndarray, Json | None]], sample: np.ndarray
    ) -> None:
        """Compares a sample of what is on disk with the plain pass, which completes the jobs.

        `checks`: jobs of one pass, with float32 [columns, sample] of the plain pass, coefficients.
        """
        completed = []
        for job, plain, weights in checks:
            if self.outcomes[job.model].failure:
                continue
            with self._alone(job):
                spans = parts.ranges(len(job.rows), self.settings.part_size)
                numbers = read_numbers(self.manifest, job, spans)
                where, dtype = f"self-check of {job.path}", self.settings.dtype
                mixture = job.checkpoint.card.decoder.experts > 0
                check = self_check(
                    where, job.columns, sample, numbers[:, sample], plain, dtype, mixture=mixture
                )
                if not self.manifest.result(job.path)["complete"]:
                    completed.append((job, numbers))
                self.manifest.finish(job.path, check, weights)
        self.manifest.save_if_due()
        for job, numbers in completed:
            self.on_numbers(job, numbers)
