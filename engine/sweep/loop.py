"""The host loop: computes and writes the missing parts of results; resumable.

A `Result` is one model's numbers for a list of rows under one prompt, cut into fixed parts. A
first run and a resumed one take the same way: every missing part is computed and written.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np
import polars as pl
from tqdm import tqdm

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.progress import progress
from engine.runs import parts, schema
from engine.runs.manifest import Manifest
from engine.runs.parts import Span
from engine.runs.reader import Json
from engine.scoring.reward_passes import dtype_named
from engine.scoring.rows import Rows
from engine.sweep.self_check import check_finite, self_check
from engine.types import PromptIds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How results are computed. All but the self-check's are part of their fingerprint."""

    dtype: str
    step_size: int  # candidates per step on each device
    part_size: int  # rows per part
    self_check: int  # rows per result that the plain pass scores again
    seed: int  # of the self-check's sample

    def __post_init__(self) -> None:
        dtype_named(self.dtype)
        for name, least in (("step_size", 1), ("part_size", 1), ("self_check", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise AssayError(f"{name}={value!r}; allowed: integers >= {least}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One model's numbers for every row under one prompt.

    Attributes:
      checkpoint: the model.
      path: folder of the parts, relative to the run.
      rows: what is scored. Results with the same object are computed in one pass.
      columns: names of the numbers in a part; the first is the reward or log-probability.
      spans: row ranges of the parts that are missing, ascending.
    """

    checkpoint: Checkpoint
    path: str
    rows: Rows
    columns: Sequence[str]
    spans: Sequence[Span]

    @property
    def model(self) -> str:
        """The model's slug."""
        return self.checkpoint.card.slug

    @property
    def prompt(self) -> str:
        """The prompt's id."""
        return self.path.rsplit("=")[-1]

    @property
    def part_columns(self) -> schema.Columns:
        """Columns of a part and their types."""
        return self.rows.part_columns | schema.objective_columns(self.columns[1:])


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
    load: Callable[[Sequence[Checkpoint]], Scorer],
    settings: Settings,
    finished: Callable[[Result, np.ndarray], object] = lambda result, numbers: None,
) -> int:
    """Computes what is missing.

    Args:
      manifest: of the run, with every result entered.
      results: all of them; those of one pass stand together, and so do passes of the same models.
      load: puts models that share a pass on the devices; called once for models with a missing
        part, after the models before them were released.
      settings: of the run.
      finished: called with each result that this call completes, and its numbers float32
        [columns, rows]; on process 0 only.

    Returns:
      The number of rows that were computed, over all results.

    Raises:
      AssayError: a number that is not finite, with its rows; a self-check beyond tolerance.
    """
    passes = [tuple(same) for _, same in itertools.groupby(results, key=lambda r: id(r.rows))]
    pending = [
        same
        for same in passes
        if any(r.spans or not manifest.result(r.path)["complete"] for r in same)
    ]
    computed = 0
    with progress(sum(stop - start for same in pending for start, stop in _spans(same))) as bar:
        for checkpoints, own in itertools.groupby(
            pending, key=lambda same: [r.checkpoint for r in same]
        ):
            bar.set_description(f"loading {checkpoints[0].card.slug}")
            work = _Work(manifest, load(checkpoints), settings, bar)
            for same in own:
                computed += work.compute(same, finished)
            del work  # before the next models are loaded
    return computed


def _spans(same_pass: Sequence[Result]) -> list[Span]:
    """Row ranges that are missing for at least one model."""
    return sorted({span for result in same_pass for span in result.spans})


@dataclasses.dataclass(frozen=True)
class _Work:
    """Loaded models, and where their numbers go."""

    manifest: Manifest
    scorer: Scorer
    settings: Settings
    bar: tqdm

    def compute(
        self, results: Sequence[Result], finished: Callable[[Result, np.ndarray], object]
    ) -> int:
        """Computes, checks and closes the results of one pass; returns the number of new rows."""
        first, others = results[0], f" +{len(results) - 1}" if len(results) > 1 else ""
        self.bar.set_description(f"{first.model}{others} · {first.prompt}")
        prefix = self.scorer.prefill(first.rows.prompt)
        known = [self._known(result) for result in results]
        for span in _spans(results):
            began, before = time.perf_counter(), self.bar.n
            scored = self.scorer.score(prefix, first.rows, *span, self.bar.update)
            self.bar.update(span[1] - span[0] - (self.bar.n - before))  # duplicates took no step
            for result, numbers, values in zip(results, known, scored, strict=True):
                if span in result.spans:
                    self._write(result, span, numbers, values, began, len(results))
            if _writes():
                self.manifest.save()
        self._close(results, prefix, finished)
        return sum(stop - start for result in results for start, stop in result.spans)

    def _known(self, result: Result) -> np.ndarray:
        """Numbers that duplicates take from parts on disk: float32 [columns, rows]."""
        rows = result.rows
        numbers = np.empty((len(result.columns), len(rows)), np.float32)
        if any(len(rows.duplicates(*span)[0]) for span in result.spans):
            for start, stop in parts.ranges(len(rows), self.settings.part_size):
                if (start, stop) not in result.spans:
                    numbers[:, start:stop] = self._read(result, start, stop)
        return numbers

    def _write(
        self,
        result: Result,
        span: Span,
        numbers: np.ndarray,
        values: np.ndarray,
        began: float,
        sharing: int,
    ) -> None:
        """Writes one part, and puts its values into `numbers`.

        Parts are computed in ascending order, so the first row of every duplicate is known, and a
        resumed run writes the same bytes as an uninterrupted one.
        """
        (start, stop), rows = span, result.rows
        part = numbers[:, start:stop]
        part[...] = values
        places, sources = rows.duplicates(start, stop)
        part[:, places] = numbers[:, sources]
        check_finite(result.model, next(iter(rows.part_columns)), start, result.columns, part)
        if _writes():
            columns = {**rows.keys(start, stop), **dict(zip(result.columns, part, strict=True))}
            frame = pl.DataFrame(columns, result.part_columns)
            digest = parts.write_part(self.manifest.run / result.path, start, stop, frame)
            seconds = (time.perf_counter() - began) / sharing
            name = schema.part_name(start, stop)
            self.manifest.record_part(result.path, name, stop - start, digest, seconds)

    def _close(
        self,
        results: Sequence[Result],
        prefix: Any,  # the scorer's
        finished: Callable[[Result, np.ndarray], object],
    ) -> None:
        """Compares a random sample of what is on disk with the plain pass; closes the results."""
        rows = results[0].rows
        rng = np.random.default_rng([self.settings.seed, len(rows), *rows.prompt.prefix])
        size = min(self.settings.self_check, len(rows))
        sample = np.sort(rng.choice(len(rows), size, replace=False))
        plain = self.scorer.score_plainly(rows, sample.tolist())
        coefficients = self.scorer.coefficients(prefix)
        if not _writes():
            return
        completed = []
        for result, expected, weights in zip(results, plain, coefficients, strict=True):
            parts.sweep_temporaries(self.manifest.run / result.path)
            spans = parts.ranges(len(rows), self.settings.part_size)
            numbers = np.concatenate([self._read(result, *span) for span in spans], axis=1)
            where, written = f"self-check of {result.path}", numbers[:, sample]
            check = self_check(
                where, result.columns, sample, written, expected, self.settings.dtype
            )
            if not self.manifest.result(result.path)["complete"]:
                completed.append((result, numbers))
            self.manifest.finish(result.path, check, weights)
        self.manifest.save()
        for result, numbers in completed:
            finished(result, numbers)

    def _read(self, result: Result, start: int, stop: int) -> np.ndarray:
        """Numbers of a part on disk, checked against its hash: float32 [columns, stop - start]."""
        name = schema.part_name(start, stop)
        path = self.manifest.run / result.path / name
        frame, digest = parts.read_part(path.parent, start, stop)
        recorded = self.manifest.result(result.path)["parts"].get(name)
        if recorded is None:  # the process died between writing the part and recording it
            keys = result.rows.keys(start, stop)
            expected = pl.DataFrame(keys, {key: result.part_columns[key] for key in keys})
            types_fit = dict(frame.schema) == result.part_columns
            if not types_fit or not frame.drop(result.columns).equals(expected):
                raise AssayError(f"{path}: not a part of this result; remove it")
            self.manifest.record_part(result.path, name, len(frame), digest, 0.0)
        elif recorded["sha256"] != digest:
            raise AssayError(f"{path}: differs from its hash in the manifest; remove it")
        return frame.select(result.columns).to_numpy().T


def _writes() -> bool:
    return jax.process_index() == 0
