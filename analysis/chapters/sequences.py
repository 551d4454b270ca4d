"""Longer replies found by search: the best of each search, and its swaps of one token."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Picture
from analysis.charts.estimates import estimates
from analysis.columns import MODEL, PROMPT, Column, Spec
from analysis.run import Run
from analysis.sentences import count
from analysis.statistics import Array
from analysis.statistics.ranks import percentiles_among
from analysis.study import Analysis, Study, Table, table
from engine import display

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


def beyond(study: Study) -> Iterator[Finding]:
    """How many searches found a reply that lies beyond every single token of the vocabulary."""
    placed = study.tables["sequences"].filter(pl.col("percentile").is_not_null())
    high, low = (placed.filter(direction=sought) for sought in ("max", "min"))
    parts = [part for part in ((high, "high", 1.0), (low, "low", 0.0)) if part[0].height]
    counts = []
    for part, sought, end in parts:
        extreme, searches = part.filter(percentile=end).height, part.height
        told = f"{extreme} of {count(searches, 'search', 'searches')}"
        told = "the search" if extreme == searches == 1 else told
        counts.append((extreme, f"{told} for {sought} rewards"))
    if any(extreme for extreme, _ in counts):
        yield Finding(
            text="Search found a reply of several tokens with a more extreme reward than every "
            f"single token of the vocabulary in {' and '.join(told for _, told in counts)}.",
            picture="sequences",
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
    make = partial(sequences_table, study.run)
    yield table(SEQUENCES.name, make=make, why="No search for sequences was run.")


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


def _percentile(singles: Array | None, reward: float) -> float | None:
    if singles is None or not len(singles):
        return None
    return float(percentiles_among(singles, np.array(reward, np.float32)))


def _searches_drawn(study: Study) -> Iterator[Block]:
    best = study.tables[SEQUENCES.name]
    texts = pl.col("text").map_elements(display.plain, pl.String)
    shown = best.with_columns(text=texts).sort("reward", descending=True, maintain_order=True)
    caption = (
        "The best reply of each search, for high rewards (max) or low ones (min), and its reward. "
        "Each model has its own axis."
    )
    draw = partial(estimates, shown, study.names, "reward", value="reward", row="text")
    draw = partial(draw, panel="name", shared=False, zero=None, form="number", width=200)
    yield Picture("sequences", caption, partial(draw, colour="direction", kinds=("max", "min")))
    yield from SEQUENCES.rows(best)


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
