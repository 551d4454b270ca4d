"""The host loop: computes and writes the missing parts of results; resumable.

A `Result` is one model's numbers for a list of rows under one prompt, cut into fixed parts. A
first run and a resumed one take the same way: every missing part is computed and written.
"""

import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl
from jax.sharding import Mesh
from tqdm import tqdm

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.progress import progress
from engine.runs import parts, provenance, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.parts import Span
from engine.runs.reader import Json
from engine.scoring.rows import Rows
from engine.settings import Settings
from engine.sweep.outcomes import Ended, Ledger, SomeFailed, memory_errors
from engine.sweep.results import Result, is_checked, read_numbers, step_of
from engine.sweep.self_check import check_finite, self_check
from engine.sweep.writer import Writer
from engine.types import PromptIds


class Scorer(Protocol):
    """Models on devices that share a pass, as the host loop sees them."""

    # What a prefix is, and which rows fit, is the scorer's own: hence Any.
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


def run(
    manifest: Manifest,
    results: Sequence[Result],
    load: Callable[[Sequence[Checkpoint], int], Scorer],
    settings: Settings,
    mesh: Mesh,
    finished: Callable[[Result, np.ndarray], object] = lambda result, numbers: None,
    ended: Ended = lambda outcomes: None,
) -> int:
    """Computes what is missing.

    Models that fail do not keep the others from being computed. Of several processes, a failure
    that concerns models alone is one of loading them, or of their numbers; any other stops all.

    Args:
      manifest: of the run, with every result entered.
      results: all of them; those of one pass stand together, and so do passes of the same models.
      load: puts models that share a pass on the devices, for steps of a size; called once for
        models with a missing part, after the models before them were released.
      settings: of the run.
      mesh: of the scorers, for messages.
      finished: called with each result that this call completes, and its numbers float32
        [columns, rows]; on process 0 only.
      ended: called at the end with what became of each model; on process 0 only.

    Returns:
      The number of rows that were computed, over all results.

    Raises:
      AssayError: a number that is not finite, with its rows; a self-check beyond tolerance;
        damaged weights; no memory.
      SomeFailed: any of these, for some models of several; the others are complete.
    """
    passes = [tuple(same) for _, same in itertools.groupby(results, key=lambda r: id(r.rows))]
    pending = [
        same for same in passes if any(r.spans or not is_checked(manifest, r.path) for r in same)
    ]
    ledger, computed = Ledger([result.model for result in results]), 0
    with progress(sum(stop - start for same in pending for start, stop in _spans(same))) as bar:
        for (checkpoints, step), own in itertools.groupby(
            pending, key=lambda same: ([r.checkpoint for r in same], step_of(same))
        ):
            models = [checkpoint.card.slug for checkpoint in checkpoints]
            memory = functools.partial(memory_errors, models, mesh, "step_size", step)
            with ledger.group(models), memory(), Writer(manifest) as writer:
                bar.set_description(f"loading {models[0]}")
                here = functools.partial(_load, load, checkpoints, step, memory())
                scorer = functools.partial(ledger.everywhere, models, "loading", here)
                computed += _compute(
                    _Work(manifest, scorer(), settings, bar, writer, ledger), own, finished
                )
    if processes.writes():
        if pending:
            manifest.save()
        outcomes = ledger.outcomes(manifest, results)
        ended(outcomes)
        if any(outcome.failure for outcome in outcomes):
            raise SomeFailed(outcomes)
    return computed


def _load(
    load: Callable[[Sequence[Checkpoint], int], Scorer],
    checkpoints: Sequence[Checkpoint],
    step: int,
    memory: contextlib.AbstractContextManager[None],
) -> Scorer:
    """Loads models; where memory runs out, that is one of the errors of loading."""
    with memory:
        return load(checkpoints, step)


def _compute(
    work: "_Work",
    passes: Iterable[Sequence[Result]],
    finished: Callable[[Result, np.ndarray], object],
) -> int:
    """Computes some passes; their models are released when it returns, before others are loaded."""
    return sum(work.compute(same, finished) for same in passes)


def _spans(same_pass: Sequence[Result]) -> list[Span]:
    """Row ranges that are missing for at least one model."""
    return sorted({span for result in same_pass for span in result.spans})


@dataclasses.dataclass(frozen=True)
class _Work:
    """Loaded models, and where their numbers and failures go."""

    manifest: Manifest
    scorer: Scorer
    settings: Settings
    bar: tqdm
    writer: Writer
    ledger: Ledger

    def compute(
        self, results: Sequence[Result], finished: Callable[[Result, np.ndarray], object]
    ) -> int:
        """Computes, checks and closes the results of one pass; returns the number of new rows."""
        if self._all_failed(results):
            return 0
        first, others = results[0], f" +{len(results) - 1}" if len(results) > 1 else ""
        self.bar.set_description(f"{first.model}{others} · {first.prompt}")
        prefill = functools.partial(self.scorer.prefill, first.rows.prompt)
        models = [result.model for result in results]
        prefix = self.ledger.everywhere(models, f"prompt {first.prompt!r}", prefill)
        coefficients = self.scorer.coefficients(prefix)
        # Process 0 alone reads and writes parts; the others compute with it.
        known = [self._known(result) for result in results] if processes.writes() else []
        together = sorted(models)
        for span in _spans(results):
            began, before = time.perf_counter(), self.bar.n
            scored = self.scorer.score(prefix, first.rows, *span, self.bar.update)
            self.bar.update(span[1] - span[0] - (self.bar.n - before))  # duplicates took no step
            if processes.writes():
                each = list(zip(results, known, scored, coefficients, strict=True))
                seconds = (time.perf_counter() - began) / len(results)
                self._keep(span, each, together, seconds)
            if self._all_failed(results):
                return 0
        sample = self._sample(first.rows)
        plain = self.scorer.score_plainly(first.rows, sample.tolist())
        if processes.writes():
            checks = zip(results, plain, coefficients, strict=True)
            self.writer.submit(functools.partial(self._close, list(checks), sample, finished))
        going = [result for result in results if not self.ledger.failed(result.model)]
        return sum(stop - start for result in going for start, stop in result.spans)

    def _all_failed(self, results: Sequence[Result]) -> bool:
        return self.ledger.all_failed([result.model for result in results])

    @contextlib.contextmanager
    def _alone(self, result: Result) -> Iterator[None]:
        """What concerns one model of the pass: its failure does not stop the others."""
        try:
            yield
        except AssayError as error:
            self.ledger.fail([result.model], error, known=True)

    def _known(self, result: Result) -> np.ndarray:
        """Numbers that duplicates take from parts on disk: float32 [columns, rows]."""
        rows = result.rows
        numbers = np.empty((len(result.columns), len(rows)), np.float32)
        if any(len(rows.duplicates(*span)[0]) for span in result.spans):
            for start, stop in parts.ranges(len(rows), self.settings.part_size):
                if (start, stop) not in result.spans:
                    numbers[:, start:stop] = read_numbers(self.manifest, result, (start, stop))
        return numbers

    def _keep(
        self,
        span: Span,
        each: Sequence[tuple[Result, np.ndarray, np.ndarray, Json | None]],
        together: list[str],
        seconds: float,
    ) -> None:
        """Checks the numbers of one span, and writes them beside the next step; see `_write`.

        Args:
          span: the rows.
          each: results with all numbers so far, those of the span and coefficients.
          together: models of the pass.
          seconds: computing time of each part.
        """
        new = []
        for result, numbers, values, weights in each:
            if span in result.spans and not self.ledger.failed(result.model):
                with self._alone(result):
                    new.append((result, self._filled(result, span, numbers, values), weights))
        self.writer.submit(functools.partial(self._write, span, new, together, seconds))

    def _filled(
        self, result: Result, span: Span, numbers: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """Puts a part's values into `numbers`, and returns it with those of duplicates.

        Parts are computed in ascending order, so the first row of every duplicate is known, and a
        resumed run writes the same bytes as an uninterrupted one.
        """
        (start, stop), rows = span, result.rows
        part = numbers[:, start:stop]
        part[...] = values
        places, sources = rows.duplicates(start, stop)
        part[:, places] = numbers[:, sources]
        key = next(iter(rows.part_columns))
        check_finite(result.model, key, start, result.columns, part, rows.keys(start, stop)[key])
        return part

    def _write(
        self,
        span: Span,
        new: Sequence[tuple[Result, np.ndarray, Json | None]],
        together: list[str],
        seconds: float,
    ) -> None:
        """Writes the parts of one span.

        Args:
          span: the rows.
          new: results with their numbers, float32 [columns, rows], and coefficients.
          together: models of the pass.
          seconds: computing time of each part.
        """
        name = schema.part_name(*span)
        for result, part, weights in new:
            columns = {**result.rows.keys(*span), **dict(zip(result.columns, part, strict=True))}
            frame = pl.DataFrame(columns, result.part_columns)
            about = {
                **self.manifest.about(result.path),
                "rows": provenance.part_rows(*span, len(result.rows)),
                "coefficients": weights,
                "together": together,
                "computed_by": self.manifest.computed_by,
            }
            digest = parts.write_part(self.manifest.run / result.path, *span, frame, about)
            self.manifest.record_part(result.path, name, len(frame), digest, seconds)
        self.manifest.save_if_due()

    def _sample(self, rows: Rows) -> np.ndarray:
        """The rows that the self-check takes, ascending."""
        rng = np.random.default_rng([self.settings.seed, len(rows), *rows.prompt.prefix])
        size = min(self.settings.self_check, len(rows))
        return np.sort(rng.choice(len(rows), size, replace=False))

    def _close(
        self,
        checks: Sequence[tuple[Result, np.ndarray, Json | None]],
        sample: np.ndarray,
        finished: Callable[[Result, np.ndarray], object],
    ) -> None:
        """Compares a sample of what is on disk with the plain pass; closes the results.

        Args:
          checks: results of one pass, each with its numbers by the plain pass, float32
            [columns, sample], and its coefficients.
          sample: rows.
          finished: as for `run`.
        """
        completed = []
        for result, plain, weights in checks:
            if self.ledger.failed(result.model):
                continue
            with self._alone(result):
                numbers = self._checked(result, plain, sample, weights)
                if numbers is not None:
                    completed.append((result, numbers))
        self.manifest.save_if_due()
        for result, numbers in completed:
            finished(result, numbers)

    def _checked(
        self, result: Result, plain: np.ndarray, sample: np.ndarray, weights: Json | None
    ) -> np.ndarray | None:
        """Self-check of a result; its numbers if that completes it, None if it was complete."""
        storage.sweep_temporaries(self.manifest.run / result.path)
        spans = parts.ranges(len(result.rows), self.settings.part_size)
        numbers = np.concatenate(
            [read_numbers(self.manifest, result, span) for span in spans], axis=1
        )
        where, dtype = f"self-check of {result.path}", self.settings.dtype
        check = self_check(where, result.columns, sample, numbers[:, sample], plain, dtype)
        was_complete = self.manifest.result(result.path)["complete"]
        self.manifest.finish(result.path, check, weights)
        return None if was_complete else numbers
