"""Longer replies found by search: the best of each search, and its certificate."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Heading, Picture, Text
from analysis.charts import look
from analysis.charts.lines import lines
from analysis.columns import MODEL, PROMPT, Column, Spec
from analysis.run import Run
from analysis.sentences import count
from analysis.statistics import Array
from analysis.statistics.ranks import percentiles_among
from analysis.study import Analysis, Study, Table, table
from engine.runs.schema import ASCENT

_SOUGHT = ("model", "prompt", "direction")
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
    ),
    title="What the searches found",
)
_STEP = Column("step", "count", dtype=pl.UInt32)
_TRACE = Spec("sequence_traces", (*_SEARCH, _STEP, _REWARD, _REWARD.but(key="best"), _FLOPS))
CERTIFICATES = Spec(
    "sequence_certificates",
    (
        *(*_SEARCH[:4], _SEED.but(help="of the search")),
        Column(
            "certified",
            "bool",
            help="every allowed swap of one token was scored, and none improves the reply",
        ),
        Column("sweeps", "count"),
        Column("swaps", "count", "swaps scored", "scored"),
        Column("ascent_steps", "count", "swaps taken", "swaps taken"),
        _REWARD.but(key="searched_reward", title="found by the search", help="found by the search"),
        _REWARD.but(title="after swaps", help="after the last step"),
        Column(
            "best_gain", "number", "best swap’s gain", "of a swap of it, in the direction sought"
        ),
        Column("margin", "number", help="that a gain must exceed"),
        Column("noise", "number"),
        Column(
            "target",
            "number",
            "target reward",
            "the reward that the reply was to come close to, if there was one",
        ),
        Column(
            "rejected",
            "count",
            "better, but cannot be typed",
            "swaps that would improve it, but whose text does not tokenise back",
        ),
        Column("text", "token"),
    ),
    page="model prompt direction method seed certified target searched_reward reward ascent_steps "
    "swaps best_gain margin rejected text",
)


def beyond(study: Study) -> Iterator[Finding]:
    """How many searches found a reply that lies beyond every single token of the vocabulary."""
    alone = ~pl.col("method").str.ends_with(ASCENT)
    placed = study.tables["sequences"].filter(alone, pl.col("percentile").is_not_null())
    high, low = (placed.filter(direction=sought) for sought in ("max", "min"))
    parts = ((high, "high", 1.0), (low, "low", 0.0))
    counts = [
        (part.filter(percentile=end).height, f"of {part.height} for {sought} rewards")
        for part, sought, end in parts
        if part.height
    ]
    if any(count for count, _ in counts):
        said = " and ".join(f"{count} {of}" for count, of in counts)
        yield Finding(
            text="A search for a reply of several tokens can find one that its model rates beyond "
            f"every single token of its vocabulary: it did in {said}.",
            picture="sequence_traces",
        )


def certified(study: Study) -> Iterator[Finding]:
    """That swaps of one token improve no found reply, or that they improved some."""
    certificates = study.tables["sequence_certificates"]
    sure, moved = certificates.filter("certified"), certificates.filter(pl.col("ascent_steps") > 0)
    if sure.height:
        rejected = sure["rejected"].sum()
        yield Finding(
            text=f"Certified: {sure.height} of {count(certificates.height, 'reply', 'replies')} "
            f"that were put to the test. Every swap of a single token for another of the "
            f"{_allowed(study, sure)} was scored ({sure['swaps'].sum():,} rewards), and none "
            f"improves the reply"
            + (f"; {rejected:,} would, but cannot be typed." if rejected else ".")
            + _found_more(study, sure)
        )
    if moved.height:
        yield Finding(
            text="The searches had stopped short: swaps of single tokens improved "
            f"{moved.height} of {certificates.height} replies that they found, by up to "
            f"{_gains(moved).max():.3g}."
        )


def unfinished(certificates: pl.DataFrame) -> str:
    """What is open after the last sweep; "" where nothing is."""
    rest = certificates.filter(~pl.col("certified"))
    better = rest.filter(pl.col("best_gain") > pl.col("margin")).height
    if not rest.height:
        return ""
    return (
        f"The budget of sweeps ended before {rest.height} of {certificates.height} replies could "
        "be certified" + (f"; of {better} a swap is known that improves it." if better else ".")
    )


def _allowed(study: Study, sure: pl.DataFrame) -> str:
    """Of how many tokens the swaps are: "8,142 allowed tokens (of 49,152)"."""
    sizes = dict(study.described.select("model", "vocabulary").iter_rows())
    counts = sure.select(
        allowed=pl.col("swaps") // pl.col("sweeps") + 1,
        size=pl.col("model").replace_strict(sizes, default=None),
    )
    return " or ".join(
        f"{allowed:,} allowed tokens" + (f" (of {size:,})" if size else "")
        for allowed, size in counts.unique().sort("allowed", "size").iter_rows()
    )


def _found_more(study: Study, sure: pl.DataFrame) -> str:
    """The largest lead over a certified reply of another search for the same; "" for none."""
    searches = study.tables["sequences"].select(*_SOUGHT, "method", "seed", found="reward")
    other = (pl.col("method_found").str.strip_suffix(ASCENT) != pl.col("method")) | (
        pl.col("seed_found") != pl.col("seed")
    )
    sign = pl.when(direction="max").then(1).otherwise(-1)
    beside = sure.filter(pl.col("target").is_null()).join(
        searches, on=_SOUGHT, how="inner", suffix="_found"
    )
    more = beside.with_columns(lead=sign * (pl.col("found") - pl.col("reward"))).filter(
        other, pl.col("lead") > 0
    )
    if not more.height:
        return ""
    row = more.sort("lead", *_SOUGHT, descending=[True, False, False, False]).row(0, named=True)
    theirs, reward = (f"{row[name]:.3g}".replace("-", "−") for name in ("found", "reward"))
    prompt = study.prompt_names.get(row["prompt"], f"“{row['prompt']}”")
    return (
        f" Another search of {study.names[row['model']]} under {prompt} "
        f"found {theirs}, where the certified reply has {reward}: no swap of one token leads there."
    )


def _gains(moved: pl.DataFrame) -> Array:
    """How much better swaps made each reply; with a target, how much closer: float64 [rows]."""
    after, before = (moved[name].to_numpy().astype(float) for name in ("reward", "searched_reward"))
    target = moved["target"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    closer = np.abs(before - target) - np.abs(after - target)
    gains: Array = np.where(np.isnan(target), np.abs(after - before), closer)
    return gains


def _tables(study: Study) -> Iterator[Table]:
    """Two files, and the steps of searches for the chart."""
    run = study.run
    none = f"No search for sequences was run. {_left_out(run)}".strip()
    open_ = "No sequence that a search found was certified."
    yield table(SEQUENCES.name, make=partial(sequences_table, run), why=none)
    yield table(_TRACE.name, make=partial(sequence_traces, run), file=False, why=none)
    yield table(CERTIFICATES.name, make=partial(sequence_certificates, run), why=open_)


def sequences_table(run: Run) -> pl.DataFrame:
    """The best sequence of every search.

    Returns:
      The table `SEQUENCES`, by its first five columns. percentile is null where the vocabulary was
      not scored; round_trips says whether the text tokenises to these ids. Of equal rewards the
      earliest is taken. Of a certificate (which may seek a target) the last step is taken.
    """
    best = []
    singles: dict[tuple[str, str], Array] = {}
    for keys, steps, _ in run.read_searches():
        order = steps.sort("reward", "step", descending=[keys["direction"] == "max", False])
        if keys["method"].endswith(ASCENT):
            order = steps.tail(1)
        first = order.row(0, named=True)
        cell = (keys["model"], keys["prompt"])
        if cell in run.results and cell not in singles:
            singles[cell] = np.sort(run.rewards(*cell)[1])
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
            }
        )
    return SEQUENCES.frame(best).sort(run.place(), *_KEYS[1:])


def sequence_traces(run: Run) -> pl.DataFrame:
    """Every step of each search: its keys, step, reward, best (so far), flops.

    Where `sequences_table` takes the last step, `best` is each step's own.
    """
    frames = [pl.DataFrame(schema=_TRACE.schema)]
    for keys, steps, _ in run.read_searches():
        reward = pl.col("reward")
        best = reward.cum_max() if keys["direction"] == "max" else reward.cum_min()
        if keys["method"].endswith(ASCENT):
            best = reward
        named = {name: pl.lit(keys[name]).cast(_TRACE.schema[name]) for name in _KEYS}
        frames.append(steps.select(**named, step="step", reward="reward", best=best, flops="flops"))
    return pl.concat(frames)


def sequence_certificates(run: Run) -> pl.DataFrame:
    """What certificates say of the sequences that searches found.

    Returns:
      The table `CERTIFICATES`, by its first five columns. noise is the largest difference between
      two rewards of one sequence; best_gain is null where no swap was admitted.
    """
    rows = []
    for keys, steps, record in run.read_searches():
        if record.certificate is None:
            continue
        row = {**keys, "seed": int(keys["seed"]), "rejected": record.rejected}
        row["method"] = keys["method"].removesuffix(ASCENT)
        row |= {
            name: record.certificate.get(name) for name in CERTIFICATES.schema if name not in row
        }
        last = steps.row(-1, named=True)
        rows.append({**row, "reward": last["reward"], "text": last["text"]})
    return CERTIFICATES.frame(rows).sort(run.place(), *_KEYS[1:])


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
        method=pl.col("method").map_elements(_shown, pl.String),
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
        each=("prompt", "seed"),
        log=known,
        stepped=True,
    )


def _shown(method: str) -> str:
    """A method's name in a legend."""
    return f"{method.removesuffix(ASCENT)}, then swaps" if method.endswith(ASCENT) else method


def _certificates_shown(study: Study) -> Iterator[Block]:
    certificates = study.tables[CERTIFICATES.name]
    yield Heading("Does a swap of one token improve the reply?")
    if open_ := unfinished(certificates):
        yield Text(open_, "note")
    yield from CERTIFICATES.rows(certificates)
    yield Text(
        "A sweep scores every allowed token at one position. A swap improves a reply if it gains "
        "more than the margin, the self-check’s tolerance, which is above the noise between "
        "batches.",
        "how",
    )


ANALYSIS = Analysis(
    id="sequences",
    title="Longer replies",
    label="Sequences",
    lead="Which replies of several tokens does a model reward most and least? A search follows "
    "the gradient of the reward, or tries replies in another way.",
    make=_tables,
    parts=(_searches_drawn, _certificates_shown),
    told=(beyond, certified),
    caveats=lambda study: (
        "A search finds a local extreme: another seed or method may find better, also where no "
        "swap of one token does.",
        "A text that does not round-trip is scored as ids that no writer could type.",
    ),
)
