"""The host loop: computes and writes the missing parts of jobs; resumable.

A job is cut into fixed parts. A first run and a resumed one take the same way: every missing part
is computed and written.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import jax
import numpy as np
import polars as pl
from jax.sharding import Mesh
from tqdm import tqdm

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.display import progress
from engine.errors import AssayError
from engine.planning import LEAST_STEP
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.runs.identity import Json
from engine.runs.result import Result, Span
from engine.scoring.reward_passes import check_finite, self_check
from engine.scoring.rows import Rows
from engine.settings import Settings
from engine.sweep import setup
from engine.sweep.jobs import JobGroup, RowsJob, grouped, missing_of_any, models_of
from engine.sweep.outcomes import (
    OnOutcomes,
    Outcomes,
    OutOfMemory,
    SomeFailed,
    free_models,
    memory_errors,
)
from engine.types import PromptIds

# A first part of `_MANY` rows is reported early where the other rows take longer than `_LONG_S` s.
_MANY, _LONG_S = 1000, 10.0


class Scorer(Protocol):
    """Models on devices that share a pass, as the host loop sees them."""

    def with_step(self, step_size: int) -> "Scorer":
        """The same models on the same devices, with steps of at most this size."""

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


# Puts models that share a pass on the devices, for a given step size.
Load = Callable[[Sequence[Checkpoint], int], Scorer]
# Called with each job that is completed, and its numbers float32 [columns, rows]; also with those
# of the first rows alone, see `run`.
OnNumbers = Callable[[RowsJob, np.ndarray], object]


def run(
    folder: RunFolder,
    jobs: Sequence[RowsJob],
    load: Load,
    settings: Settings,
    mesh: Mesh,
    *,
    on_numbers: OnNumbers = lambda job, numbers: None,
    on_outcomes: OnOutcomes = lambda outcomes: None,
    tables: Mapping[str, pl.DataFrame] = MappingProxyType({}),
) -> int:
    """Enters jobs in the run and computes their missing parts.

    Jobs of one pass are adjacent, and so are passes of the same models. `load` is called once for
    models with a missing part, after the models before them were released; `on_numbers`, on process
    0, for each job that this call completes, and after the first part of the first pass if the rest
    of that pass takes long; `on_outcomes`, there too, with what became of each model.
    `tables` are written into the run first, by path, unless it has them.

    A model that fails does not stop the other models; with several processes it ends them all.

    Returns:
      The number of rows that were computed, over all jobs.

    Raises:
      AssayError: as `setup.find_missing`; a damaged part; a number that is not finite, with its
        rows; a self-check beyond tolerance; damaged weights; no memory.
      SomeFailed: any of these, for some models of several; the other models are complete.
    """
    jobs, refused = setup.find_missing(folder, jobs, settings, mesh)
    swept = [job for job in jobs if "token_id" in job.rows.part_columns]
    if processes.writes():
        ids = {job.checkpoint.card.tokenizer_hash: job.rows.columns["token_id"] for job in swept}
        vocabularies = setup.vocabularies(folder, [job.checkpoint for job in swept], ids)
        folder.save({**vocabularies, **tables})
    pending = [g for g in grouped(jobs) if any(job.missing or not job.checked for job in g)]
    outcomes, computed = Outcomes([job.model for job in jobs]), 0
    load = functools.partial(_load, load, mesh, refused)
    unit = pending[0][0].rows.unit if pending else "candidates"
    total = sum(stop - start for group in pending for start, stop in missing_of_any(group))
    with progress(total, unit) as bar:
        for (models, step), same_models in itertools.groupby(
            pending, key=lambda group: (models_of(group), group[0].step_size)
        ):
            bar.set_description(f"loading {models[0]}")
            with outcomes.group(models), _writing() as write:
                state = _Loop(folder, settings, mesh, bar, write, outcomes, on_numbers, step)
                with state.memory_errors(models):
                    computed += state.compute(list(same_models), load)
    if not processes.writes():
        return computed
    for job in jobs:
        result = folder.results[job.path]
        outcomes[job.model].done += result.complete
        if line := result.mixed_line:
            tqdm.write(f"note: {line}", file=sys.stderr)
        if not swept and not outcomes[job.model].first_row:
            text = job.rows.first_row(job.checkpoint.tokenizer)
            outcomes[job.model].first_row = text
            if job.path.startswith(schema.CONVERSATIONS_DIR):  # for the page
                storage.write_atomic(folder.run / schema.rendered_path(job.path), text.encode())
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
    if reason := refused.get(models):
        raise AssayError(reason)
    with memory_errors(models, mesh, "step_size", step):
        return load(checkpoints, step)


@contextlib.contextmanager
def _writing() -> Iterator[Callable[..., None]]:
    """Yields a function that runs a write while the next part is computed.

    An error of a write surfaces at the next one, or at the end. A process that ends at once, as at
    SIGTERM, loses the parts that `result.json` does not name yet.
    """
    last: list[concurrent.futures.Future[object]] = []

    def start(write: Callable[..., object], *arguments: Any) -> None:  # Any: of the write
        if last:
            last.pop().result()
        last.append(pool.submit(write, *arguments))

    with concurrent.futures.ThreadPoolExecutor(1, "assay-write") as pool:
        yield start
        if last:
            last.pop().result()


@dataclasses.dataclass
class _Open:
    """A job of the pass under way."""

    job: RowsJob
    coefficients: Json | None  # of its objectives
    numbers: np.ndarray = dataclasses.field(init=False)  # float32 [columns, rows], on process 0


@dataclasses.dataclass
class _Loop:
    """The passes of models that share a decoder, and where their numbers and failures go."""

    folder: RunFolder
    settings: Settings
    mesh: Mesh
    bar: tqdm
    write: Callable[..., None]  # from `_writing`
    outcomes: Outcomes
    on_numbers: OnNumbers
    step: int  # candidates per step on each device
    fits: bool = False  # whether a part was computed with this step

    @contextlib.contextmanager
    def memory_errors(self, models: Sequence[str]) -> Iterator[None]:
        """Makes an OutOfMemory of errors of memory inside, with the step that was then taken."""
        try:
            yield
        except (jax.errors.JaxRuntimeError, MemoryError):
            with memory_errors(models, self.mesh, "step_size", self.step):
                raise

    def compute(self, same_models: Sequence[JobGroup], load: Load) -> int:
        """Loads the models and computes their passes; they are released when it returns."""
        checkpoints = [job.checkpoint for job in same_models[0]]
        scorer = load(checkpoints, self.step)
        return sum(self._compute_group(scorer, jobs) for jobs in same_models)

    # Any: as in `Scorer`.
    def _score(
        self, scorer: Scorer, models: Sequence[str], prefix: Any, rows: Any, span: Span
    ) -> Sequence[np.ndarray]:
        """Scores a part; before the first, `step_size=auto` is halved until memory suffices.

        Of several processes, one that is out of memory ends all: the others wait for its numbers.
        Raises OutOfMemory where no smaller step is allowed.
        """
        before = self.bar.n
        while True:
            try:
                with self.memory_errors(models):
                    here = scorer.with_step(self.step)
                    scored = here.score(prefix, rows, *span, self.bar.update)
            except OutOfMemory:
                chosen = self.settings.step_size is None and processes.count() == 1
                if self.fits or not chosen or self.step <= LEAST_STEP:
                    raise
            else:
                self.fits = True
                return scored
            self.step //= 2
            free_models()
            self.bar.update(before - self.bar.n)
            line = f"note: {', '.join(models)}: out of memory; step_size={self.step} now"
            tqdm.write(line, file=sys.stderr)

    def _compute_group(self, scorer: Scorer, jobs: JobGroup) -> int:
        """Computes, checks and closes the jobs of one pass; returns the number of new rows."""
        first, models = jobs[0], models_of(jobs)
        if self.outcomes.all_failed(models):
            return 0
        more = f" +{len(jobs) - 1}" if len(jobs) > 1 else ""
        self.bar.set_description(f"{first.model}{more} · {first.prompt}")
        prefix, coefficients = None, [None] * len(jobs)  # of rows with prompts of their own
        if first.rows.prompt.prefix:
            prefix = scorer.prefill(first.rows.prompt)
            coefficients = scorer.coefficients(prefix)
        opened = list(map(_Open, jobs, coefficients))
        if processes.writes():  # process 0 alone reads and writes parts; the rest compute with it
            for open_job in opened:
                open_job.numbers = self._known(open_job.job)
        nothing_yet = self.bar.n == 0
        for span in missing_of_any(jobs):
            began, before = time.perf_counter(), self.bar.n
            scored = self._score(scorer, models, prefix, first.rows, span)
            self.bar.update(span[1] - span[0] - (self.bar.n - before))  # duplicates took no step
            if processes.writes():
                seconds = time.perf_counter() - began
                new = [
                    open_job
                    for open_job, values in zip(opened, scored, strict=True)
                    if span in open_job.job.missing
                    and not self.outcomes[open_job.job.model].failure
                    and self._fill(open_job, span, values)
                ]
                self.write(self._write, span, new, sorted(models), seconds / len(jobs))
                left = seconds * (len(first.rows) / span[1] - 1)
                if nothing_yet and span[0] == 0 and span[1] >= _MANY and left > _LONG_S:
                    for open_job in new:
                        self.on_numbers(open_job.job, open_job.numbers[:, : span[1]])
            if self.outcomes.all_failed(models):
                return 0
        sample = self._sample(first.rows)
        plain = scorer.score_plainly(first.rows, [*sample.tolist(), *first.rows.baseline])
        if processes.writes():
            self.write(self._close, opened, plain, sample)
        going = [job for job in jobs if not self.outcomes[job.model].failure]
        return sum(stop - start for job in going for start, stop in job.missing)

    @contextlib.contextmanager
    def _alone(self, job: RowsJob) -> Iterator[None]:
        """Records an error inside as the failure of this job's model; other models go on."""
        try:
            yield
        except AssayError as error:
            self.outcomes.fail([job.model], error)

    def _known(self, job: RowsJob) -> np.ndarray:
        """Numbers that duplicates take from parts on disk: float32 [columns, rows]."""
        numbers = np.empty((len(job.columns), len(job.rows)), np.float32)
        if any(len(job.rows.duplicates(*span)[0]) for span in job.missing):
            result = self._result(job)
            for start, stop in result.spans:
                if (start, stop) not in job.missing:
                    part = result.frame(schema.part_name(start, stop))
                    numbers[:, start:stop] = part.select(job.columns).to_numpy().T
        return numbers

    def _result(self, job: RowsJob) -> Result:
        """The result of a job, on process 0."""
        return self.folder.results[job.path]

    def _fill(self, open_job: _Open, span: Span, values: np.ndarray) -> bool:
        """Puts a part's values into a job's numbers, with those of duplicates; whether all is well.

        Parts are computed in ascending order, so the first row of every duplicate is known, and a
        resumed run writes the same bytes as an uninterrupted one.
        """
        (start, stop), job, rows = span, open_job.job, open_job.job.rows
        part = open_job.numbers[:, start:stop]
        part[...] = values
        places, sources = rows.duplicates(start, stop)
        part[:, places] = open_job.numbers[:, sources]
        key = next(iter(rows.part_columns))
        with self._alone(job):
            check_finite(job.model, key, start, job.columns, part, rows.keys(start, stop)[key])
        return not self.outcomes[job.model].failure

    def _write(self, span: Span, new: Iterable[_Open], models: list[str], seconds: float) -> None:
        """Writes the part of one span of jobs computed with `models`: numbers, and how."""
        for open_job in new:
            job, numbers = open_job.job, open_job.numbers[:, slice(*span)]
            columns = {**job.rows.keys(*span), **dict(zip(job.columns, numbers, strict=True))}
            frame = pl.DataFrame(columns, job.part_columns)
            way = {**self.folder.way, "step_size": self.step, "together": models}
            result = self._result(job)
            result.environment = self.folder.environment
            result.write(schema.part_name(*span), frame, way, seconds)
            self.outcomes[job.model].rows += len(frame)

    def _sample(self, rows: Rows) -> np.ndarray:
        """The rows that the self-check takes, ascending."""
        rng = np.random.default_rng([self.settings.seed, len(rows), *rows.prompt.prefix])
        size = min(self.settings.self_check, len(rows))
        return np.sort(rng.choice(len(rows), size, replace=False))

    def _close(
        self, opened: Iterable[_Open], plain: Iterable[np.ndarray], sample: np.ndarray
    ) -> None:
        """Compares a sample of what is on disk with the plain pass, which completes the jobs.

        `plain`: of each job, numbers of the sample by the plain pass: float32 [columns, sample]; if
        the prompt has a reply start, those of the reply start alone follow.
        """
        completed = []
        for open_job, expected in zip(opened, plain, strict=True):
            job = open_job.job
            if self.outcomes[job.model].failure:
                continue
            with self._alone(job):
                result, dtype = self._result(job), self.settings.dtype
                frames = [frame.select(job.columns).to_numpy().T for frame in result.frames()]
                numbers = np.concatenate(frames, axis=1)
                mixture = job.checkpoint.card.decoder.experts > 0
                result.self_check = self_check(
                    f"self-check of {job.path}",
                    job.columns,
                    sample,
                    numbers[:, sample],
                    expected[:, : len(sample)],
                    dtype,
                    compared=schema.MEDIAN if mixture else schema.LARGEST,
                )
                result.coefficients = open_job.coefficients
                if job.rows.baseline:
                    result.baseline = float(expected[0, -1])
                result.save()
                if not job.checked:
                    completed.append((job, numbers))
        for job, numbers in completed:
            self.on_numbers(job, numbers)
