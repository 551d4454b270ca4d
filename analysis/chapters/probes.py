"""Probes: what edits of the style of pairs' replies change in their rewards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import polars as pl

from analysis.blocks import Block, Finding, Picture, Text
from analysis.charts.estimates import estimates
from analysis.measures.probes import EDIT, PROBES, effects, sure
from analysis.sentences import bounds, count, decimals, listed
from analysis.study import Analysis, Study, Table, table
from analysis.words.edits import EDITS

_NONE = (
    "No edited replies were scored; `assay score --items=<pairs> --probes`, or `assay report` with "
    "the same flag, does it."
)


def _tables(study: Study) -> Iterator[Table]:
    run = study.run
    lists = sorted({name for name, _ in run.probes.keys() & run.conversations.keys()})
    by_list = (effects(run, name, study.models) for name in lists)
    yield table(PROBES.name, make=lambda: PROBES.concat(by_list), why=_NONE)


def _drawn(study: Study) -> Iterator[Block]:
    measured = study.tables[PROBES.name]
    for (name,), rows in measured.group_by("list", maintain_order=True):
        caption = (
            f"{name}: mean change of the reward by an edit of the reply, in the model’s median "
            "margin, with 95 % intervals. The first rows change nothing that a reader sees: they "
            "are the noise."
        )
        draw = partial(
            estimates,
            rows,
            study.names,
            label="effect of the edit, median margins",
            value="effect",
            row="probe",
        )
        yield Picture(f"probes_{name}", caption, draw)
    if missing := [f"“{name}”" for name in EDITS if name not in measured["probe"]]:
        yield Text(f"No reply had anything to edit for {listed(missing)}.", "note")
    yield from PROBES.rows(measured, unfolded=True)


def _told(study: Study) -> Iterator[Finding]:
    """Of each model, the edit that changes its rewards most, where one is surely beyond noise."""
    measured = study.tables[PROBES.name]
    strongest = sure(measured).unique(["model", "list"], keep="first", maintain_order=True)
    size = pl.col("effect").abs()
    for row in strongest.sort(size, descending=True, maintain_order=True).iter_rows(named=True):
        effect, ends = row["effect"], bounds(row["ci_low"], row["ci_high"])
        text = (
            f"“{row['probe']}” {'raises' if effect > 0 else 'lowers'} the rewards of "
            f"{study.names[row['model']]} most: by {decimals(abs(effect))} times its median margin "
            f"on “{row['list']}” (95 % {ends})"
        )
        if row["pairs"]:
            share = f"{100 * row['flips']:.1f} %"
            text += (
                f"; of the {count(row['pairs'], 'pair')} whose rejected reply it changes, {share} "
                "change order if only that reply is edited"
            )
        yield Finding(text=f"{text}.", picture=f"probes_{row['list']}")


def _described(study: Study) -> str:
    measured = study.tables[PROBES.name]
    models, edits = measured["model"].n_unique(), measured.filter(kind=EDIT)["probe"].n_unique()
    return (
        f"None of {count(edits, 'edit')} surely changes the rewards of "
        f"{'the model' if models == 1 else count(models, 'model')} by more than the noise."
    )


ANALYSIS = Analysis(
    id="probes",
    title="What style buys",
    label="Style",
    lead="How much do edits that leave what a reply says change its reward?",
    make=_tables,
    every_prompt=True,
    parts=(_drawn,),
    told=(_told,),
    described=_described,
    caveats=lambda study: (
        "An edit changes more than its name says: most of them also change the length of a reply.",
        "An effect says what the model does, and not whether people would do otherwise.",
        "Sentences are split by rules, and the added ones are English.",
    ),
)
