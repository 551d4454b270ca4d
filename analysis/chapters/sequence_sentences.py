"""What the section on longer replies says of searches, certificates and replies for several."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis.blocks import Finding
from analysis.measures.transfer import rule_of, together_or_alone
from analysis.run import Run
from analysis.sentences import count, decimals
from analysis.statistics import Array
from analysis.study import Study
from engine.runs.schema import ASCENT

_SOUGHT = ("model", "prompt", "direction")


def beyond(study: Study) -> Iterator[Finding]:
    """How many searches found a reply that lies beyond every single token of the vocabulary."""
    alone = pl.col("method").map_elements(
        lambda method: rule_of(method) is None and not method.endswith(ASCENT), pl.Boolean
    )
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
            text="Searches found replies of several tokens that a model rates beyond every single "
            f"token of its vocabulary: {said}.",
            picture="sequence_traces",
        )


def universal(run: Run, matrix: pl.DataFrame) -> Iterator[Finding]:
    """How a reply sought for several judges compares with those sought for one of them."""
    for row in together_or_alone(run, matrix).iter_rows(named=True):
        low = row["direction"] == "min"
        what = "mean" if row["rule"] == "mean" else "highest" if low else "lowest"
        ours, theirs = (decimals(-v if low else v) for v in (row["value"], row["alone_value"]))
        yield Finding(
            text=f"One reply for all: sought {'low' if low else 'high'} for {row['judges']} pairs "
            f"of model and prompt together, “{row['text']}” has a {what} reward of {ours} sd over "
            f"the {row['known']} whose vocabulary was scored; the best of "
            f"{count(row['singles'], 'reply', 'replies')} sought for one pair each, "
            f"“{row['alone']}”, has {theirs}."
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
    found, reward = (f"{row[name]:.3g}".replace("-", "−") for name in ("found", "reward"))
    prompt = study.prompt_names.get(row["prompt"], f"“{row['prompt']}”")
    return (
        f" Another search of {study.names[row['model']]} under {prompt} "
        f"found {found}, where the certified reply has {reward}: no swap of one token leads there."
    )


def _gains(moved: pl.DataFrame) -> Array:
    """How much better swaps made each reply; with a target, how much closer: float64 [rows]."""
    after, before = (moved[name].to_numpy().astype(float) for name in ("reward", "searched_reward"))
    target = moved["target"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    closer = np.abs(before - target) - np.abs(after - target)
    gains: Array = np.where(np.isnan(target), np.abs(after - before), closer)
    return gains
