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
from analysis.figures.transfer_map import transfer_map
from analysis.measures.transfer import SEARCH, TOGETHER, summary
from analysis.sentences import decimals
from analysis.study import Study


def matrix_blocks(study: Study) -> list[Block]:
    """The transfer matrix: a sentence on universal replies, a heat map, and the table."""
    matrix = study.tables.get("sequence_matrix")
    if matrix is None:
        return []
    blocks: list[Block] = [Heading("Every found reply under every model and prompt")]
    blocks += [Text(finding.text) for finding in universal_findings(matrix)]
    known = matrix.filter(pl.col("standardised").is_not_null())
    if known.height:
        firsts = known.select(SEARCH).unique(maintain_order=True).head(_MOST_ROWS)
        shown = known.join(firsts, on=SEARCH, how="semi", maintain_order="left")
        text = (
            "Each row is a reply, sought high (↑) or low (↓) for the model named, or for all "
            "together; each column scores its text. Numbers: rewards in standard deviations of the "
            "column’s single tokens from their mean."
        )
        blocks.append(Picture("sequence_matrix", text, partial(transfer_map, shown, study.names)))
    return [*blocks, *rows(matrix, _MATRIX, "sequence_matrix.csv")]


def universal_findings(matrix: pl.DataFrame | None) -> list[Finding]:
    """Where a reply sought for all beats, over all, each that was sought for one."""
    if matrix is None:
        return []
    found, every = [], summary(matrix)
    for direction, word in (("max", "high"), ("min", "low")):
        own = every.filter(pl.col("direction") == direction, pl.col("targets") > 1)
        universal = own.filter(pl.col("source") == TOGETHER)
        single = own.filter(pl.col("source") != TOGETHER)
        if not universal.height or not single.height:
            continue
        best, other = (
            f.sort("mean", descending=True).row(0, named=True) for f in (universal, single)
        )
        if best["mean"] > other["mean"] and best["targets"] == other["targets"]:
            sign = 1 if direction == "max" else -1
            ours, theirs = (decimals(sign * row["mean"]) for row in (best, other))
            text = (
                f"One reply for all: sought {word} for several models or prompts together, "
                f"“{best['text']}” has a mean reward of {ours} sd over {best['targets']} of them; "
                f"the best that was sought for one has {theirs}."
            )
            found.append(Finding(text=text))
    return found


def certified_findings(certificates: pl.DataFrame | None) -> list[Finding]:
    """That swaps of one token improve no found reply, or that they improved some."""
    if certificates is None:
        return []
    findings, sure = [], certificates.filter("certified")
    moved = certificates.filter(pl.col("ascent_steps") > 0)
    if sure.height:
        text = (
            f"{_of(sure.height, certificates.height)} certified: every swap of a single token was "
            f"scored ({sure['swaps'].sum():,} rewards), and none improves the reply."
        )
        findings.append(Finding(text=text))
    if moved.height:
        gain = np.abs(moved["reward"].to_numpy() - moved["searched_reward"].to_numpy()).max()
        text = (
            f"The searches had stopped short: swaps of single tokens improved "
            f"{moved.height} of {certificates.height} replies that they found, by up to {gain:.3g}."
        )
        findings.append(Finding(text=text))
    return findings


def _of(count: int, every: int) -> str:
    if every == 1:
        return "The one reply that was put to the test is"
    return (
        f"{count} of the {every} replies that were put to the test {'is' if count == 1 else 'are'}"
    )


def certificate_blocks(certificates: pl.DataFrame | None) -> list[Block]:
    """The findings of certificates, what is open, and their table."""
    if certificates is None:
        return []
    said = [Text(finding.text) for finding in certified_findings(certificates)]
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
    return [Heading(title), *said, *rows(certificates, _CERTIFIED, file), how]


_MOST_ROWS = 40  # replies in the heat map
_MATRIX: tuple[Column, ...] = (
    ("source", "sought for", "model"),
    ("source_prompt", "under", "text"),
    ("direction", "direction", "text"),
    ("method", "method", "text"),
    ("text", "text", "token"),
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
    ("searched_reward", "found by the search", "number"),
    ("reward", "after swaps", "number"),
    ("ascent_steps", "swaps taken", "count"),
    ("swaps", "swaps scored", "count"),
    ("best_gain", "best swap’s gain", "number"),
    ("margin", "margin", "number"),
    ("rejected", "better, not typed so", "count"),
    ("text", "text", "token"),
)
