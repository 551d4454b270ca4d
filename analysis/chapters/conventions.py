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
from analysis.chapters.findings_by_reading import ABSENT, GAINED, LOST, OTHER, REVERSED
from analysis.figures import style
from analysis.figures.reading_dots import reading_dots
from analysis.measures import readings
from analysis.measures.readings import Readings, label
from analysis.sentences import decimals, listed, q_value, span
from analysis.study import Absent, Study, Table, table
from engine.runs.convention_index import DEFAULT, NOISE_MESH

EVERY_PROMPT = True  # see analysis/report/few_prompts.py

_NONE = "No other readings of the models were scored (assay conventions)."
_ROUNDING = 1e-9  # of τ
_TIMES, _ERRORS = 2, 3  # see `_furthest`
_VISIBLE = 0.995  # τ below which it is not printed as 1.00
_JUMPS = 5  # Tokens of each reading, model and prompt.
_COUNTED = (
    (REVERSED, "is reversed", "are reversed"),
    (LOST, "is no longer sure", "are no longer sure"),
    (ABSENT, "cannot be computed", "cannot be computed"),
    (GAINED, "other becomes sure", "others become sure"),
)
_SAID = {REVERSED: "is reversed", LOST: "is no longer sure", GAINED: "becomes sure"}


def tables(study: Study) -> Iterator[Table]:
    """conventions_readings, _summary, _findings and _jumps.csv."""
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
    yield table("conventions_jumps", make=lambda: readings.jumps(found(), _JUMPS))
    yield table("conventions_missing", make=lambda: missing(found()), file=False)


def summary(agreement: pl.DataFrame, findings: pl.DataFrame, found: Readings) -> pl.DataFrame:
    """The table `conventions_summary.csv`: one row per reading, over models and prompts.

    Returns:
      reading, label (what differs from the default), noise, models, kendall_low, kendall_high (of
      τ with the default), top_low, top_high (share of the highest tokens in common), findings
      (that a test decides), reversed, lost, gained, absent (of them; those that the noise floor
      changes too do not count).
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
    kinds = (REVERSED, LOST, GAINED, ABSENT)
    changed = pl.when("as_noise", ~pl.col("noise")).then(pl.lit("")).otherwise("change")
    counts = decided.group_by("reading").agg(
        findings=pl.len().cast(pl.Int64),
        **{kind: (changed == kind).sum().cast(pl.Int64) for kind in kinds},
    )
    named = labels(found)
    order = {name: place for place, name in enumerate(named)}
    joined = taus.join(counts, on="reading", how="left", validate="1:1", maintain_order="left")
    joined = joined.with_columns(pl.col("findings", *kinds).fill_null(0))
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
            "reading computed again in other steps or, with several devices, on another mesh. What "
            "is as far right as that changes nothing."
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
    """What changes by more than the noise floor: findings, and the order of tokens.

    That a q crosses .05 is no finding of its own: one must be reversed, or its estimate must leave
    the default's interval.
    """
    table_ = study.tables.get("conventions_findings")
    over = study.tables.get("conventions_summary")
    if table_ is None or over is None or not over["noise"].any():
        return  # without a noise floor nothing can be said
    named = dict(over.select("reading", "label").iter_rows())
    clear = (r for r in by_reading.examples(table_) if r["change"] == REVERSED or r["outside"])
    first = next(clear, None)
    if first is not None:
        yield Finding(text=_changed(study, table_, first, named), picture="conventions")
    if (text := _furthest(study, study.tables["conventions_readings"], named)) is not None:
        yield Finding(text=text, picture="conventions")


def _changed(
    study: Study,
    table_: pl.DataFrame,
    example: Mapping[str, Any],  # Any: cells of a table
    named: Mapping[str, str],
) -> str:
    """How many findings change under some reading, and the clearest that does."""
    total = by_reading.survival(table_)
    said = [
        f"{total[kind]} {one if total[kind] == 1 else many}"
        for kind, one, many in _COUNTED
        if total[kind]
    ]
    name = study.names.get(example["model"], example["model"])
    keep = "keeps" if total["kept"] == 1 else "keep"
    return (
        f"Of {total['sure']} findings that are sure under the default reading, {total['kept']} "
        f"{keep} sign and significance under {_every(table_)}; under some, {listed(said)}. "
        f"For example, the {example['finding']} of {name} "
        f"({example['of']}) {_SAID[example['change']]} with {named[example['reading']]}: "
        f"{_number(example, 'default_')} by default, {_number(example, '')} then. "
        f"{_NO_FLOOR if _floor_is_empty(study) else 'The noise floor changes none of them.'}"
    )


def _every(table_: pl.DataFrame) -> str:
    """How many other readings a model has: `all 5 other readings`."""
    others = table_.filter(~pl.col("noise")).group_by("model").agg(pl.col("reading").n_unique())
    counts = sorted(set(others["reading"].to_list()))
    if counts == [1]:
        return "the one other reading"
    if len(counts) == 1:
        return f"all {counts[0]} other readings"
    return f"all other readings of their model ({counts[0]} to {counts[-1]})"


def _floor_is_empty(study: Study) -> bool:
    """Whether computing the default reading again changed neither an order nor a finding."""
    taus = study.tables["conventions_readings"].filter("noise")["kendall"].fill_nan(None)
    table_ = study.tables["conventions_findings"]
    changed = table_.filter("noise", pl.col("change") != "")
    return bool((taus.drop_nulls() >= 1 - _ROUNDING).all()) and not changed.height


def _number(row: Mapping[str, Any], of: str) -> str:  # Any: cells of a table
    value = row[f"{of}value"]
    digits = 2 if abs(value) >= 0.01 else 4
    return style.minus(f"{value:.{digits}f}") + f" ({q_value(row[f'{of}q'])})"


def _furthest(study: Study, agreement: pl.DataFrame, named: Mapping[str, str]) -> str | None:
    """The largest change of an order of tokens that is beyond the noise floor of its model.

    A reading that is as noisy as the floor falls below it every other time. So more than twice as
    many pairs of tokens must change places as in the floor, by three standard errors of a count,
    and τ must be below `_VISIBLE`. The factor of two carries this rule: pairs of one order are not
    independent, so that the error of a count is a lower limit.
    """
    taus = agreement.filter(pl.col("kendall").is_not_nan())
    floor = taus.filter("noise").group_by("model").agg(floor=pl.col("kendall").min())
    others = taus.filter(~pl.col("noise")).join(floor, on="model", how="inner", validate="m:1")
    pairs = pl.col("tokens") * (pl.col("tokens") - 1) / 4  # that τ = 0 turns round
    own, by_noise = (1 - pl.col("kendall")) * pairs, (1 - pl.col("floor")) * pairs
    excess, error = own - _TIMES * by_noise, (own + _TIMES**2 * by_noise).sqrt()
    below = others.filter(excess > _ERRORS * error, pl.col("kendall") < _VISIBLE)
    if not below.height:
        return None
    row = below.sort("kendall", "model", "reading", "prompt").row(0, named=True)
    model, reading = row["model"], named[row["reading"]]
    share = f"{100 * row['top'] / row['ends']:.0f}"
    return (
        f"Of all readings, {reading} changes an order of tokens most, that of "
        f"{study.names.get(model, model)} under “{row['prompt']}”: Kendall’s τ with the default is "
        f"{decimals(row['kendall'])}, and {share}% of the highest tokens stay among the highest. "
        f"{_elsewhere(taus, row)}The noise floor of this model has τ of at least "
        f"{row['floor']:.4f}."
    )


def _elsewhere(taus: pl.DataFrame, row: Mapping[str, Any]) -> str:  # Any: cells of a table
    """τ of the reading of a row over all models and prompts, where it has several."""
    own = taus.filter(reading=row["reading"])
    if own.height == 1:
        return ""
    kendall = own["kendall"].to_numpy()
    models, every = own["model"].n_unique(), taus["model"].n_unique()
    which = f"the {models} of {every} models with this reading" if every > 1 else "all prompts"
    return f"Over {which} τ is {span(kendall)}. "


def _of_findings(study: Study) -> list[Block]:
    """Every finding that a reading changes."""
    made = study.tables
    table_, over = made["conventions_findings"], made["conventions_summary"]
    changed = by_reading.changes(table_)
    decided = changed.filter(pl.col("change") != OTHER)
    blocks: list[Block] = []
    if not over["noise"].any():
        blocks.append(
            Text("No noise floor was computed, so no change is called a finding.", "note")
        )
    elif decided.filter(pl.col("change") != ABSENT).is_empty():
        text = (
            "No reading changes the sign or the significance of a finding beyond the noise floor."
        )
        blocks.append(Text(text))
    title = "Findings whose sign or significance a reading changes, or that it cannot compute"
    return [
        *blocks,
        *rows(_labelled(decided, over), _CHANGED, "conventions_findings.csv", title),
        *_of_floor(study, over),
        Text(_HOW, "how"),
    ]


def _of_floor(study: Study, over: pl.DataFrame) -> list[Block]:
    """What the noise floor is made of, and whether it excludes anything."""
    floor = over.filter("noise")["reading"]
    said = []
    if len(floor) and not floor.str.starts_with(NOISE_MESH).any():
        said.append(_ONE_MESH)
    if len(floor) and _floor_is_empty(study):
        said.append(_NO_FLOOR)
    return [Text(text, "note") for text in said]


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
_NO_FLOOR = "Recomputing changed nothing, so this noise floor excludes nothing."
_ONE_MESH = (
    "The noise floor here is other steps alone: another mesh takes several devices, and a model "
    "that can be split over them otherwise."
)
_HOW = (
    "A finding is sure where q < .05. What computing the default reading again changes too does "
    "not count. Absent: the reading has no such estimate."
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
    (ABSENT, "absent", "count"),
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
