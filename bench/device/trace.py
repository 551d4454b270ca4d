"""The most expensive kernels of a step, from a trace of JAX's profiler."""

import collections
import dataclasses
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import jax
import numpy as np
from jax.profiler import ProfileData

from bench.device.bench import Bench, Outcome, Skipped
from bench.support.table import aligned
from engine.scoring.batches import token_candidates

_SHOWN = 10
_NAME_WIDTH = 60


@dataclasses.dataclass(frozen=True)
class Span:
    """A kernel's run on one line of a trace, in nanoseconds."""

    name: str
    start_ns: float
    stop_ns: float


def kernels(bench: Bench) -> Outcome:
    """Time of the ten most expensive kernels of a step, and how much of it they are."""
    size, steps = bench.best_size, 3
    scorer = bench.scorer_of(size)
    ids = np.arange(steps * size) % bench.model.decoder.vocab_size
    candidates = token_candidates(bench.prompt, ids)
    list(scorer.rewards(bench.prefix, candidates))  # compiles
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            list(scorer.rewards(bench.prefix, candidates))
        [file] = Path(folder).rglob("*.xplane.pb")
        spans = list(device_lines(ProfileData.from_file(str(file))))
    totals: collections.Counter[str] = collections.Counter()
    counts: collections.Counter[str] = collections.Counter()
    for line in spans:
        for name, own_ns in self_times(line):
            totals[name] += own_ns
            counts[name] += 1
    if not totals:
        raise Skipped("the trace holds no kernels of this device")
    whole = sum(totals.values())
    found = [
        {
            "kernel": name,
            "runs_per_step": counts[name] / steps,
            "ms_per_step": ns / steps / 1e6,
            "share": ns / whole,
        }
        for name, ns in totals.most_common(_SHOWN)
    ]
    rows = [("kernel", "runs a step", "ms a step", "share")]
    for kernel in found:
        rows.append(
            (
                kernel["kernel"][:_NAME_WIDTH],
                f"{kernel['runs_per_step']:,.1f}",
                f"{kernel['ms_per_step']:,.3f}",
                f"{kernel['share']:.1%}",
            )
        )
    text = (
        f"{aligned(rows)}\n{size:,} candidates a step; all kernels {whole / steps / 1e6:,.2f} ms "
        "a step"
    )
    result = {"candidates": size, "all_ms_per_step": whole / steps / 1e6, "kernels": found}
    return Outcome(text=text, result=result)


def device_lines(data: ProfileData) -> Iterator[list[Span]]:
    """The kernels of each line of a trace: a GPU's streams, a TPU's operations, a CPU's threads."""
    for plane in data.planes:
        accelerator = plane.name.startswith("/device:")
        for line in plane.lines:
            # A GPU's or TPU's other lines repeat the same time by step, program or source line.
            kernels_of = "Stream" in line.name or line.name == "XLA Ops"
            if accelerator and not kernels_of:
                continue
            spans = [
                Span(event.name, event.start_ns, event.start_ns + event.duration_ns)
                for event in line.events
                if accelerator or _is_kernel(event)
            ]
            if spans:
                yield spans


# Any: an event of jaxlib, which has no types.
def _is_kernel(event) -> bool:
    """Whether an event of a CPU's thread is an operation of a compiled program."""
    return any(name == "hlo_op" for name, _ in event.stats)


def self_times(spans: Iterable[Span]) -> Iterator[tuple[str, float]]:
    """Each span's name, and its nanoseconds without those of the spans inside it."""
    open_spans: list[list] = []  # [span, nanoseconds inside it]
    for span in sorted(spans, key=lambda s: (s.start_ns, -s.stop_ns)):
        while open_spans and open_spans[-1][0].stop_ns <= span.start_ns:
            yield _closed(*open_spans.pop())
        if open_spans:
            open_spans[-1][1] += span.stop_ns - span.start_ns
        open_spans.append([span, 0.0])
    while open_spans:
        yield _closed(*open_spans.pop())


def _closed(span: Span, inside_ns: float) -> tuple[str, float]:
    return span.name, max(0.0, span.stop_ns - span.start_ns - inside_ns)
