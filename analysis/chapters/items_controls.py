"""Do models go by the length of an item, or by how common a word it is? Part of `items`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Heading, Picture
from analysis.charts.estimates import estimates
from analysis.columns import LIST, MODEL, Column, P, Spec
from analysis.measures.list_scores import (
    ALL,
    ALL_MODELS,
    ITEM,
    SOME,
    ListScores,
    every_list,
    lists_in,
)
from analysis.sentences import ALPHA, decimals, listed, q_value, significant
from analysis.statistics import Array
from analysis.statistics.correlation import partial_spearman
from analysis.statistics.inference import with_q
from analysis.study import Study, Table, required, table
from analysis.words import lexicons
from analysis.words.questions import ASKED_FOR, NEGATIVE, POSITIVE
from engine.runs.schema import Columns

LENGTH, TOKENS, FREQUENCY = "characters", "tokens", "log frequency"
_TITLES = {LENGTH: "length in characters", TOKENS: "length in tokens", FREQUENCY: "frequency"}
_SAID = {LENGTH: ("Longer", "frequency"), FREQUENCY: ("Commoner", "length")}
_HELD = {LENGTH: FREQUENCY, TOKENS: FREQUENCY, FREQUENCY: LENGTH}
_LEAST = 10  # Items of which a trait is known, for a correlation.
_TRAITS: Columns = {**ITEM, **dict.fromkeys((LENGTH, TOKENS, FREQUENCY), pl.Float64)}
CONTROLS = Spec(
    "items_controls",
    (
        *(LIST, Column("asked", help="framing, or one question")),
        MODEL.but(help="and `all models`"),
        Column("trait", help="`characters`, `tokens` or `log frequency`"),
        Column("n", "count", "items", "items"),
        Column("spearman", "fixed", "Spearman’s ρ", "with the percentile"),
        Column("held", title="held equal", help="the trait held equal"),
        Column("partial", "fixed", "partial ρ"),
        P.but(help="of partial, over items"),
        Column("q", "p", help="family: the single models of a list, or their mean"),
    ),
    page="asked trait n spearman held partial p q",
    title="Length and frequency",
)
_EACH = Spec(CONTROLS.name, CONTROLS.columns[:-1])  # Of one list.
CAVEATS = (
    "Long and rare words mean other things than short and common ones: a correlation of an item’s "
    "place with its length is no proof that the model counts letters.",
    "Its test takes the items as a random sample of such items.",
)


def tables(study: Study) -> Iterator[Table]:
    """items_controls.csv. For other chapters: ("items_traits", list)."""
    for (name,) in study.tables.of("items_points"):
        yield table("items_traits", name, make=partial(_traits, study, name), file=False)
    yield table(CONTROLS.name, make=partial(_controls, study))


def items_traits(
    items: pl.DataFrame, tokens: pl.DataFrame | None, frequency: pl.DataFrame | None
) -> pl.DataFrame:
    """item_id, item, characters, tokens and log frequency of each item; null where not known.

    Frequency is the natural log of occurrences per million words of the item as one word, in any
    case, from `lexicons.frequency`; `tokens` are a language model's, by item_id.
    """
    bare = pl.col("item").str.strip_chars()
    traits = items.with_columns(bare.str.len_chars().alias(LENGTH), word=bare.str.to_lowercase())
    if tokens is not None:
        cut = tokens.select("item_id", pl.col("tokens").alias(TOKENS))
        traits = traits.join(cut, on="item_id", how="left", validate="1:1")
    if frequency is not None:
        known = frequency.select("word", pl.col("per_million").log().alias(FREQUENCY))
        traits = traits.join(known, on="word", how="left", validate="m:1")
    every = pl.concat([pl.DataFrame(schema=_TRAITS), traits], how="diagonal_relaxed")
    return every.select(pl.col(key).cast(kind) for key, kind in _TRAITS.items()).sort("item_id")


def items_controls(scores: ListScores, traits: pl.DataFrame) -> pl.DataFrame:
    """Rank correlation of the items' percentiles with their length and their frequency.

    A model's percentile of an item is its mean over the prompts; "all models" is the mean of these.
    Frequency is held equal for length, and length for frequency; where that is not known, `held` is
    "" and partial is spearman. p is two-sided and takes the items as a random sample.
    The table `CONTROLS` without q, of what `items_traits` returns.
    """
    known = traits.join(scores.items.select("item_id"), on="item_id", how="inner", validate="1:1")
    rows = []
    for view, at in views(scores):
        models, means = scores.means(at)
        named = [*zip(models, means, strict=True)]
        if len(models) > 1:
            named.append((ALL_MODELS, means.mean(axis=0)))
        for trait, other in _HELD.items():
            there, held = _known(known, trait, other)
            if not there.height:
                continue
            x, by = there[trait].to_numpy(), there.select(held).to_numpy().T
            chosen = scores.items["item_id"].is_in(there["item_id"].implode()).to_numpy()
            for model, percentiles in named:
                y = percentiles[chosen]
                rho = partial_spearman(x, y, np.empty((0, len(x))))
                cleared = partial_spearman(x, y, by)
                keys = (scores.name, view, model, trait)
                rows.append((*keys, len(x), rho.value, "".join(held), cleared.value, cleared.p))
    return _EACH.frame(rows)


def _known(traits: pl.DataFrame, trait: str, other: str) -> tuple[pl.DataFrame, list[str]]:
    """The items of which both traits are known, and the one to hold; else those of one trait.

    No items where too few have the trait, or all have the same.
    """
    for names in ([trait, other], [trait]):
        there = traits.drop_nulls(names)
        if there.height >= _LEAST and there[trait].n_unique() > 1:
            return there, names[1:]
    return traits.clear(), []


def views(scores: ListScores) -> list[tuple[str, Array]]:
    """The prompts of each framing, by its name; prompts without one, by their question."""
    framed = [(framing, scores.framed(framing)) for framing in (POSITIVE, NEGATIVE)]
    alone = [(name, at) for name, framing, at in scores.parts() if not framing and name != ALL]
    return [(name, at) for name, at in framed if len(at)] + alone[:SOME]


def _traits(study: Study, name: str) -> pl.DataFrame:
    items = study.tables["items_points", name].select(*ITEM).unique("item_id").sort("item_id")
    # A prompt under which each language model scored the list.
    keys = reversed(list(study.run.item_logprobs))
    first = {model: prompt for listed, model, prompt in keys if listed == name}
    cut = [study.run.replies(name, *key).select("item_id", "tokens") for key in first.items()]
    tokens = None
    if cut:
        each = pl.concat(cut).group_by("item_id", maintain_order=True)
        tokens = each.agg(pl.col("tokens").mean())
    try:
        frequency = lexicons.frequency(study.options.frequency)
    except lexicons.NoPackage:
        frequency = None
    return items_traits(items, tokens, frequency)


def _controls(study: Study) -> pl.DataFrame:
    """`items_controls` of every list; q is over the single models of a list, or over their mean."""
    each = pl.concat(
        items_controls(scores, study.tables["items_traits", scores.name])
        for scores in every_list(study)
    )
    required(each, f"Fewer than {_LEAST} items of a list differ in length.")
    mean = (pl.col("model") == ALL_MODELS).alias("mean")
    return with_q(each.with_columns(mean), within=["list", "mean"]).drop("mean")


def drawn(study: Study) -> Iterator[Block]:
    """Each list: the correlations of every model, and of their mean as a table."""
    controls = study.tables[CONTROLS.name]
    sure = pl.when(pl.col("q") < ALPHA).then(pl.lit("yes")).otherwise(pl.lit("no"))
    for name in lists_in(controls):
        rows = controls.filter(list=name)
        titled = pl.col("trait").replace(_TITLES)
        draw = partial(
            estimates,
            rows.select("model", titled, "asked", "partial", sure=sure),
            study.names,
            "partial Spearman’s ρ with the item’s percentile",
            value="partial",
            panel="trait",
            colour="asked",
            kinds=rows["asked"].unique(maintain_order=True).to_list(),
            hollow="sure",
            width=220,
        )
        caption = (
            "Right of zero, longer or commoner items stand higher. Frequency is held equal for "
            "length, and length for frequency, where the frequency of enough items is known. "
            "Filled: q < .05."
        )
        yield Heading(f"{name}: length and frequency")
        yield Picture(f"items_controls_{name}", caption, draw)
        yield from CONTROLS.rows(rows.filter(model=ALL_MODELS), unfolded=True)


def told(study: Study) -> Iterator[Finding]:
    """Whether the models together go by length or frequency, q < .05."""
    certain = significant(study.tables[CONTROLS.name]).filter(model=ALL_MODELS)
    for name in lists_in(certain):
        for trait in _SAID:
            for text in preferred(certain.filter(list=name, trait=trait)):
                yield Finding(text=text, picture=f"items_controls_{name}")


def preferred(certain: pl.DataFrame) -> list[str]:
    """Where longer or commoner items stand; of rows of one list and trait, of all models."""
    each = []
    for row in certain.iter_rows(named=True):
        purpose = ASKED_FOR.get(row["asked"], f"“{row['asked']}”")
        where = "higher" if row["partial"] > 0 else "lower"
        each.append(
            f"{where} when asked for {purpose} (partial ρ = {decimals(row['partial'])}, "
            f"{row['n']:,} items, {q_value(row['q'])})"
        )
    if not each:
        return []
    which, other = _SAID[certain["trait"][0]]
    held = f", {other} held equal" if all(certain["held"] != "") else ""
    name = certain["list"][0]
    return [f"{which} items of “{name}” stand {listed(each)} in the mean of the models{held}."]
