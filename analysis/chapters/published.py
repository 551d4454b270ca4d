"""The numbers of Christian et al. 2025 beside the run's, where it holds one of their ten models.

published.csv holds theirs, each with its source. `model` and `other` are slugs; `other` may also be
`human`, a valence or an item. A number is compared only where the run has the
same quantity: over the same models, words and items.
"""

import functools
import pathlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Text, notes
from analysis.columns import MODEL, PROMPT, Column, Spec
from analysis.study import Absent, Analysis, Study, Table, required, table
from engine.csv_files import read_csv

VALUES = Spec(
    "published",
    (
        Column("exhibit", help="a table or figure of Christian et al. 2025"),
        *(Column("quantity"), PROMPT, MODEL.but(help="slug; empty where it is of several")),
        Column("other", "model", help="slug, `human`, a valence, or an item"),
        Column("paper", "number", "the paper"),
        Column("ours", "number", "this run"),
        Column("difference", "number", help="ours − paper"),
        Column(
            "noise",
            "number",
            help="two values this close may be the same number: half a unit of the last printed "
            "digit, or what reading a figure allows",
        ),
        Column("source", help="where the paper's number is from"),
    ),
)
ELO = "elo_greatest"  # prompt
_FILE = pathlib.Path(__file__).with_suffix(".csv")
_RANKS = 4  # columns of `humans_ranks` before those of the models
_OF_SHARED = ("Table 3", "Figure 2A", "Figure A1")
_OF_ITEMS = ("Figure 5A", "Figure 5B", "Figure A5")
_OF_ALL = ("rank_gap", "first", "mean_kendall")  # over the ten models' ranks of the items


@functools.cache
def read() -> pl.DataFrame:
    """The paper's numbers: the columns of `VALUES` without ours and difference."""
    cells = read_csv(_FILE.read_bytes()).fill_null("")
    return cells.with_columns(pl.col("paper", "noise").cast(pl.Float64))


def ten() -> frozenset[str]:
    """Slugs of the paper's ten models."""
    return frozenset(read().filter(exhibit="Table 3")["model"])


def _tables(study: Study) -> Iterator[Table]:
    yield table(VALUES.name, make=partial(_compared, study))


def left_out(study: Study) -> dict[str, str]:
    """Exhibit -> why the run's numbers are of another quantity than the paper's."""
    options, reasons = study.options, {}
    if {*study.scored} != ten():
        why = "they are over the tokens that the ten models share, and no other models"
        reasons |= dict.fromkeys(_OF_SHARED, why)
    if not options.frequency or options.frequency_join != "paper":
        reasons["Figure 3D"] = (
            "it needs the BNC word list (`analyze.options.frequency`) and `frequency_join=paper`"
        )
    if options.humans_matches or not options.humans_in_median:
        why = "they need `analyze.options.humans_matches=0` and `humans_in_median=True`"
        reasons |= dict.fromkeys(_OF_ITEMS, why)
    elif not _items(study):
        why = "they need the EloEverything items, with people’s ranks, as one list"
        reasons |= dict.fromkeys(_OF_ITEMS, why)
    return reasons


def _compared(study: Study) -> pl.DataFrame:
    if not ten() & {*study.models}:
        raise Absent("No model of the paper was scored.")
    absent, rows = left_out(study), []
    for row in read().iter_rows(named=True):
        ours = None if row["exhibit"] in absent else _ours(study, row)
        if ours is not None:
            rows.append({**row, "ours": ours, "difference": ours - row["paper"]})
    return required(VALUES.frame(rows), "No number of the paper is one of this run’s.")


def _ours(study: Study, row: Mapping[str, Any]) -> float | None:  # Any: cells of `read`
    """The run's number for a row of `read`; None where it has none."""
    made, quantity, other = study.tables, row["quantity"], row["other"]
    keys = {"prompt": row["prompt"], **({"model": row["model"]} if row["model"] else {})}
    match row["exhibit"]:
        case "Table 3":
            return _cell(made.get("moments"), quantity, keys)
        case "Figure 2A" | "Figure A1":
            name = "kendall_tau" if quantity == "kendall" else quantity
            return _cell(made.get(name, row["prompt"]), other, {"model": row["model"]})
        case "Figure 3C":
            return _cell(made.get("sentiment_slopes"), "slope", {**keys, "valence": other})
        case "Figure 3D":
            return _cell(made.get("frequency_slopes"), "slope", keys)
    listed = {"list": _items(study), **keys}
    if quantity == "spearman":
        return _cell(made.get("humans_correlation"), quantity, listed)
    ranks = made["humans_ranks", listed["list"], ELO]
    models = ranks.columns[_RANKS:]
    if quantity in _OF_ALL and {*models} != ten():
        return None
    if quantity == "rank_gap":
        return _cell(made.get("humans_gap"), "gap", {**listed, "item": other})
    if quantity == "first":
        return float((ranks.filter(item=other).select(models).to_numpy() == 1).sum())
    square = made["humans_kendall", listed["list"], ELO]
    if quantity == "mean_kendall":
        taus = square.filter(pl.col("model") != "human").select(models).to_numpy()
        return float(taus[np.triu_indices(len(models), 1)].mean())
    return _cell(square, other, {"model": row["model"]})


def _cell(frame: pl.DataFrame | None, column: str, keys: Mapping[str, str]) -> float | None:
    """The number of the one row; None where there is no such row or column, or it is no number."""
    if frame is None or column not in frame.columns:
        return None
    values = frame.filter(**keys)[column].head(1).fill_nan(None).drop_nulls()
    return float(values[0]) if len(values) else None


def _items(study: Study) -> str:
    """The list that holds the items of Figure 5B, ranked by people; "" for none or several."""
    figure_items = {*read().filter(exhibit="Figure 5B")["other"]}
    ranked_lists = study.tables.of("humans_ranks").items()
    lists = [
        key[0] for key, ranks in ranked_lists if key[1] == ELO and figure_items <= {*ranks["item"]}
    ]
    return lists[0] if len(lists) == 1 else ""


def _drawn(study: Study) -> Iterator[Block]:
    values = study.tables.get(VALUES.name)
    if not ten() & {*study.models}:  # the section is not shown
        return
    exhibits: dict[str, list[str]] = {}
    for exhibit, why in left_out(study).items():
        exhibits.setdefault(why, []).append(exhibit)
    reasons = [f"Not compared: {', '.join(names)}: {w}." for w, names in exhibits.items()]
    if values is None:
        yield from notes([" ".join([study.tables.reason(VALUES.name) or "", *reasons])])
        return
    yield from VALUES.rows(values)
    yield from notes(reasons)
    yield Text(
        "Noise is how far two values may be apart and still be the same number: half a unit of the "
        "last printed digit, or ±0.005 where it was read off a figure.",
        "how",
    )


def _described(study: Study) -> str:
    """How many numbers are met, without those that any number near zero would meet."""
    compared = study.tables[VALUES.name].filter(pl.col("paper").abs() > pl.col("noise"))
    met = compared.filter(pl.col("difference").abs() <= pl.col("noise") + 1e-9)
    return (
        f"This run gives {met.height} of the {compared.height} numbers of the paper that differ "
        "from 0, within the noise."
    )


def _caveats(study: Study) -> Iterator[str]:
    yield (
        "The paper’s rewards of seven models are rounded to bfloat16, so that tokens tie; a run’s "
        "are not. `assay reproduce` has the paper’s other conventions."
    )
    modes = {r.identity.mode for (m, _), r in study.run.results.items() if m in ten()}
    if "ids" in modes:
        yield "This run scored tokens as ids; the paper scored their texts."


ANALYSIS = Analysis(
    id="published",
    title="The paper’s numbers",
    lead="Does this run give the numbers of Christian et al. 2025?",
    make=_tables,
    parts=(_drawn,),
    described=_described,
    caveats=lambda study: [*_caveats(study)],
)
