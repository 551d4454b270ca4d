"""Longer replies found by search: the best of each search, and its swaps of one token."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Picture
from analysis.charts import look
from analysis.charts.lines import lines
from analysis.columns import MODEL, PROMPT, Column, Spec
from analysis.run import Run
from analysis.sentences import count
from analysis.statistics import Array
from analysis.statistics.ranks import percentiles_among
from analysis.study import Analysis, Study, Table, table

_KEYS = ("model", "prompt", "direction", "method", "seed")
_SEED, _REWARD = Column("seed", "count"), Column("reward", "number", dtype=pl.Float32)
_SEARCH = (MODEL, PROMPT, Column("direction"), Column("method"), _SEED)
_FLOPS = Column("flops", "number", "operations")
SEQUENCES = Spec(
    "sequences",
    (
        *_SEARCH,
        Column("length", "count", "tokens", "tokens"),
        _REWARD,
        Column("percentile", "share", help="share of the model's single tokens that score below"),
        Column("text", "token"),
        Column("round_trips", "bool", "round-trips"),
        _FLOPS,
        Column("swaps", "count", help="swaps of one token whose rewards are known"),
        Column("better_swaps", "count", "better swaps", "swaps that improve the reply"),
    ),
    title="What the searches found",
)
_STEP = Column("step", "count", dtype=pl.UInt32)
_TRACE = Spec("sequence_traces", (*_SEARCH, _STEP, _REWARD, _REWARD.but(key="best"), _FLOPS))


def beyond(study: Study) -> Iterator[Finding]:
    """How many searches found a reply that lies beyond every single token of the vocabulary."""
    placed = study.tables["sequences"].filter(pl.col("percentile").is_not_null())
    high, low = (placed.filter(direction=sought) for sought in ("max", "min"))
    parts = ((high, "high", 1.0), (low, "low", 0.0))
    counts = [
        (part.filter(percentile=end).height, f"of {part.height} searches for {sought} rewards")
        for part, sought, end in parts
        if part.height
    ]
    if any(extreme for extreme, _ in counts):
        yield Finding(
            text="Search found a reply of several tokens with a more extreme reward than every "
            "single token of the vocabulary in "
            f"{' and '.join(f'{extreme} {searches}' for extreme, searches in counts)}.",
            picture="sequence_traces",
        )


def certified(study: Study) -> Iterator[Finding]:
    """Whether swaps of one token improve the replies whose swaps were scored."""
    known = study.tables["sequences"].filter(pl.col("better_swaps").is_not_null())
    if known.height:
        sure = known.filter(better_swaps=0).height
        yield Finding(
            text=f"{sure} of {count(known.height, 'tested reply', 'tested replies')} cannot be "
            "improved by swapping one token; all allowed swaps were scored "
            f"({known['swaps'].sum():,})."
        )


def _tables(study: Study) -> Iterator[Table]:
    """A file, and the steps of searches for the chart."""
    run = study.run
    none = "No search for sequences was run."
    yield table(SEQUENCES.name, make=partial(sequences_table, run), why=none)
    yield table(_TRACE.name, make=partial(sequence_traces, run), file=False, why=none)


def sequences_table(run: Run) -> pl.DataFrame:
    """The best sequence of every search.

    Returns:
      The table `SEQUENCES`, by its first five columns. percentile is null where the vocabulary was
      not scored; round_trips says whether the text tokenises to these ids. Of equal rewards the
      earliest is taken. swaps and better_swaps are null where no swap was scored.
    """
    best = []
    singles: dict[tuple[str, str], Array] = {}
    for keys, steps, record in run.read_searches():
        order = steps.sort("reward", "step", descending=[keys["direction"] == "max", False])
        first, swaps = order.row(0, named=True), record.certificate
        cell = (keys["model"], keys["prompt"])
        if cell in run.results and cell not in singles:
            singles[cell] = run.rewards(*cell)[1][run.ranked(*cell).order]
        best.append(
            {
                **keys,
                "seed": int(keys["seed"]),
                "length": len(first["token_ids"] or []),
                "reward": first["reward"],
                "percentile": _percentile(singles.get(cell), first["reward"]),
                "text": first["text"],
                "round_trips": first["round_trips"],
                "flops": steps["flops"].max(),
                "swaps": swaps and swaps.swaps,
                "better_swaps": swaps and swaps.better,
            }
        )
    return SEQUENCES.frame(best).sort(run.place(), *_KEYS[1:])


def sequence_traces(run: Run) -> pl.DataFrame:
    """Every step of each search: its keys, step, reward, best (so far), flops."""
    frames = [pl.DataFrame(schema=_TRACE.schema)]
    for keys, steps, _ in run.read_searches():
        reward = pl.col("reward")
        best = reward.cum_max() if keys["direction"] == "max" else reward.cum_min()
        key_columns = {name: pl.lit(keys[name]).cast(_TRACE.schema[name]) for name in _KEYS}
        frames.append(
            steps.select(**key_columns, step="step", reward="reward", best=best, flops="flops")
        )
    return pl.concat(frames)


def _percentile(singles: Array | None, reward: float) -> float | None:
    if singles is None or not len(singles):
        return None
    return float(percentiles_among(singles, np.array(reward, np.float32)))


def _searches_drawn(study: Study) -> Iterator[Block]:
    best, traces = study.tables[SEQUENCES.name], study.tables[_TRACE.name]
    caption = (
        "The best reward so far of each search: high sought (solid) or low (dashed); one line for "
        "each prompt and seed."
    )
    yield Picture("sequence_traces", caption, partial(courses, study, traces))
    yield from SEQUENCES.rows(best)


def courses(study: Study, traces: pl.DataFrame) -> look.Chart:
    """The best reward so far of each search, by what it cost where all costs are known."""
    search = pl.struct(_KEYS)
    shown = traces.with_columns(
        sought=pl.col("direction").replace({"max": "high", "min": "low"}),
    ).sort("sought", study.run.place(), *_KEYS[1:], "step")
    last = pl.col("step") == pl.col("step").max().over(search)
    moved = (pl.col("best") != pl.col("best").shift().over(search)).fill_null(True)
    known = bool((traces["flops"] > 0).all())
    title = f"{'floating-point operations' if known else 'step'} of the search"
    return lines(
        shown.filter(moved | last),
        study.names,
        (title, "best reward so far"),
        x="flops" if known else "step",
        y="best",
        line="method",
        dashed="sought",
        keys=("prompt", "seed"),
        log=known,
        stepped=True,
    )


ANALYSIS = Analysis(
    id="sequences",
    title="Longer replies",
    label="Sequences",
    lead="Which replies of several tokens does a model reward most and least? A search follows "
    "the gradient of the reward, or tries replies in another way.",
    make=_tables,
    parts=(_searches_drawn,),
    told=(beyond, certified),
    caveats=lambda study: (
        "A search finds a local extreme: another seed or method may find a better reply, even "
        "where no swap of one token does.",
        "A text that does not round-trip is scored as ids that no text gives.",
    ),
)
