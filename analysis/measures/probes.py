"""What edits of style change in the rewards of pairs' replies, beside edits that nobody sees."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from analysis.columns import LIST, MODEL, Column, P, Spec, ends, q
from analysis.measures.pairs import pairs, replies
from analysis.run import Run
from analysis.statistics.inference import clustered, clustered_share, detectable
from analysis.words.edits import SHAMS
from analysis.words.stems import dense_numbers

EDIT, SHAM = "edit", "sham"
PROBES = Spec(
    "probes",
    (
        MODEL,
        LIST,
        Column("kind", help=f"`{SHAM}`: readers see no difference, so its effect is noise"),
        Column("probe", title="edit", help="analysis/words/edits.py"),
        Column("n", "count", "replies", "replies that it changes, chosen and rejected"),
        Column(
            "effect",
            "fixed",
            help="mean reward of the edited replies less that of the replies, in the model’s "
            "median absolute margins on these pairs",
        ),
        *ends("fixed", "95 %, clustered by prompt"),
        P,
        q("model", "list"),
        Column(
            "detectable",
            "fixed",
            "would show",
            "effect that so many pairs show with a probability of 80 % (at p < .05, before q)",
        ),
        Column("beyond_noise", "bool", "beyond noise", "the interval lies beyond those of shams"),
        Column("pairs", "count", help="pairs whose rejected reply it changes"),
        Column("flips", "share", help="of these: another side is preferred if only it is edited"),
        *ends("share", "95 %, clustered by prompt", stem="flips"),
        Column("margin", "number", "median margin", "median absolute margin: the unit"),
    ),
    page="model list kind probe n effect ci_low ci_high q flips beyond_noise detectable",
)


def effects(run: Run, name: str, models: Sequence[str] | None = None) -> pl.DataFrame:
    """The table `PROBES` of the pairs of a list: the shams, then edits, largest effect first.

    Of `models` that scored both the list and its edited replies; by default of all.
    """
    scored = replies(run, name, models)
    judged = pairs(scored).select("model", "row", "prompt", "margin")
    compared = scored.select("model", "row", "side", before="reward")
    several = compared.filter(pl.len().over("model", "row", "side") > 1)
    compared = compared.join(several, on="row", how="anti", maintain_order="left")
    compared = compared.join(judged, on=["model", "row"], validate="m:1", maintain_order="left")
    edited = _edited(run, name)
    compared = edited.join(
        compared, on=["model", "row", "side"], how="inner", validate="m:1", maintain_order="left"
    )
    tables = []
    for (model,), rows in compared.group_by("model", maintain_order=True):
        margins = np.abs(judged.filter(model=model)["margin"].to_numpy())
        measured = PROBES.frame(
            (model, name, *row) for row in _rows(rows, float(np.median(margins)))
        )
        known = measured.select("effect", "ci_low", "ci_high").fill_nan(0.0)
        noise = np.abs(known.filter(measured["kind"] == SHAM).to_numpy()).max(initial=0.0)
        size, last = known["effect"].abs(), measured["kind"] == EDIT
        beyond = (known["ci_low"] > noise) | (known["ci_high"] < -noise)
        measured = measured.with_columns(beyond_noise=beyond)
        tables.append(measured.sort(last, size, descending=[False, True], maintain_order=True))
    return PROBES.concat(tables)


def _rows(compared: pl.DataFrame, unit: float) -> Iterator[tuple[object, ...]]:
    """The columns of `PROBES` behind the list, but for `beyond_noise`; one row per probe."""
    for (probe,), rows in compared.group_by("probe", maintain_order=True):
        change = (rows["reward"] - rows["before"]).to_numpy() / (unit or math.nan)
        prompts, mean = dense_numbers(rows["prompt"]), float(change.mean())
        effect = clustered(mean, change - mean, prompts)
        kind = SHAM if probe in SHAMS else EDIT
        told = (kind, probe, rows.height, *effect, detectable(effect, prompts), None)
        other = rows.filter(side="rejected")
        if not other.height:
            yield (*told, 0, None, None, None, unit)
            continue
        margin = (other["margin"] + other["before"] - other["reward"]).to_numpy()
        flips = (other["margin"].to_numpy() > 0) != (margin > 0)
        share = clustered_share(flips, dense_numbers(other["prompt"]))
        yield (*told, other.height, *share[:3], unit)


def _edited(run: Run, name: str) -> pl.DataFrame:
    """Rewards of the edited replies of a list: model, row, side, probe, reward."""
    wide = run.probe_scores(name)
    probe = pl.col("labels").list.get(0).struct.field("value")
    frames = [
        wide.select(
            "row", "side", probe=probe, model=pl.lit(model), reward=pl.col(model).cast(pl.Float64)
        )
        for scored, model in run.probes
        if scored == name
    ]
    return pl.concat(frames)


def sure(table: pl.DataFrame) -> pl.DataFrame:
    """The edits of `PROBES` whose effects are beyond noise, with q < .05."""
    return table.filter(pl.col("kind") == EDIT, "beyond_noise", pl.col("q").fill_nan(1) < 0.05)


def largest(table: pl.DataFrame, model: str) -> tuple[str, float]:
    """The edit of `sure` with the largest effect on a model, and the effect; ("", 0) for none."""
    first = sure(table).filter(model=model).head(1)
    return (first["probe"].item(), float(first["effect"].item())) if first.height else ("", 0.0)
