"""Lists with prompts of their own: pairs that people judged, and replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import polars as pl

from analysis.blocks import Block, Finding, Folded, Heading, Picture, Reading, Text
from analysis.charts.estimates import estimates
from analysis.measures.pairs import (
    ALL,
    BETWEEN,
    LENGTH,
    NO_PAIRS,
    PAIRS,
    SECOND,
    SECTION,
    SIDES,
    WORST,
    accuracies,
    between,
    lengths,
    pairs,
    replies,
    worst,
)
from analysis.sentences import bounds, count, decimals, listed, part_of
from analysis.study import Analysis, Study, Table, Tables, table
from engine.runs import schema, storage

_NONE = "No list with prompts of its own was scored."
_COLOURED = (
    "Each piece is coloured by the reward if the reply ended behind it, on one scale for both: the "
    "deeper, the higher. Point at a piece to read its reward."
)
_TO_READ, _TEXTS = 5, ("question", "chosen", "rejected")  # of the worst pairs of each model


def _tables(study: Study) -> Iterator[Table]:
    """For charts and other chapters: ("replies", list), ("judged", list), ("every_pair", list)."""
    made, run = study.tables, study.run
    for name in run.conversation_lists():
        yield table("replies", name, make=partial(replies, run, name, study.models), file=False)
        yield table("judged", name, make=partial(_judged, made, name), file=False)
        every_pair = partial(_judged, made, name, every_pair=True)
        yield table("every_pair", name, make=every_pair, file=False, why=NO_PAIRS)
    judged = {name: frame for (name,), frame in made.of("judged").items()}
    of_pairs = {name: frame for name, frame in judged.items() if frame.height}

    def accuracy() -> pl.DataFrame:
        return PAIRS.concat(accuracies(*entry) for entry in of_pairs.items())

    def two_models() -> pl.DataFrame:
        return BETWEEN.concat(between(*entry) for entry in of_pairs.items())

    def lowest() -> pl.DataFrame:
        return WORST.concat(worst(*entry, study.settings.top) for entry in of_pairs.items())

    def length() -> pl.DataFrame:
        by_list = {name: made.get("every_pair", name) for name in judged}
        frames = ((name, judged[name].clear() if e is None else e) for name, e in by_list.items())
        return LENGTH.concat(lengths(name, made["replies", name], frame) for name, frame in frames)

    yield table(PAIRS.name, make=accuracy, why=NO_PAIRS)
    yield table(BETWEEN.name, make=two_models, why="No two models judged the same pairs.")
    yield table(WORST.name, make=lowest, why=NO_PAIRS)
    yield table(LENGTH.name, make=length, why=_NONE)


def _judged(made: Tables, name: str, every_pair: bool = False) -> pl.DataFrame:
    return pairs(made["replies", name], every_pair)


def _accuracy(study: Study) -> Iterator[Block]:
    shares, label = study.tables[PAIRS.name], "pairs judged right, %"
    chance = partial(
        estimates, names=study.names, label=label, value="accuracy", zero=0.5, scale=100
    )
    whole = shares.filter(label=ALL)
    yield Picture(
        "pairs",
        "Share of pairs whose chosen reply has the higher reward, with 95 % intervals. The line is "
        "chance.",
        partial(chance, whole, row="list"),
    )
    for name in whole["list"].unique(maintain_order=True):
        labelled = shares.filter(pl.col("list") == name, pl.col("label") != ALL)
        by_label = labelled.partition_by("label", maintain_order=True)
        for number, part in enumerate(by_label, 1):
            caption = f"{name}, by {part['label'][0]}."
            yield Picture(f"pairs_{name}_{number}", caption, partial(chance, part, row="group"))
    yield from PAIRS.rows(shares)
    yield from BETWEEN.rows(study.tables.get(BETWEEN.name))
    if SECTION in shares["label"]:
        yield Text(
            "Sections are RewardBench’s: accuracies of their subsets, weighted as its own scorer "
            "does (math-prm as much as all code).",
            "how",
        )
    if SECOND in shares["label"]:
        yield Text(
            "RewardBench 2: the chosen reply must have the highest reward of its row. Ties is the "
            "score of its own scorer, of accuracies and margins.",
            "how",
        )


def _rendered(study: Study) -> Iterator[Block]:
    """How the first row of each list was rendered: once for models that read the same."""
    models: dict[tuple[str, str], list[str]] = {}
    for (name, model), result in study.run.conversations.items():
        text = storage.read_if_there(result.run / schema.rendered_path(result.path))
        if text is not None and model in study.models:
            models.setdefault((name, text.decode()), []).append(study.names[model])
    for (name, text), readers in models.items():
        yield Text(
            f"First row of {name} as {listed(readers)} read it, with the reward at ⟦ ⟧: {text}"
        )


def _read(study: Study) -> Iterator[Block]:
    lowest = study.tables[WORST.name]
    yield Heading("Worst pairs", "those with the lowest margins")
    for row in lowest.filter(pl.col("rank") <= _TO_READ).iter_rows(named=True):
        title = f"{study.names[row['model']]}, {row['list']}, row {row['row']}"
        texts: list[Block] = [Text(f"{key.capitalize()}: {row[key]}") for key in _TEXTS]
        if readings := _readings(study, row):
            texts = [texts[0], *readings, Text(_COLOURED, "how")]
        yield Folded(f"{title}: margin {decimals(row['margin'])}", texts)
    yield from WORST.rows(lowest)


# Any: cells of a table.
def _readings(study: Study, row: Mapping[str, Any]) -> list[Reading]:
    """Both replies of a row of `WORST`, coloured; none where they were not scored word by word."""
    if (row["list"], row["model"]) not in study.run.running:
        return []
    cut = study.run.running_scores(row["list"], row["model"]).filter(row=row["row"])
    rewards, pieces = cut[row["model"]], dict[str, list[tuple[str, float]]]()
    for side, messages, reward in zip(cut["side"], cut["messages"], rewards, strict=True):
        before = sum(len(text) for text, _ in pieces.get(side, []))
        pieces.setdefault(side, []).append((messages[-1]["content"][before:], reward))
    ends = min(rewards, default=0.0), max(rewards, default=0.0)
    return [Reading(side.capitalize(), pieces[side], *ends) for side in SIDES if side in pieces]


def _told(study: Study) -> Iterator[Finding]:
    """Which models surely order the pairs of a list as people did, or the other way round."""
    shares = study.tables[PAIRS.name].filter(label=ALL).fill_nan(None)
    for (name,), rows in shares.group_by("list", maintain_order=True):
        sure = rows.filter((pl.col("ci_low") > 0.5) | (pl.col("ci_high") < 0.5))
        if not sure.height:
            continue
        best = sure.sort("accuracy", descending=True, maintain_order=True).row(0, named=True)
        ends = bounds(100 * best["ci_low"], 100 * best["ci_high"], 1)
        counts = f"{part_of(sure.filter(pl.col('ci_low') > 0.5).height, rows.height, 'model')}"
        text = (
            f"Of the {best['n']:,} pairs of “{name}”, {study.names[best['model']]} rates the reply "
            f"that people chose higher in {100 * best['accuracy']:.1f} % (95 % {ends})"
            f"{f'; surely above chance: {counts}' if rows.height > 1 else ''}."
        )
        yield Finding(text=text, picture="pairs")


def _described(study: Study) -> str:
    """That no model is surely better or worse than chance."""
    models = study.tables[PAIRS.name]["model"].n_unique()
    return (
        f"None of {count(models, 'model')} surely rates the replies that people chose higher, or "
        "lower, than those that they rejected."
    )


ANALYSIS = Analysis(
    id="pairs",
    title="Pairs and replies of your own",
    label="Pairs",
    lead="Does a model prefer the replies that people chose, and where does it not?",
    make=_tables,
    every_prompt=True,
    parts=(
        _accuracy,
        _rendered,
        lambda study: LENGTH.rows(study.tables[LENGTH.name]),
        _read,
    ),
    told=(_told,),
    described=_described,
    caveats=lambda study: (
        "Labels overlap: that pairs of one value are judged right does not say why.",
        "Length is counted in characters, since models have other tokens.",
    ),
)
