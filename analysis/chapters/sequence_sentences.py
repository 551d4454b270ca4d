"""What the section on longer replies says of certificates and of replies sought for several."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import (
    MODEL,
    PROMPT,
    Block,
    Column,
    Finding,
    Heading,
    Picture,
    Text,
    rows,
)
from analysis.figures import style
from analysis.figures.transfer_map import transfer_map
from analysis.measures.transfer import SEARCH, together_or_alone
from analysis.run import Run
from analysis.sentences import decimals
from analysis.statistics import Array
from analysis.study import Study
from engine.runs.schema import ASCENT


def matrix_blocks(study: Study) -> list[Block]:
    """The transfer matrix: a sentence on universal replies, a heat map, and the table."""
    matrix = study.tables.get("sequence_matrix")
    if matrix is None:
        return []
    blocks: list[Block] = [Heading("Every found reply under every model and prompt")]
    blocks += [Text(finding.text) for finding in universal_findings(study.run, matrix)]
    known = matrix.filter(pl.col("standardised").is_not_null())
    if known.height:
        firsts = known.select(SEARCH).unique(maintain_order=True).head(_MOST_ROWS)
        shown = known.join(firsts, on=SEARCH, how="semi", maintain_order="left")
        every = known.select(SEARCH).n_unique()
        cut = f" The first {_MOST_ROWS} of {every} replies." if every > _MOST_ROWS else ""
        text = (
            "Each row is a reply, sought high (↑) or low (↓) for the model named, or for all "
            "together; each column scores its text. Numbers: rewards in standard deviations of the "
            f"column’s single tokens from their mean.{cut}"
        )
        blocks.append(Picture("sequence_matrix", text, partial(transfer_map, shown, study.names)))
    return [*blocks, *rows(matrix, _MATRIX, "sequence_matrix.csv")]


def universal_findings(run: Run, matrix: pl.DataFrame | None) -> list[Finding]:
    """How a reply sought for several judges compares with those sought for one of them."""
    if matrix is None:
        return []
    found = []
    for row in together_or_alone(run, matrix).iter_rows(named=True):
        low = row["direction"] == "min"
        what = "mean" if row["rule"] == "mean" else "highest" if low else "lowest"
        ours, theirs = (decimals(-v if low else v) for v in (row["value"], row["alone_value"]))
        judges, known = row["judges"], row["known"]
        over = "them" if known == judges else f"{known} of them, whose vocabulary was scored"
        outcome = "the one for one pair is better"
        if row["value"] >= row["alone_value"]:
            equal = row["value"] == row["alone_value"]
            outcome = "they are equally good" if equal else "the one for all is better"
        count = row["singles"]
        which = f"The best of the {count} that were sought for one pair each"
        if count == 1:
            which = "The one that was sought for one of the pairs"
        own, other = row["length"], row["alone_length"]
        sizes = ("", "") if own == other else (_tokens(own), _tokens(other))
        text = (
            f"One reply for all: sought {'low' if low else 'high'} for {judges} pairs of model and "
            f"prompt together, “{row['text']}”{sizes[0]} has a {what} reward of {ours} sd over "
            f"{over}. "
            f"{which}, “{row['alone']}”{sizes[1]}, has {theirs}: {outcome}."
        )
        found.append(Finding(text=text))
    return found


def _tokens(count: int) -> str:
    return " (1 token)" if count == 1 else f" ({count} tokens)"


def certified_findings(study: Study) -> list[Finding]:
    """That swaps of one token improve no found reply, or that they improved some."""
    certificates = study.tables.get("sequence_certificates")
    if certificates is None:
        return []
    findings, certified = [], certificates.filter("certified")
    moved = certificates.filter(pl.col("ascent_steps") > 0)
    if certified.height:
        rejected = certified["rejected"].sum()
        text = (
            f"{_of(certified.height, certificates.height)} certified: every swap of a single "
            f"token for another of the {_allowed(study, certified)} was scored "
            f"({certified['swaps'].sum():,} rewards), and none improves the reply"
            + (f"; {rejected:,} would, but cannot be typed." if rejected else ".")
            + _found_more(study, certified)
        )
        findings.append(Finding(text=text))
    if moved.height:
        text = (
            f"The searches had stopped short: swaps of single tokens improved "
            f"{moved.height} of {certificates.height} replies that they found, by up to "
            f"{_gains(moved).max():.3g}."
        )
        findings.append(Finding(text=text))
    return findings


def _allowed(study: Study, certified: pl.DataFrame) -> str:
    """Of how many tokens the swaps are: "8,142 allowed tokens (of 49,152)"."""
    sizes = dict(study.described.select("model", "vocabulary").iter_rows())
    counts = certified.select(
        allowed=pl.col("swaps") // pl.col("sweeps") + 1,
        size=pl.col("model").replace_strict(sizes, default=None),
    )
    said = [
        f"{allowed:,} allowed tokens" + (f" (of {size:,})" if size else "")
        for allowed, size in counts.unique().sort("allowed", "size").iter_rows()
    ]
    return " or ".join(said)


def _found_more(study: Study, certified: pl.DataFrame) -> str:
    """The largest lead over a certified reply of another search for the same; "" for none."""
    searches = study.tables["searches"].select(*_SOUGHT, "method", "seed", found="reward")
    other = (pl.col("method_found").str.strip_suffix(ASCENT) != pl.col("method")) | (
        pl.col("seed_found") != pl.col("seed")
    )
    sign = pl.when(direction="max").then(1).otherwise(-1)
    beside = certified.filter(pl.col("target").is_null()).join(
        searches, on=_SOUGHT, how="inner", suffix="_found"
    )
    more = beside.with_columns(lead=sign * (pl.col("found") - pl.col("reward"))).filter(
        other, pl.col("lead") > 0
    )
    if not more.height:
        return ""
    row = more.sort("lead", *_SOUGHT, descending=[True, False, False, False]).row(0, named=True)
    found, reward = (style.minus(f"{row[name]:.3g}") for name in ("found", "reward"))
    return (
        f" Another search of {study.names[row['model']]} under “{row['prompt']}” found {found}, "
        f"where the certified reply has {reward}: no swap of one token leads there."
    )


def _gains(moved: pl.DataFrame) -> Array:
    """How much better swaps made each reply; with a target, how much closer: float64 [rows]."""
    after, before = (moved[name].to_numpy().astype(float) for name in ("reward", "searched_reward"))
    target = moved["target"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    closer = np.abs(before - target) - np.abs(after - target)
    gains: Array = np.where(np.isnan(target), np.abs(after - before), closer)
    return gains


def _of(count: int, every: int) -> str:
    if every == 1:
        return "The one reply that was put to the test is"
    return (
        f"{count} of the {every} replies that were put to the test {'is' if count == 1 else 'are'}"
    )


def certificate_blocks(study: Study) -> list[Block]:
    """The findings of certificates, what is open, and their table."""
    certificates = study.tables.get("sequence_certificates")
    if certificates is None:
        return []
    said = [Text(finding.text) for finding in certified_findings(study)]
    open_ended = certificates.filter(~pl.col("certified"))
    if open_ended.height:
        better = open_ended.filter(pl.col("best_gain") > pl.col("margin")).height
        said.append(
            Text(
                f"The budget of sweeps ended before {open_ended.height} of {certificates.height} "
                "replies could be certified"
                + (f"; of {better} a swap is known that improves it." if better else "."),
                "note",
            )
        )
    how = Text(
        "A sweep scores every allowed token at one position. A swap improves a reply if it gains "
        "more than the margin, the self-check’s tolerance, which is above the noise between "
        "batches.",
        "how",
    )
    file, title = "sequence_certificates.csv", "Does a swap of one token improve the reply?"
    targets = certificates["target"].null_count() < certificates.height
    columns = [each for each in _CERTIFIED if targets or each[0] != "target"]
    return [Heading(title), *said, *rows(certificates, columns, file), how]


_SOUGHT = ("model", "prompt", "direction")
_MOST_ROWS = 40  # replies in the heat map
_MATRIX: tuple[Column, ...] = (
    ("source", "sought for", "model"),
    ("source_prompt", "under", "text"),
    ("direction", "direction", "text"),
    ("method", "method", "text"),
    ("text", "text", "token"),
    ("length", "tokens", "count"),
    ("target", "scored by", "model"),
    PROMPT,
    ("reward", "reward", "number"),
    ("standardised", "sd", "fixed"),
)
_CERTIFIED: tuple[Column, ...] = (
    MODEL,
    PROMPT,
    ("direction", "direction", "text"),
    ("method", "method", "text"),
    ("seed", "seed", "count"),
    ("certified", "certified", "bool"),
    ("target", "target reward", "number"),
    ("searched_reward", "found by the search", "number"),
    ("reward", "after swaps", "number"),
    ("ascent_steps", "swaps taken", "count"),
    ("swaps", "swaps scored", "count"),
    ("best_gain", "best swap’s gain", "number"),
    ("margin", "margin", "number"),
    ("rejected", "better, but cannot be typed", "count"),
    ("text", "text", "token"),
)
