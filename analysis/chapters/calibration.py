"""Whether the margins of pairs mean what they say, and how many of them are noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Picture, Text
from analysis.charts.lines import lines
from analysis.columns import LIST, MODEL, Column, Spec, ends
from analysis.measures.pairs import NO_PAIRS
from analysis.run import Run
from analysis.sentences import bounds, count, number, outward
from analysis.statistics import Array, calibration
from analysis.study import Analysis, Study, Table, table
from analysis.words.stems import dense_numbers

_KINDS = ("this model", "margins that are right")
_TITLES = ("share right that the margins say, %", "pairs judged right, %")

CALIBRATION = Spec(
    "calibration",
    (
        *(MODEL, LIST, Column("n", "count", "pairs", "pairs")),
        Column("log_loss", "fixed", "log loss", "mean −log sigmoid(margin): the training loss"),
        *ends("fixed", stem="log_loss"),
        Column("brier", "fixed", "Brier", "mean (1 − sigmoid(margin))²"),
        Column("error", "fixed", "calibration error", "of the bins of calibration_bins.csv"),
        Column("error_by_chance", "fixed", "by chance", "of as many pairs with right margins"),
        Column("temperature", "number", help="the T whose margin / T has the lowest log loss"),
        *ends("number", "95 %; without an upper end where no T is too high", "temperature"),
        Column("noise", "number", help="twice the largest difference of the self-check"),
        Column("within_noise", "count", "within noise", "pairs with a smaller margin"),
    ),
    title="Log loss, calibration and noise",
    help="intervals are clustered by prompt, here and in the next table",
)
RELIABILITY = Spec(
    "calibration_bins",
    (
        *(MODEL, LIST, Column("bin", "count"), Column("n", "count", "pairs", "pairs")),
        *(Column("from_margin", "number", "|margin| from"), Column("to_margin", "number", "to")),
        Column("confidence", "share", "sigmoid(margin)", "mean sigmoid of the size of the margin"),
        Column("accuracy", "share", help="share of pairs judged right; a margin of 0 counts half"),
        *ends("share"),
    ),
    title="By size of the margin",
    help=f"{calibration.BINS} bins of equal numbers of pairs, or fewer, of {calibration.LEAST}",
)
Row: TypeAlias = Mapping[str, Any]  # of `CALIBRATION`; Any: its cells


def calibrated(run: Run, name: str, judged: pl.DataFrame) -> pl.DataFrame:
    """The table `CALIBRATION` of a list; `judged` is what `pairs.pairs` returns of every pair."""
    rows = []
    for model, margins, clusters in _by_model(judged):
        numbers = (
            *calibration.log_loss(margins, clusters)[:3],
            calibration.brier(margins),
            *calibration.calibration_error(margins, clusters),
            *calibration.temperature(margins, clusters)[:3],
        )
        check = run.conversations[name, model].self_check
        noise = (check.noise, int((np.abs(margins) < check.noise).sum())) if check else (None, None)
        rows.append((model, name, len(margins), *numbers, *noise))
    return CALIBRATION.frame(rows)


def _reliability(name: str, judged: pl.DataFrame) -> pl.DataFrame:
    return RELIABILITY.frame(
        (model, name, place, *numbers, *right[:3])
        for model, *sides in _by_model(judged)
        for place, (*numbers, right) in enumerate(calibration.bins(*sides), 1)
    )


def _by_model(judged: pl.DataFrame) -> Iterator[tuple[str, Array, Array]]:
    """Each model, the margins of its pairs, and the number of the prompt of each."""
    for (model,), part in judged.group_by("model", maintain_order=True):
        yield str(model), part["margin"].to_numpy(), dense_numbers(part["prompt"])


def _tables(study: Study) -> Iterator[Table]:
    by_list = [(name, frame) for (name,), frame in study.tables.of("every_pair").items()]

    def summary() -> pl.DataFrame:
        return CALIBRATION.concat(calibrated(study.run, *entry) for entry in by_list)

    def by_margin() -> pl.DataFrame:
        return RELIABILITY.concat(_reliability(*entry) for entry in by_list)

    yield table(CALIBRATION.name, make=summary, why=NO_PAIRS)
    yield table(RELIABILITY.name, make=by_margin)


def _drawn(study: Study) -> Iterator[Block]:
    summary, by_margin = study.tables[CALIBRATION.name], study.tables[RELIABILITY.name]
    shares = ("accuracy", "ci_low", "ci_high")
    for (name,), frame in by_margin.group_by("list", maintain_order=True):
        right = frame.with_columns(pl.col("confidence").alias(key) for key in shares)
        labelled = zip((frame, right), _KINDS, strict=True)
        shown = pl.concat(part.with_columns(line=pl.lit(kind)) for part, kind in labelled)
        shown = shown.with_columns(pl.col("confidence", *shares) * 100)
        caption = (
            f"{name}: pairs by size of the margin, in bins of equal numbers. How often the reply "
            "with the higher reward is the one that people chose, with 95 % intervals, against "
            "sigmoid(margin). Below the dashed line margins are too sure."
        )
        keys: dict[str, Any] = {"x": "confidence", "y": shares[0], "band": shares[1:]}
        points = shown.filter(line=_KINDS[0])
        draw = partial(lines, shown, study.names, _TITLES, **keys, dashed="line", points=points)
        yield Picture(f"calibration_{name}", caption, partial(draw, form="fixed"))
    for row in summary.drop_nulls("noise").iter_rows(named=True):
        yield Text(f"{study.names[row['model']]}, {row['list']}: {_noise(row)}.")
    yield from CALIBRATION.rows(summary)
    yield from RELIABILITY.rows(by_margin)


def _noise(row: Row) -> str:
    pairs = f"{row['within_noise']:,} of {count(row['n'], 'pair')}"
    return f"gaps below {number(row['noise'], '{:.2g}')} are within the noise of the check: {pairs}"


def _sureness(row: Row) -> str:
    """By what factor margins are too large, or too small, in words; "" if it may be 1."""
    value, low, high = (row[f"temperature{end}"] for end in ("", "_low", "_high"))
    if low > 1:
        ends = bounds(low, high) if math.isfinite(high) else f"{outward(low, False, 2):.2f} or more"
        return f"{number(value, '{:.2g}')} times too large (95 % {ends})"
    if high < 1:
        factor, ends = number(1 / value, "{:.2g}"), bounds(1 / high, 1 / low)
        return f"{factor} times too small (95 % {ends})"
    return ""


def in_a_line(row: Row) -> str:
    """A row of `CALIBRATION` for a terminal: log loss, temperature, and noise where it is known."""
    sure = f"margins are {sureness}" if (sureness := _sureness(row)) else ""
    noise = _noise(row) if row["noise"] is not None else ""
    parts = (f"{row['model']}: log loss {row['log_loss']:.3f}", sure, noise)
    return "; ".join(filter(None, parts))


def _told(study: Study) -> Iterator[Finding]:
    """Whose margins are surely too large or too small, the furthest first."""
    far = pl.col("temperature").log().abs()
    summary = study.tables[CALIBRATION.name].sort(far, descending=True, maintain_order=True)
    for row in summary.iter_rows(named=True):
        if sure := _sureness(row):
            name, listed = study.names[row["model"]], row["list"]
            text = f"To be the log-odds of the choices in “{listed}”, the margins of {name} are"
            yield Finding(text=f"{text} {sure}.", picture=f"calibration_{listed}")


def _described(study: Study) -> str:
    models = study.tables[CALIBRATION.name]["model"].n_unique()
    return f"No margins of {count(models, 'model')} are surely too large or too small."


ANALYSIS = Analysis(
    id="calibration",
    title="Does a margin mean what it says",
    label="Calibration",
    lead="Is the reply with the higher reward chosen as often as sigmoid(margin) says?",
    make=_tables,
    every_prompt=True,
    parts=(_drawn,),
    told=(_told,),
    described=_described,
    caveats=lambda study: (
        "Margins mean probabilities for rewards that were trained with −log sigmoid(margin) alone. "
        "For others the temperature only says their unit.",
        "Noise: a self-check computes a sample of the rewards again by the plain pass: other batch "
        "shape and padding, same dtype. Twice their largest difference is how far two errors of "
        "this size can move a margin; beside a sample of 16, one further row in 17 has a larger "
        "error.",
    ),
)
