"""Which findings survive when a model is read otherwise: another BOS, date, mode, dtype, ….

`assay conventions` computes the readings; docs/conventions.md says what each of them is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import polars as pl

from analysis.blocks import (
    MODEL,
    PROMPT,
    Block,
    Column,
    Finding,
    Picture,
    Section,
    Text,
    notes,
    rows,
)
from analysis.chapters import findings_by_reading as by_reading
from analysis.chapters.findings_by_reading import GAINED, LOST, OTHER, REVERSED
from analysis.figures import style
from analysis.figures.reading_dots import reading_dots
from analysis.measures import readings
from analysis.measures.readings import Readings, label
from analysis.sentences import decimals, listed, q_value
from analysis.study import Absent, Study, Table, table
from engine.runs.readings import DEFAULT

EVERY_PROMPT = True  # see analysis/report/few_prompts.py

_NONE = "No other readings of the models were scored (assay conventions)."
_JUMPS = 5  # Tokens of each reading, model and prompt.
_COUNTED = (
    (REVERSED, "is reversed", "are reversed"),
    (LOST, "is no longer sure", "are no longer sure"),
    (GAINED, "other becomes sure", "others become sure"),
)
_SAID = {REVERSED: "is reversed", LOST: "is no longer sure", GAINED: "becomes sure"}


def tables(study: Study) -> Iterator[Table]:
    """conventions_readings, _summary, _findings, _survival and _jumps.csv."""
    made, found = study.tables, functools.cache(partial(_found, study))
    count = study.settings.top
    yield table("conventions_readings", make=lambda: readings.agreement(found(), count))
    yield table(
        "conventions_findings",
        make=lambda: by_reading.findings_table(study, found(), made["conventions_readings"]),
    )
    yield table(
        "conventions_summary",
        make=lambda: summary(made["conventions_readings"], made["conventions_findings"], found()),
    )
    yield table(
        "conventions_survival", make=lambda: by_reading.survival(made["conventions_findings"])
    )
    yield table("conventions_jumps", make=lambda: readings.jumps(found(), _JUMPS))
    yield table("conventions_missing", make=lambda: missing(found()), file=False)


def summary(agreement: pl.DataFrame, findings: pl.DataFrame, found: Readings) -> pl.DataFrame:
    """The table `conventions_summary.csv`: one row per reading, over models and prompts.

    Returns:
      reading, label (what differs from the default), noise, models, kendall_low, kendall_high (of
      τ with the default), top_low, top_high (share of the highest tokens in common), findings
      (that a test decides), reversed, lost, gained (of them; a reading changes more than its noise
      floor does).
    """
    keys = ["reading", "noise"]
    taus = agreement.group_by(keys, maintain_order=True).agg(
        models=pl.col("model").n_unique().cast(pl.Int64),
        kendall_low=pl.col("kendall").fill_nan(None).min(),
        kendall_high=pl.col("kendall").fill_nan(None).max(),
        top_low=(pl.col("top") / pl.col("ends")).min(),
        top_high=(pl.col("top") / pl.col("ends")).max(),
    )
    decided = findings.filter(pl.col("default_sure").is_not_null())
    changed = pl.when("as_noise", ~pl.col("noise")).then(pl.lit("")).otherwise("change")
    counts = decided.group_by("reading").agg(
        findings=pl.len().cast(pl.Int64),
        **{kind: (changed == kind).sum().cast(pl.Int64) for kind in (REVERSED, LOST, GAINED)},
    )
    named = labels(found)
    order = {name: place for place, name in enumerate(named)}
    joined = taus.join(counts, on="reading", how="left", validate="1:1", maintain_order="left")
    joined = joined.with_columns(pl.col("findings", REVERSED, LOST, GAINED).fill_null(0))
    return (
        joined.with_columns(
            label=pl.col("reading").replace_strict(named),
            place=pl.col("reading").replace_strict(order),
        )
        .sort("place")
        .select("reading", "label", pl.exclude("reading", "label", "place"))
    )


def missing(found: Readings) -> pl.DataFrame:
    """Readings without results: model, reading (its label), same_as (label; null), failure."""
    types = dict.fromkeys(("model", "reading", "same_as", "failure"), pl.String)
    named = labels(found)
    lines = []
    for model in found.models():
        done = found.computed(model)
        for name, entry in found.index[model].items():
            if name != DEFAULT and name not in done:
                same = named.get(entry.same_as or "", entry.same_as)
                lines.append((model, named[name], same, entry.failure))
    return pl.DataFrame(lines, schema=types, orient="row")


def labels(found: Readings) -> dict[str, str]:
    """Reading -> what of it differs from the default, of all models; the noise floor's last."""
    named: dict[tuple[bool, str], str] = {}
    for own in found.index.values():
        for name, entry in own.items():
            named.setdefault((entry.noise, name), label(entry, own[DEFAULT]))
    return {name: text for (_, name), text in sorted(named.items(), key=lambda one: one[0][0])}


def _found(study: Study) -> Readings:
    found = readings.readings_of(study.run)
    if found is None or not any(found.computed(model) for model in found.models()):
        raise Absent(_NONE)
    return found


def section(study: Study) -> Section:
    """Dots of τ, what each reading changes, and which tokens jump."""
    made = study.tables
    agreement, over = made.get("conventions_readings"), made.get("conventions_summary")
    blocks: list[Block] = notes([made.reason("conventions_readings")])
    if agreement is not None and over is not None:
        named = list(over.select("reading", "label").iter_rows())
        caption = (
            "How far the order of the tokens under a reading agrees with that under the default "
            "one: a dot for each model and prompt. Grey: the noise floor, which is the default "
            "reading computed again in other steps or on another mesh. What is as far right as "
            "that changes nothing."
        )
        draw = partial(reading_dots, agreement, named, study.names)
        blocks += [Text(_scored(study, agreement), "how"), Picture("conventions", caption, draw)]
        blocks += rows(over, _SUMMARY, "conventions_summary.csv", "By reading", unfolded=True)
        blocks += _of_findings(study)
        blocks += rows(
            _labelled(made["conventions_jumps"], over), _JUMPED, "conventions_jumps.csv", _FURTHEST
        )
        blocks += _of_missing(study)
    return Section(
        id="conventions",
        title="Conventions: which findings survive",
        label="Conventions",
        lead="A reward depends on choices that papers seldom report: how many BOS tokens stand in "
        "front, which date the template prints, whether a token is put in as an id or as text, "
        "where the reward is read, in which precision. Which findings stay when one of them is "
        "made otherwise?",
        blocks=blocks,
        caveats=(
            "A change of significance may be small: an estimate that was barely sure is barely "
            "not. The table says whether it leaves the default’s interval.",
            "Findings are those of a report of each model alone: q is corrected within a reading, "
            "not over readings.",
            "The default reading is a choice, not the truth.",
        ),
        findings=list(findings(study)),
    )


def findings(study: Study) -> Iterator[Finding]:
    """What changes by more than the noise floor: findings, and the order of tokens."""
    table_ = study.tables.get("conventions_findings")
    over = study.tables.get("conventions_summary")
    if table_ is None or over is None or not over["noise"].any():
        return  # without a noise floor nothing can be said
    named = dict(over.select("reading", "label").iter_rows())
    first = next(by_reading.examples(table_), None)
    if first is not None:
        yield Finding(text=_changed(study, table_, first, named), picture="conventions")
    if (text := _furthest(over)) is not None:
        yield Finding(text=text, picture="conventions")


def _changed(
    study: Study,
    table_: pl.DataFrame,
    example: Mapping[str, Any],  # Any: cells of a table
    named: Mapping[str, str],
) -> str:
    """How many findings change under some reading, and the clearest that does."""
    counts = by_reading.survival(table_.filter(pl.col("default_sure").is_not_null()))
    total = {name: int(counts[name].sum()) for name in ("sure", "kept", REVERSED, LOST, GAINED)}
    others = table_.filter(~pl.col("noise"))["reading"].n_unique()
    said = [
        f"{total[kind]} {one if total[kind] == 1 else many}"
        for kind, one, many in _COUNTED
        if total[kind]
    ]
    name = study.names.get(example["model"], example["model"])
    every = "the one other reading" if others == 1 else f"all {others} other readings"
    return (
        f"Of {total['sure']} findings that are sure under the default reading, {total['kept']} "
        f"{'keeps' if total['kept'] == 1 else 'keep'} sign and significance under {every}; under "
        f"some, {listed(said)}. For example, the {example['finding']} of {name} "
        f"({example['of']}) {_SAID[example['change']]} with {named[example['reading']]}: "
        f"{_number(example, 'default_')} by default, {_number(example, '')} then. The noise floor "
        "changes none of those counted."
    )


def _number(row: Mapping[str, Any], of: str) -> str:  # Any: cells of a table
    value = row[f"{of}value"]
    digits = 2 if abs(value) >= 0.01 else 4
    return style.minus(f"{value:.{digits}f}") + f" ({q_value(row[f'{of}q'])})"


def _furthest(over: pl.DataFrame) -> str | None:
    """The reading that moves tokens furthest, where even its best τ is below the noise floor."""
    floor = over.filter("noise")["kendall_low"].min()
    below = over.filter(~pl.col("noise"), pl.col("kendall_high") < floor).sort("kendall_low")
    if floor is None or not below.height:
        return None
    row = below.row(0, named=True)
    taus = " to ".join(dict.fromkeys(decimals(row[f"kendall_{end}"]) for end in ("low", "high")))
    shares = " to ".join(dict.fromkeys(f"{100 * row[f'top_{end}']:.0f}" for end in ("low", "high")))
    return (
        f"Of the readings, {row['label']} changes the order of the tokens most: Kendall’s τ with "
        f"the default is {taus}, and {shares}% of the highest tokens stay among the highest. The "
        f"noise floor has τ of at least {float(floor):.4f}."  # type: ignore[arg-type]
    )


def _of_findings(study: Study) -> list[Block]:
    """What survives, kind by kind, and every finding that a reading changes."""
    made = study.tables
    table_, over = made["conventions_findings"], made["conventions_summary"]
    changed = by_reading.changes(table_)
    decided = changed.filter(pl.col("change") != OTHER)
    blocks = rows(
        made["conventions_survival"],
        _SURVIVAL,
        "conventions_survival.csv",
        "Which findings survive",
        unfolded=True,
    )
    if not over["noise"].any():
        blocks.append(
            Text("No noise floor was computed, so no change is called a finding.", "note")
        )
    elif not decided.height:
        text = (
            "No reading changes the sign or the significance of a finding beyond the noise floor."
        )
        blocks.append(Text(text))
    title = "Findings whose sign or significance a reading changes"
    return [
        *blocks,
        *rows(_labelled(decided, over), _CHANGED, "conventions_findings.csv", title),
        Text(_HOW, "how"),
    ]


def _labelled(frame: pl.DataFrame, over: pl.DataFrame) -> pl.DataFrame:
    return frame.join(
        over.select("reading", "label"),
        on="reading",
        how="left",
        validate="m:1",
        maintain_order="left",
    )


def _scored(study: Study, agreement: pl.DataFrame) -> str:
    """How many tokens were compared."""
    vocabularies = study.described.select("model", "vocabulary")
    joined = agreement.join(vocabularies, on="model", how="left", validate="m:1")
    few = joined.filter(pl.col("tokens") < pl.col("vocabulary"))
    if not few.height:
        return "Every token of the vocabulary was scored under every reading."
    tokens = few.select(pl.min("tokens"), pl.max("tokens").alias("most"), pl.max("vocabulary")).row(
        0
    )
    counts = " to ".join(dict.fromkeys(f"{n:,}" for n in tokens[:2]))
    return f"{counts} of {tokens[2]:,} tokens, drawn at random, were scored under every reading."


def _of_missing(study: Study) -> list[Block]:
    """Readings that are the same as others, that failed, or that are not finished."""
    table_ = study.tables["conventions_missing"]
    lines = []
    for (model,), part in table_.group_by("model", maintain_order=True):
        name = study.names.get(str(model), str(model))
        same = part.filter(pl.col("same_as").is_not_null())
        pairs = [f"{own} ({other})" for own, other in same.select("reading", "same_as").iter_rows()]
        if pairs:
            lines.append(
                f"{name}: these readings give the token ids of another one, in brackets, and are "
                f"not computed again: {listed(pairs)}."
            )
        rest = part.filter(pl.col("same_as").is_null())
        for reading, failure in rest.select("reading", "failure").iter_rows():
            why = failure or "not finished; run assay conventions again"
            lines.append(f"{name}: {reading} could not be compared ({why}).")
    return [Text(line, "note") for line in lines]


_FURTHEST = "Tokens that jump furthest"
_HOW = (
    "A finding is sure where its chapter says so: q < .05, and for groups of people also a "
    "contrast that few ordinary kinds have. Kept: sure, with the same sign, under every reading "
    "(or, of tokens and orders, the same set or order); moved: the estimate leaves the default’s "
    "95% interval under some reading all the same. A change that computing the default reading "
    "again makes too does not count."
)
_SUMMARY: tuple[Column, ...] = (
    ("label", "reading", "text"),
    ("models", "models", "count"),
    ("kendall_low", "lowest τ", "fixed"),
    ("kendall_high", "highest τ", "fixed"),
    ("top_low", "highest tokens kept, at least", "share"),
    ("top_high", "at most", "share"),
    ("findings", "findings", "count"),
    (REVERSED, "reversed", "count"),
    (LOST, "lost", "count"),
    (GAINED, "gained", "count"),
)
_SURVIVAL: tuple[Column, ...] = (
    ("finding", "finding", "text"),
    ("findings", "all", "count"),
    ("sure", "sure by default", "count"),
    ("kept", "kept by all", "count"),
    ("moved", "but moved", "count"),
    (REVERSED, "reversed", "count"),
    (LOST, "lost", "count"),
    (OTHER, "other set or order", "count"),
    (GAINED, "gained", "count"),
)
_CHANGED: tuple[Column, ...] = (
    MODEL,
    ("finding", "finding", "text"),
    ("of", "of", "text"),
    ("label", "reading", "text"),
    ("change", "change", "text"),
    ("default_value", "by default", "number"),
    ("default_low", "from", "number"),
    ("default_high", "to", "number"),
    ("default_q", "q", "p"),
    ("value", "then", "number"),
    ("q", "q", "p"),
    ("outside", "outside interval", "bool"),
)
_JUMPED: tuple[Column, ...] = (
    MODEL,
    ("label", "reading", "text"),
    PROMPT,
    ("rank", "rank", "count"),
    ("token", "token", "token"),
    ("default_percentile", "percentile by default", "share"),
    ("percentile", "then", "share"),
    ("jump", "jump", "share"),
)
