"""What the report would find in one model under each of its readings, and what of it changes.

The findings are rows of other chapters' tables, made by those chapters from the run of a reading:
here they are only compared.
"""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from analysis.chapters import distributions, framing, frequency, humans, sentiment, tokens
from analysis.columns import MODEL, Column, Spec
from analysis.measures.readings import READING, Readings
from analysis.sentences import ALPHA
from analysis.study import Analysis, Study
from engine.runs.convention_index import DEFAULT

# Chapters in the order of the page, and which of their tables hold findings or lead to them.
_MADE: Sequence[tuple[Analysis, Sequence[str]]] = (
    (tokens.ANALYSIS, ("shared_vocabulary", "shared_rewards")),
    (distributions.ANALYSIS, ("moments",)),
    (sentiment.ANALYSIS, ("sentiment_points", "sentiment_slopes")),
    (frequency.ANALYSIS, ("frequency_points", "frequency_slopes")),
    (framing.ANALYSIS, ("framing",)),
    (humans.ANALYSIS, ("humans", "humans_correlation")),
)


class Kind(NamedTuple):
    """A kind of finding: rows of a table, each with an estimate, its interval and its test."""

    name: str
    table: str  # Of another chapter.
    keys: Sequence[str]  # Columns that say what a row is of.
    value: str  # Column of the estimate; 0 is no effect.
    interval: str | None = "ci"  # Start of the names of the columns of its 95 % interval, if any.


KINDS = (
    Kind("slope of sentiment", "sentiment_slopes", ("prompt", "valence"), "slope"),
    Kind("slope of frequency", "frequency_slopes", ("prompt",), "slope"),
    Kind("r of framing", "framing", ("prompt_a", "prompt_b"), "pearson"),
    Kind("ρ with people", "humans_correlation", ("list", "prompt"), "spearman"),
    Kind("skewness", "moments", ("prompt",), "skewness", None),
)
TOP, BOTTOM = "highest tokens", "lowest tokens"
REVERSED, LOST, GAINED, OTHER, ABSENT = "reversed", "lost", "gained", "other", "absent"
_FOUND = ("value", "low", "high", "q", "sure")
_CHANGE = (
    "`reversed`, `lost`, `gained`; `other` for a set of tokens; `absent` where the "
    "reading has no such estimate; empty for none"
)
FINDINGS = Spec(
    "conventions_findings",
    (
        *(MODEL, READING, Column("noise", "bool"), Column("finding", help="its kind")),
        *(Column("of"), Column("value", "number", "then"), Column("low", "number")),
        *(Column("high", "number", help="95 %"), Column("q", "p"), Column("sure", "bool")),
        *(Column("default_value", "number", "by default"), Column("default_low", "number", "from")),
        *(Column("default_high", "number", "to"), Column("default_q", "p", "q")),
        Column("default_sure", "bool"),
        Column("outside", "bool", "outside interval", "the default's interval"),
        Column("change", help=_CHANGE),
        Column("as_noise", "bool", help="the noise floor changes it too, a set as far"),
    ),
    page="model finding of reading change default_value default_low default_high default_q value q "
    "outside",
    title="Findings whose sign or significance a reading changes, or that it cannot compute",
    help="Values are those of a report of the model alone; NaN or empty where no test decides",
)
ROW = {name: FINDINGS.schema[name] for name in ("finding", "of", *_FOUND)}


def findings_table(study: Study, readings: Readings, agreement: pl.DataFrame) -> pl.DataFrame:
    """The table `FINDINGS`: every finding under every reading.

    Where only another reading has a finding, the columns of the default one are null, and
    default_sure is false. `agreement` is `conventions_readings.csv`.
    """
    frames = [FINDINGS.frame([]).drop("as_noise")]
    for model in readings.models():
        default = _effects(study, readings, DEFAULT, model)
        for name, entry in readings.computed(model).items():
            changed = _effects(study, readings, name, model)
            keys = {"model": pl.lit(model), "reading": pl.lit(name), "noise": pl.lit(entry.noise)}
            frames.append(_beside(default, changed).with_columns(**keys))
    frames.append(_sets(agreement))
    return FINDINGS.frame(_with_noise(pl.concat(frames, how="diagonal")))


def _effects(study: Study, readings: Readings, reading: str, model: str) -> pl.DataFrame:
    """Findings of a model under a reading, as the chapters of a report of it alone make them."""
    alone = Study(run=readings.run_of(reading, model), infos=study.infos, settings=study.settings)
    for chapter, names in _MADE:
        for wanted in chapter.make(alone):
            if wanted.key[0] in names:
                alone.tables.add(wanted)
    frames = [pl.DataFrame(schema=ROW)]
    for kind in KINDS:
        table = alone.tables.get(kind.table)
        if table is not None and table.height:
            frames.append(_rows(table, kind))
    return pl.concat(frames)


def _rows(table: pl.DataFrame, kind: Kind) -> pl.DataFrame:
    """The rows of a table as findings; those without an estimate or a test are left out."""
    known = table.filter(pl.col(kind.value).is_not_nan(), pl.col("q").is_not_nan())
    return known.select(
        finding=pl.lit(kind.name),
        of=pl.concat_str(list(kind.keys), separator=" · "),
        value=kind.value,
        low=kind.interval and f"{kind.interval}_low",
        high=kind.interval and f"{kind.interval}_high",
        q="q",
        sure=pl.col("q") < ALPHA,
    ).cast(pl.Schema(ROW))


def _beside(default: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """The findings of the default reading and of another, side by side; either may be absent."""
    keys = ["finding", "of"]
    named = {name: f"default_{name}" for name in ROW if name not in keys}
    joined = default.rename(named).join(
        other, on=keys, how="full", coalesce=True, validate="1:1", maintain_order="left_right"
    )
    joined = joined.with_columns(pl.col("default_sure").fill_null(value=False))
    sure, was, value = pl.col("sure"), pl.col("default_sure"), pl.col("value")
    change = (
        pl.when(value.is_null())
        .then(pl.lit(ABSENT))
        .when(sure & was & (value.sign() != pl.col("default_value").sign()))
        .then(pl.lit(REVERSED))
        .when(was & ~sure)
        .then(pl.lit(LOST))
        .when(sure & ~was)
        .then(pl.lit(GAINED))
        .otherwise(pl.lit(""))
    )
    inside = value.is_between(pl.col("default_low"), pl.col("default_high"))
    return joined.with_columns(change=change, outside=~inside)


def _sets(agreement: pl.DataFrame) -> pl.DataFrame:
    """How many tokens at each end are the default reading's, as findings."""
    ends = agreement.select(
        *("model", "reading", "noise", pl.col("prompt").alias("of")),
        finding=pl.lit([TOP, BOTTOM]),
        value=pl.concat_list(pl.col("top", "bottom").cast(pl.Float64)),
        default_value=pl.col("ends").cast(pl.Float64),
    )
    return _without_test(ends.explode("finding", "value"))


def _without_test(rows: pl.DataFrame) -> pl.DataFrame:
    """Findings that no test decides: whether `value`, how alike it is, is below the default's."""
    changed = (
        pl.when(pl.col("value").is_null())
        .then(pl.lit(ABSENT))
        .when(pl.col("value") < pl.col("default_value"))
        .then(pl.lit(OTHER))
    )
    return rows.with_columns(change=changed.otherwise(pl.lit("")))


def _with_noise(table: pl.DataFrame) -> pl.DataFrame:
    """`as_noise`: whether the noise floor of the model changes a finding too, in whatever way.

    Of a set of tokens, whether it changes it as far.
    """
    keys = ["model", "finding", "of"]
    floor = table.filter("noise", pl.col("change") != "")
    floor = floor.group_by(keys).agg(floor=pl.col("value").min(), moves=pl.lit(value=True))
    joined = table.join(floor, on=keys, how="left", validate="m:1", maintain_order="left")
    as_far = (pl.col("change") != OTHER) | (pl.col("value") >= pl.col("floor"))
    alike = (pl.col("change") != "") & pl.col("moves") & as_far
    return joined.with_columns(as_noise=alike.fill_null(value=False)).drop("floor", "moves")


def changes(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of `FINDINGS` that change by more than the noise floor does."""
    return table.filter(~pl.col("noise"), pl.col("change") != "", ~pl.col("as_noise"))


def survival(table: pl.DataFrame) -> dict[str, int]:
    """How many findings that a test decides keep sign and significance under every reading.

    Changes that the noise floor makes too do not count.

    Returns:
      sure (under the default reading), kept (of these, under every reading), reversed, lost, absent
      (of the sure, under some reading; one may be both reversed and lost), gained (sure under
      another reading alone).
    """
    kinds = (REVERSED, LOST, ABSENT, GAINED)
    decided = table.filter(~pl.col("noise"), pl.col("default_sure").is_not_null())
    told = decided.group_by("finding", "model", "of").agg(
        sure=pl.col("default_sure").first(),
        **{kind: (~pl.col("as_noise") & (pl.col("change") == kind)).any() for kind in kinds},
    )
    told = told.with_columns(pl.col(ABSENT) & pl.col("sure"))
    told = told.with_columns(kept=pl.col("sure") & ~pl.any_horizontal(REVERSED, LOST, ABSENT))
    return {name: int(told[name].sum()) for name in ("sure", "kept", *kinds)}
