"""Which findings survive when a model is read otherwise: another BOS, date, mode, dtype, ….

`assay conventions` computes the readings; docs/conventions.md says what each of them is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from functools import partial

import polars as pl

from analysis.blocks import Block, Finding, Picture, Text
from analysis.chapters import findings_by_reading as by_reading
from analysis.chapters.findings_by_reading import ABSENT, FINDINGS, GAINED, LOST, OTHER, REVERSED
from analysis.charts.estimates import estimates
from analysis.columns import Column, Spec
from analysis.measures import readings
from analysis.measures.readings import AGREEMENT, JUMPS, READING, Readings, label
from analysis.sentences import decimals, listed
from analysis.study import Absent, Analysis, Study, Table, table
from engine.runs.convention_index import DEFAULT

_NONE = "No other readings of the models were scored (assay conventions)."
_TIMES, _ERRORS = 2, 3  # see `_furthest`
_VISIBLE = 0.995  # τ below which it is not printed as 1.00
_JUMPS = 5  # Tokens of each reading, model and prompt.
_COUNTED = (
    (REVERSED, "is reversed", "are reversed"),
    (LOST, "is no longer sure", "are no longer sure"),
    (ABSENT, "cannot be computed", "cannot be computed"),
    (GAINED, "other becomes sure", "others become sure"),
)
SUMMARY = Spec(
    "conventions_summary",
    (
        *(READING, Column("label", title="reading", help="what differs from the default")),
        *(Column("noise", "bool"), Column("models", "count")),
        *(Column("kendall_low", "fixed", "lowest τ"), Column("kendall_high", "fixed", "highest τ")),
        Column("top_low", "share", "highest tokens kept, at least"),
        Column("top_high", "share", "at most", "share of the highest tokens in common"),
        Column("findings", "count", help="that a test decides"),
        *(Column(key, "count") for key in (REVERSED, LOST, GAINED)),
        Column(ABSENT, "count", help="what the noise floor changes too does not count"),
    ),
    page="label models kendall_low kendall_high top_low top_high findings reversed lost gained "
    "absent",
    title="By reading",
)


def _tables(study: Study) -> Iterator[Table]:
    """Four tables, and for the page ("conventions_missing",)."""
    made, tried = study.tables, functools.cache(partial(_tried_readings, study))
    count = study.settings.top
    yield table(AGREEMENT.name, make=lambda: readings.agreement(tried(), count))
    yield table(
        FINDINGS.name,
        make=lambda: by_reading.findings_table(study, tried(), made[AGREEMENT.name]),
    )
    yield table(
        SUMMARY.name,
        make=lambda: summary(made[AGREEMENT.name], made[FINDINGS.name], tried()),
    )
    yield table(JUMPS.name, make=lambda: readings.jumps(tried(), _JUMPS))
    yield table("conventions_missing", make=lambda: missing(tried()), file=False)


def _tried_readings(study: Study) -> Readings:
    tried = readings.readings_of(study.run)
    if tried is None or not any(tried.computed(model) for model in tried.models()):
        raise Absent(_NONE)
    return tried


def summary(agreement: pl.DataFrame, findings: pl.DataFrame, tried: Readings) -> pl.DataFrame:
    """The table `SUMMARY`: one row per reading, over models and prompts."""
    taus = agreement.group_by("reading", "noise", maintain_order=True).agg(
        models=pl.col("model").n_unique(),
        kendall_low=pl.col("kendall").fill_nan(None).min(),
        kendall_high=pl.col("kendall").fill_nan(None).max(),
        top_low=(pl.col("top") / pl.col("ends")).min(),
        top_high=(pl.col("top") / pl.col("ends")).max(),
    )
    decided = findings.filter(pl.col("default_sure").is_not_null())
    kinds = (REVERSED, LOST, GAINED, ABSENT)
    changed = pl.when("as_noise", ~pl.col("noise")).then(pl.lit("")).otherwise("change")
    counts = decided.group_by("reading").agg(
        findings=pl.len(), **{kind: (changed == kind).sum() for kind in kinds}
    )
    named = labels(tried)
    joined = taus.join(counts, on="reading", how="left", validate="1:1", maintain_order="left")
    joined = joined.sort(pl.col("reading").cast(pl.Enum(list(named))))
    return SUMMARY.frame(
        joined.with_columns(
            pl.col("findings", *kinds).fill_null(0), label=pl.col("reading").replace(named)
        )
    )


def missing(tried: Readings) -> pl.DataFrame:
    """Readings without results: model, reading (its label), same_as (label; null), failure."""
    types = dict.fromkeys(("model", "reading", "same_as", "failure"), pl.String)
    named = labels(tried)
    lines = [
        (model, named[name], named.get(entry.same_as or "", entry.same_as), entry.failure)
        for model in tried.models()
        for name, entry in tried.index[model].items()
        if name != DEFAULT and name not in tried.computed(model)
    ]
    return pl.DataFrame(lines, schema=types, orient="row")


def labels(tried: Readings) -> dict[str, str]:
    """Reading -> what of it differs from the default, of all models; the noise floor's last."""
    named: dict[tuple[bool, str], str] = {}
    for entries in tried.index.values():
        for name, entry in entries.items():
            named.setdefault((entry.noise, name), label(entry, entries[DEFAULT]))
    return {name: text for (_, name), text in sorted(named.items(), key=lambda one: one[0][0])}


def _named(study: Study) -> dict[str, str]:
    """Reading -> its label, in the order of the page."""
    return dict(study.tables[SUMMARY.name].select("reading", "label").iter_rows())


def _drawn(study: Study) -> Iterator[Block]:
    """How far the orders under each reading agree with the default's."""
    named, agreement = _named(study), study.tables[AGREEMENT.name]
    order = pl.col("reading").cast(pl.Enum(list(named)))
    shown = agreement.sort(order, maintain_order=True).select(
        *("model", "kendall", pl.col("prompt").replace(study.prompt_names)),
        label=pl.col("reading").replace(named),
    )
    floor = agreement.filter("noise")["kendall"].fill_nan(None).min()
    draw = partial(estimates, shown, study.names, "Kendall’s τ with the default reading")
    counts = agreement["tokens"].unique().sort().to_list()
    tokens = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    yield Text(f"{tokens} tokens of each model are compared under every reading.", "how")
    yield Picture(
        "conventions",
        "How far the order of the tokens under a reading agrees with that under the default one: a "
        "dot for each model and prompt. The line is the noise floor, the lowest τ of the default "
        "reading computed again in other steps or, with several devices, on another mesh. What is "
        "as far right as that changes nothing.",
        partial(draw, value="kendall", row="label", zero=floor, beside=False),
    )
    yield from SUMMARY.rows(study.tables[SUMMARY.name], unfolded=True)


def _changes(study: Study) -> Iterator[Block]:
    """Every finding that a reading changes, what the noise floor is made of, and the jumps."""
    named, over = _named(study), study.tables[SUMMARY.name]
    changed = by_reading.changes(study.tables[FINDINGS.name])
    decided = changed.filter(pl.col("change") != OTHER)
    if not over["noise"].any():
        yield Text("No noise floor was computed, so no change is called a finding.", "note")
    elif decided.filter(pl.col("change") != ABSENT).is_empty():
        yield Text(_NO_CHANGE)
    labelled = pl.col("reading").replace(named)
    yield from FINDINGS.rows(decided.with_columns(labelled))
    yield Text(_HOW, "how")
    yield from JUMPS.rows(study.tables[JUMPS.name].with_columns(labelled))


def _of_missing(study: Study) -> Iterator[Block]:
    """Readings that are the same as others, that failed, or that are not finished."""
    for model, reading, same, failure in study.tables["conventions_missing"].iter_rows():
        why = f"could not be compared ({failure or 'not finished; run assay conventions again'})"
        if same:
            why = f"gives the token ids of {same}, and is not computed again"
        yield Text(f"{study.names.get(model, model)}: {reading} {why}.", "note")


def findings(study: Study) -> Iterator[Finding]:
    """What changes by more than the noise floor: findings, and the order of tokens.

    That a q crosses .05 is no finding of its own: one must be reversed, or its estimate must leave
    the default's interval. Without a noise floor nothing can be said.
    """
    every, over = study.tables[FINDINGS.name], study.tables[SUMMARY.name]
    if not over["noise"].any():
        return
    decided = by_reading.changes(every).filter(pl.col("change").is_in((REVERSED, LOST, GAINED)))
    if decided.filter((pl.col("change") == REVERSED) | pl.col("outside")).height:
        yield Finding(text=_survival(every), picture="conventions")
    if furthest := _furthest(study, study.tables[AGREEMENT.name], _named(study)):
        yield Finding(text=furthest, picture="conventions")


def _survival(every: pl.DataFrame) -> str:
    total = by_reading.survival(every)
    counts = [
        f"{total[kind]} {one if total[kind] == 1 else many}"
        for kind, one, many in _COUNTED
        if total[kind]
    ]
    return (
        f"Of {total['sure']} findings that are sure under the default reading, {total['kept']} "
        f"{'keeps' if total['kept'] == 1 else 'keep'} sign and significance under every other "
        f"reading of their model; under some, {listed(counts)}."
    )


def _furthest(study: Study, agreement: pl.DataFrame, named: Mapping[str, str]) -> str | None:
    """The largest change of an order of tokens that is beyond the noise floor of its model.

    A reading that is as noisy as the floor falls below it every other time. So more than twice as
    many pairs of tokens must change places as in the floor, by three standard errors of a count,
    and τ must be below `_VISIBLE`. The factor of two carries this rule: pairs of one order are not
    independent, so that the error of a count is a lower limit.
    """
    taus = agreement.filter(pl.col("kendall").is_not_nan())
    floor = taus.filter("noise").group_by("model").agg(floor=pl.col("kendall").min())
    compared = taus.filter(~pl.col("noise")).join(floor, on="model", how="inner", validate="m:1")
    pairs = pl.col("tokens") * (pl.col("tokens") - 1) / 4  # that τ = 0 turns round
    moved, by_noise = (1 - pl.col("kendall")) * pairs, (1 - pl.col("floor")) * pairs
    excess, error = moved - _TIMES * by_noise, (moved + _TIMES**2 * by_noise).sqrt()
    below = compared.filter(excess > _ERRORS * error, pl.col("kendall") < _VISIBLE)
    if not below.height:
        return None
    row = below.sort("kendall", "model", "reading", "prompt").row(0, named=True)
    return (
        f"Of all readings, {named[row['reading']]} changes an order of tokens most, that of "
        f"{study.names.get(row['model'], row['model'])} under "
        f"{study.prompt_names[row['prompt']]}: Kendall’s τ with the default is "
        f"{decimals(row['kendall'])}, and {100 * row['top'] / row['ends']:.0f}% of the highest "
        f"tokens stay among the highest. The noise floor of this model has τ of at least "
        f"{row['floor']:.4f}."
    )


_NO_CHANGE = "No reading changes the sign or the significance of a finding beyond the noise floor."
_HOW = (
    "A finding is sure where q < .05. What computing the default reading again changes too does "
    "not count. Absent: the reading has no such estimate."
)
ANALYSIS = Analysis(
    id="conventions",
    title="Conventions: which findings survive",
    label="Conventions",
    lead="A reward depends on choices that papers seldom report: how many BOS tokens stand in "
    "front, which date the template prints, whether a token is put in as an id or as text, where "
    "the reward is read, in which precision. Which findings stay when one of them is made "
    "otherwise?",
    make=_tables,
    parts=(_drawn, _changes, _of_missing),
    told=(findings,),
    caveats=lambda study: (
        "A change of significance may be small: an estimate that was barely sure is barely not. "
        "The table says whether it leaves the default’s interval.",
        "Findings are those of a report of each model alone: q is corrected within a reading, not "
        "over readings.",
        "The default reading is a choice, not the truth.",
    ),
    every_prompt=True,
)
