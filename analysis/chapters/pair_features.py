"""What the replies of pairs differ in, and whom it pleases more: people or the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Picture
from analysis.charts.estimates import estimates
from analysis.columns import LIST, MODEL, Column, P, Spec, ends, q
from analysis.measures.pairs import NO_PAIRS, SIDES
from analysis.sentences import bounds, count, significant
from analysis.statistics import Array
from analysis.statistics.inference import paired_difference, sign_test
from analysis.statistics.regression import ols
from analysis.study import Analysis, Study, Table, table
from analysis.words.stems import dense_numbers

LEAST = 20  # Pairs that differ in a feature.
MOST_WORDS = 100  # The most frequent ones.
_WORD = r"[\p{L}\p{M}][\p{L}\p{M}'’-]*"
_FIRST = rf"^\s*({_WORD}|\d+|[^\w\s]+)"
LONGER = "is longer"
# Feature -> what is counted in both replies; "": characters.
COUNTS = {
    "has more bullets": r"(?m)^[ \t]*[-*•+] ",
    "has more headings": r"(?m)^#{1,6} ",
    "has more bold phrases": r"\*\*[^*\n]+\*\*",
    "has more code": r"```|`[^`\n]+`",
    "has more digits": r"\d",
    "has more question marks": r"\?",
    "has more exclamation marks": "!",
    "has more line ends": r"\n",
    LONGER: "",
}
_SHOWN = 8  # Features of each model in the chart.

FEATURES = Spec(
    "pair_features",
    (
        *(MODEL, LIST, Column("feature", help="of one reply and not, or less, of the other")),
        Column("n", "count", "pairs", f"pairs that differ in it; {LEAST} or more"),
        Column("model_share", "share", "the model prefers it"),
        Column("people_share", "share", "people prefer it", "shares of these pairs"),
        Column("excess", "share", help="the first share less the second"),
        *ends("share", "95 %, paired; pairs of one prompt are resampled together"),
        Column("beyond_length", "share", "beyond length", "the excess at equal length, by OLS"),
        P.but(help="the larger of two: an exact sign test over prompts, and beyond_length of 0"),
        q("model", "list"),
    ),
    title="What it rewards in these pairs",
    help="those that the model prefers more often than people first, the surest first",
)


def features(name: str, judged: pl.DataFrame) -> pl.DataFrame:
    """The table `FEATURES` of a list; `judged` is what `pairs.pairs` returns of every pair."""
    rows, differ = list[tuple[Any, ...]](), None  # Any: cells
    for (model,), part in judged.group_by("model", maintain_order=True):
        differ = [*_differing(part)] if differ is None else differ  # the same pairs in each model
        margins, prompts = part["margin"].to_numpy(), dense_numbers(part["prompt"])
        lengths = [np.log1p(part[f"characters_{side}"].to_numpy()) for side in SIDES]
        longer = lengths[0] - lengths[1]
        own = list[tuple[Any, ...]]()
        for feature, at, sign in differ:
            told = margins[at] != 0  # a tie is no preference
            at, sign = at[told], sign[told]
            if len(at) < LEAST:
                continue
            by_model, people = sign * margins[at] > 0, sign > 0
            clusters = np.unique(prompts[at], return_inverse=True)[1]
            excess, apart = paired_difference(by_model, people, clusters), by_model * 1.0 - people
            beyond, p = _beyond_length(apart, sign * longer[at], clusters)
            beyond, p = (excess.value, 0.0) if feature == LONGER else (beyond, p)
            shares = float(by_model.mean()), float(people.mean())
            numbers = (*shares, *excess[:3], beyond, max(p, sign_test(apart, clusters)))
            own.append((model, name, feature, len(at), *numbers))
        rows += sorted(own, key=_surest)
    return FEATURES.frame(rows)


def _surest(row: Sequence[Any]) -> tuple[bool, float]:  # Any: cells of `FEATURES` before q
    """Where a row stands: an excess above 0 by its p, then one below with the surest last."""
    less, p = row[6] <= 0, np.nan_to_num(row[-1], nan=1.0)
    return less, -p if less else p


def _beyond_length(apart: Array, longer: Array, clusters: Array) -> tuple[float, float]:
    """The mean of `apart` [N] at equal length, and its p.

    `longer` is the log-length of the reply with the feature less the other's. What length does is
    fitted by its sign and its size. NaN where the feature cannot be told from length.
    """
    lengths = np.column_stack([np.sign(longer), longer])[:, [longer.any()] * 2]
    fit = ols(apart, lengths, clusters)
    return float(fit.value[0]), float(fit.p[0])


def _differing(part: pl.DataFrame) -> Iterator[tuple[str, Array, Array]]:
    """Each feature, the pairs that differ in it, and 1 where the chosen reply has it, or more; -1.

    Features that differ in the same pairs in the same way are one, by its first name; but length.
    """
    sides = dict(zip(SIDES, (1, -1), strict=True))
    texts = part.select(*sides, pair=pl.int_range(pl.len()))

    def of(values: dict[str, pl.Expr]) -> pl.DataFrame:
        """Rows of one text a reply or several -> feature, pair and sign of those that differ."""
        by_side = [
            texts.select("pair", feature=values[side], sign=pl.lit(sign)).explode("feature")
            for side, sign in sides.items()
        ]
        rows = pl.concat(by_side).drop_nulls().group_by("pair", "feature").agg(pl.col("sign").sum())
        return rows.filter(pl.col("sign") != 0)

    begins = {side: pl.concat_list(pl.col(side).str.extract(_FIRST)) for side in sides}
    held = {side: _words(side) for side in sides}
    counted = [
        texts.select(
            "pair", feature=pl.lit(feature), sign=_count("chosen", p) - _count("rejected", p)
        )
        for feature, p in COUNTS.items()
    ]
    first = of(begins).with_columns(feature=pl.format("begins with “{}”", "feature"))
    last = of(held).with_columns(feature=pl.format("has the word “{}”", "feature"))
    seen = set[tuple[bytes, bytes]]()
    for frame in (first, *counted, last):
        differ = frame.filter(pl.col("sign") != 0)
        known = differ.filter(pl.len().over("feature") >= LEAST).sort("pair").group_by("feature")
        frequent = sorted(known, key=lambda group: (-group[1].height, group[0]))
        for (feature,), rows in frequent[:MOST_WORDS]:
            at, sign = rows["pair"].to_numpy(), rows["sign"].sign().cast(pl.Int64).to_numpy()
            if (key := (at.tobytes(), sign.tobytes())) not in seen or feature == LONGER:
                seen.add(key)
                yield str(feature), at, sign


def _count(side: str, pattern: str) -> pl.Expr:
    text = pl.col(side).str
    return (text.count_matches(pattern) if pattern else text.len_chars()).cast(pl.Int64)


def _words(side: str) -> pl.Expr:
    """The words of a text, each once."""
    return pl.col(side).str.to_lowercase().str.extract_all(_WORD).list.unique()


def _tables(study: Study) -> Iterator[Table]:
    by_list = study.tables.of("every_pair")

    def preferred() -> pl.DataFrame:
        return FEATURES.concat(features(name, frame) for (name,), frame in by_list.items())

    why = f"No {LEAST} pairs differ in a feature." if by_list else NO_PAIRS
    yield table(FEATURES.name, make=preferred, why=why)


def sure(table_: pl.DataFrame) -> pl.DataFrame:
    """The rows of `FEATURES` that a model surely prefers more often than people, and than not.

    Random errors bring every share nearer to a half: that alone is no taste of the model.
    """
    more = (pl.col("ci_low") > 0) & (pl.col("model_share") > 0.5)
    return significant(table_.filter(more)).sort("p", maintain_order=True)


def _drawn(study: Study) -> Iterator[Block]:
    all_features = study.tables[FEATURES.name]
    for (name,), frame in all_features.group_by("list", maintain_order=True):
        shown = frame.group_by("model", maintain_order=True).head(_SHOWN)
        label = "preferred by the model, less by people, percentage points"
        draw = partial(estimates, shown, study.names, label, value="excess", row="feature")
        yield Picture(
            f"pair_features_{name}",
            f"{name}: of the pairs that differ in a feature, how much more often the model prefers "
            f"it than people, with 95 % intervals; the {_SHOWN} surest of each model. Those with a "
            "q of .05 or more in the table may be chance, or what length does.",
            partial(draw, panel="name", scale=100),
        )
    yield from FEATURES.rows(all_features, unfolded=True)


def _told(study: Study) -> Iterator[Finding]:
    """What models surely prefer more often than people do, the surest first."""
    for row in sure(study.tables[FEATURES.name]).iter_rows(named=True):
        ends = bounds(100 * row["ci_low"], 100 * row["ci_high"], 0)
        text = (
            f"{study.names[row['model']]} prefers the reply that {row['feature']} in "
            f"{100 * row['model_share']:.0f} % of the {count(row['n'], 'pair')} of “{row['list']}” "
            f"that differ in it, people in {100 * row['people_share']:.0f} % (95 % of the excess: "
            f"{ends} points)."
        )
        yield Finding(text=text, picture=f"pair_features_{row['list']}")


def _described(study: Study) -> str:
    tested = study.tables[FEATURES.name]["feature"].n_unique()
    return f"Of {count(tested, 'feature')}, none is surely preferred more often than by people."


ANALYSIS = Analysis(
    id="pair_features",
    title="What it rewards in your pairs",
    label="In your pairs",
    lead="Which features of replies does a model prefer more often than people do?",
    make=_tables,
    every_prompt=True,
    parts=(_drawn,),
    told=(_told,),
    described=_described,
    caveats=lambda study: (
        "Features go together: a reply with bullets has more line ends. The table does not say "
        "which of them the model reads.",
        "A model with random errors prefers everything nearer to half of the time than people do. "
        "A feature is named above only where the model’s share is above a half, too.",
    ),
)
