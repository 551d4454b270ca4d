"""What the report would find in one model under each of its readings, and what of it changes.

The findings are rows of other chapters' tables, made by those chapters from the run of a reading:
here they are only compared.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from analysis.chapters import distributions, framing, frequency, groups, humans, sentiment, tokens
from analysis.measures.readings import Readings
from analysis.significant_effects import ALPHA
from analysis.statistics.kendall import tau_b
from analysis.study import Chapter, Study
from engine.runs.convention_index import DEFAULT
from engine.runs.schema import Columns

# Chapters in the order of the page, and which of their tables hold findings or lead to them.
_MADE: Sequence[tuple[Chapter, Sequence[str]]] = (
    (tokens, ("shared_vocabulary", "shared_rewards")),
    (distributions, ("moments",)),
    (sentiment, ("sentiment_points", "sentiment_slopes")),
    (frequency.ANALYSIS, ("frequency_points", "frequency_slopes")),
    (framing, ("framing",)),
    (humans.ANALYSIS, ("humans", "humans_correlation")),
    (groups, ("identity",)),
)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of finding: rows of a table, each with an estimate, its interval and its test.

    Attributes:
      name: of the kind.
      table: of another chapter.
      keys: columns that say what a row is of.
      value: column of the estimate; 0 is no effect.
      low: column of the lower end of its 95 % interval.
      high: column of the upper end.
    """

    name: str
    table: str
    keys: Sequence[str]
    value: str
    low: str = "ci_low"
    high: str = "ci_high"


KINDS = (
    Kind("slope of sentiment", "sentiment_slopes", ("prompt", "valence"), "slope"),
    Kind("slope of frequency", "frequency_slopes", ("prompt",), "slope"),
    Kind("r of framing", "framing", ("prompt_a", "prompt_b"), "pearson"),
    Kind(
        "group of people",
        "identity",
        ("prompt", "axis", "group"),
        "contrast",
        low="contrast_low",
        high="contrast_high",
    ),
    Kind("ρ with people", "humans_correlation", ("list", "prompt"), "spearman"),
    Kind("skewness", "moments", ("prompt",), "skewness", "skewness_low", "skewness_high"),
)
ORDER, TOP, BOTTOM = "order of groups", "highest tokens", "lowest tokens"
REVERSED, LOST, GAINED, OTHER, ABSENT = "reversed", "lost", "gained", "other", "absent"

_ROW: Columns = {
    **dict.fromkeys(("finding", "of"), pl.String),
    **dict.fromkeys(("value", "low", "high", "q"), pl.Float64),
    "sure": pl.Boolean,
}
_KEYS: Columns = {**dict.fromkeys(("model", "reading"), pl.String), "noise": pl.Boolean}
FINDINGS: Columns = {
    **_KEYS,
    **_ROW,
    **{f"default_{name}": kind for name, kind in _ROW.items() if name not in ("finding", "of")},
    "outside": pl.Boolean,
    "change": pl.String,
    "as_noise": pl.Boolean,
}
_COMPARED = [name for name in FINDINGS if name not in (*_KEYS, "as_noise")]


def findings_table(study: Study, found: Readings, agreement: pl.DataFrame) -> pl.DataFrame:
    """The table `conventions_findings.csv`: every finding under every reading.

    Args:
      study: for its settings.
      found: the readings.
      agreement: `conventions_readings.csv`.

    Returns:
      model, reading, noise (whether it is the noise floor's), finding (its kind), of; value, low,
      high (95 %), q, sure; the same of the default reading (default_value, …; null where only the
      other has the finding, and then default_sure is false); outside (value lies
      outside the default's interval), change (`reversed`: sure under both, with other signs;
      `lost`, `gained`: sure under one; `other`: an order, or a set of tokens, that is not the
      default's; `absent`: the reading has no such estimate; "" for none), as_noise (the noise floor
      changes it too; of an order or a set, as far).
    """
    frames = [pl.DataFrame(schema=FINDINGS).drop("as_noise")]
    for model in found.models():
        default = _effects(study, found, DEFAULT, model)
        for name, entry in found.computed(model).items():
            own = _effects(study, found, name, model)
            rows = pl.concat([_beside(default.rows, own.rows), _orders(default, own)])
            keys = {"model": model, "reading": name, "noise": entry.noise}
            frames.append(_with_keys(rows, keys))
    frames.append(_sets(agreement))
    return _with_noise(pl.concat(frames)).select(list(FINDINGS))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Effects:
    """The findings of one model under one reading.

    Attributes:
      rows: one per finding (`_ROW`).
      groups: `identity.csv`; None where there is none.
    """

    rows: pl.DataFrame
    groups: pl.DataFrame | None


def _effects(study: Study, found: Readings, reading: str, model: str) -> _Effects:
    """Findings of a model under a reading, as the chapters of a report of it alone make them."""
    own = Study(run=found.run_of(reading, model), infos=study.infos, settings=study.settings)
    for chapter, names in _MADE:
        for wanted in chapter.tables(own):
            if wanted.key[0] in names:
                own.tables.add(wanted)
    frames = [pl.DataFrame(schema=_ROW)]
    for kind in KINDS:
        table = own.tables.get(kind.table)
        if table is not None and table.height:
            frames.append(_rows(table, kind))
    return _Effects(rows=pl.concat(frames), groups=own.tables.get("identity"))


def _rows(table: pl.DataFrame, kind: Kind) -> pl.DataFrame:
    """The rows of a table as findings; those without an estimate or a test are left out."""
    return (
        table.filter(pl.col(kind.value).is_not_nan(), pl.col("q").is_not_nan())
        .select(
            finding=pl.lit(kind.name),
            of=pl.concat_str(list(kind.keys), separator=" · "),
            value=kind.value,
            low=kind.low,
            high=kind.high,
            q="q",
            sure=pl.col("q") < ALPHA,
        )
        .cast(pl.Schema(_ROW))
    )


def _beside(default: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """The findings of the default reading and of another, side by side; either may be absent."""
    keys = ["finding", "of"]
    named = {name: f"{name}_d" for name in _ROW if name not in keys}
    joined = default.rename(named).join(
        own, on=keys, how="full", coalesce=True, validate="1:1", maintain_order="left_right"
    )
    joined = joined.with_columns(pl.col("sure_d").fill_null(value=False))
    both = pl.col("sure") & pl.col("sure_d")
    turned = both & (pl.col("value").sign() != pl.col("value_d").sign())
    change = (
        pl.when(pl.col("value").is_null())
        .then(pl.lit(ABSENT))
        .when(turned)
        .then(pl.lit(REVERSED))
        .when(pl.col("sure_d") & ~pl.col("sure"))
        .then(pl.lit(LOST))
        .when(pl.col("sure") & ~pl.col("sure_d"))
        .then(pl.lit(GAINED))
        .otherwise(pl.lit(""))
    )
    inside = pl.col("value").is_between(pl.col("low_d"), pl.col("high_d"))
    table = joined.with_columns(change=change, outside=~inside)
    return table.rename({new: f"default_{old}" for old, new in named.items()}).select(_COMPARED)


def _orders(default: _Effects, own: _Effects) -> pl.DataFrame:
    """The order of the groups of an axis by their mean percentile: τ with the default's.

    Axes of which no contrast has q below .05 under the default reading have no order.
    """
    rows: list[tuple[str, str, float | None, float]] = []
    if default.groups is not None:
        keys = ["prompt", "axis", "group"]
        differ = (pl.col("q") < ALPHA).any().over("prompt", "axis")
        tested = default.groups.filter(differ).filter(pl.col("p").is_not_nan())
        groups_ = default.groups.clear() if own.groups is None else own.groups
        means = tested.select(*keys, default="mean_percentile").join(
            groups_.select(*keys, own=pl.col("mean_percentile").fill_nan(None)),
            on=keys,
            how="left",
            validate="1:1",
        )
        for (prompt, axis), part in means.sort(keys).group_by(
            "prompt", "axis", maintain_order=True
        ):
            if part.height > 1:
                both = part.drop_nulls("own")
                tau = tau_b(both["default"].to_numpy(), both["own"].to_numpy())
                rows.append((ORDER, f"{prompt} · {axis}", tau if both.height > 1 else None, 1.0))
    return _without_test(rows)


def _sets(agreement: pl.DataFrame) -> pl.DataFrame:
    """How many tokens at each end are the default reading's, as findings."""
    frames = []
    for row in agreement.iter_rows(named=True):
        ends = float(row["ends"])
        own = [
            (name, row["prompt"], float(row[column]), ends)
            for name, column in ((TOP, "top"), (BOTTOM, "bottom"))
        ]
        frames.append(_with_keys(_without_test(own), {n: row[n] for n in _KEYS}))
    schema = {name: kind for name, kind in FINDINGS.items() if name != "as_noise"}
    return pl.concat([pl.DataFrame(schema=schema), *frames])


def _without_test(rows: Sequence[tuple[str, str, float | None, float]]) -> pl.DataFrame:
    """Findings that no test decides.

    Args:
      rows: kind, what it is of, how alike it is (None: the reading has none), what is the same.
    """
    schema = {**{n: FINDINGS[n] for n in ("finding", "of", "value", "default_value")}}
    nothing = {
        f"{of}{name}": pl.lit(None, dtype=pl.Float64)
        for of in ("", "default_")
        for name in ("low", "high", "q")
    }
    changed = (
        pl.when(pl.col("value").is_null())
        .then(pl.lit(ABSENT))
        .when(pl.col("value") < pl.col("default_value"))
        .then(pl.lit(OTHER))
    )
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        **nothing,
        sure=pl.lit(None, dtype=pl.Boolean),
        default_sure=pl.lit(None, dtype=pl.Boolean),
        outside=pl.lit(None, dtype=pl.Boolean),
        change=changed.otherwise(pl.lit("")),
    )
    return frame.select(_COMPARED)


def _with_keys(rows: pl.DataFrame, keys: Mapping[str, object]) -> pl.DataFrame:
    columns = {name: pl.lit(value) for name, value in keys.items()}
    return rows.with_columns(**columns).select([*_KEYS, *_COMPARED])


def _with_noise(table: pl.DataFrame) -> pl.DataFrame:
    """`as_noise`: whether the noise floor of the model changes a finding too, in whatever way.

    Of an order or a set of tokens, whether it changes it as far.
    """
    keys = ["model", "finding", "of"]
    floor = table.filter("noise", pl.col("change") != "")
    floor = floor.group_by(keys).agg(floor=pl.col("value").min(), moves=pl.lit(value=True))
    joined = table.join(floor, on=keys, how="left", validate="m:1", maintain_order="left")
    as_far = (pl.col("change") != OTHER) | (pl.col("value") >= pl.col("floor"))
    alike = (pl.col("change") != "") & pl.col("moves") & as_far
    return joined.with_columns(as_noise=alike.fill_null(value=False)).drop("floor", "moves")


def changes(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of `conventions_findings.csv` that change by more than the noise floor does."""
    return table.filter(~pl.col("noise"), pl.col("change") != "", ~pl.col("as_noise"))


def survival(table: pl.DataFrame) -> dict[str, int]:
    """How many findings that a test decides keep sign and significance under every reading.

    Args:
      table: `conventions_findings.csv`.

    Returns:
      sure (under the default reading), kept (of these, under every reading), reversed, lost, absent
      (of the sure, under some reading; one may be both reversed and lost), gained (not sure under
      the default reading, and sure under some). Changes that the noise floor makes too do not
      count.
    """
    kinds = (REVERSED, LOST, ABSENT, GAINED)
    own = table.filter(~pl.col("noise"), pl.col("default_sure").is_not_null())
    told = own.group_by("finding", "model", "of").agg(
        sure=pl.col("default_sure").first(),
        **{kind: (~pl.col("as_noise") & (pl.col("change") == kind)).any() for kind in kinds},
    )
    told = told.with_columns(pl.col(ABSENT) & pl.col("sure"))
    told = told.with_columns(kept=pl.col("sure") & ~pl.any_horizontal(REVERSED, LOST, ABSENT))
    return {name: int(told[name].sum()) for name in ("sure", "kept", *kinds)}


def examples(table: pl.DataFrame) -> Iterator[dict[str, object]]:
    """Changed findings that a test decides, the clearest first.

    Reversals come first, then those whose estimate leaves the default's interval; among them the
    one whose larger q (of both, for a reversal; of the sure one otherwise) is lowest.
    """
    decided = changes(table).filter(pl.col("change").is_in((REVERSED, LOST, GAINED)))
    both = pl.max_horizontal("q", "default_q")
    order = decided.with_columns(
        kind=pl.col("change").replace_strict({REVERSED: 0, LOST: 1, GAINED: 1}, default=2),
        inside=~pl.col("outside"),
        clear=pl.when(pl.col("change") == REVERSED)
        .then(both)
        .otherwise(pl.min_horizontal("q", "default_q")),
    ).sort("kind", "inside", "clear", "model", "reading", "finding", "of")
    yield from order.drop("kind", "inside", "clear").iter_rows(named=True)
