"""Do models go by the length of an item, or by how common a word it is?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations

import numpy as np
import polars as pl

from analysis.blocks import P_AND_Q, Block, Column, Finding, Heading, Picture, Section, notes, rows
from analysis.chapters.items_agreement import lists_in
from analysis.chapters.items_framing import ALL_MODELS
from analysis.chapters.items_questions import SOME
from analysis.figures import style
from analysis.measures.list_scores import ALL, ITEM, ListScores, every_list
from analysis.sentences import decimals, q_value
from analysis.significant_effects import ALPHA, significant
from analysis.statistics import Array
from analysis.statistics.correlation import partial_spearman
from analysis.statistics.inference import with_q
from analysis.study import Study, Table, required, table
from analysis.words import lexicons
from analysis.words.questions import ASKED_FOR, NEGATIVE, POSITIVE
from engine.runs.schema import Columns

EVERY_PROMPT = True  # see analysis/report/few_prompts.py

LENGTH, TOKENS, FREQUENCY = "characters", "tokens", "log frequency"
_LEAST = 10  # Items of which a trait is known, for a correlation.
_TRAITS: Columns = {**ITEM, **dict.fromkeys((LENGTH, TOKENS, FREQUENCY), pl.Float64)}
_HELD = {LENGTH: FREQUENCY, TOKENS: FREQUENCY, FREQUENCY: LENGTH}
_CONTROLS: Columns = {
    **dict.fromkeys(("list", "asked", "model", "trait"), pl.String),
    "n": pl.Int64,
    "spearman": pl.Float64,
    "held": pl.String,
    **dict.fromkeys(("partial", "p"), pl.Float64),
}
_CONTROLLED: Columns = {
    **dict.fromkeys(("list", "asked", "held"), pl.String),
    **dict.fromkeys(("models", "pairs", "n"), pl.Int64),
    **dict.fromkeys(("spearman", "partial"), pl.Float64),
}


def tables(study: Study) -> Iterator[Table]:
    """items_controls.csv and items_controlled.csv. For other chapters: ("items_traits", list)."""
    for (name,) in study.tables.of("items_points"):
        yield table("items_traits", name, make=partial(_traits, study, name), file=False)
    yield table("items_controls", make=partial(_controls, study))
    yield table("items_controlled", make=partial(_controlled, study))


def items_traits(
    items: pl.DataFrame, tokens: pl.DataFrame | None, frequency: pl.DataFrame | None
) -> pl.DataFrame:
    """Length and frequency of each item.

    Args:
      items: item_id, item.
      tokens: item_id, tokens, where a language model has cut the items into tokens.
      frequency: what `lexicons.frequency` returns, where there is such a list.

    Returns:
      item_id, item, characters, tokens, log frequency (natural log of occurrences per million words
      of the item as one word, in any case; null where it is not known); sorted by item_id.
    """
    word = pl.col("item").str.strip_chars().str.to_lowercase()
    table = items.select(
        *ITEM, word=word, **{LENGTH: pl.col("item").str.strip_chars().str.len_chars()}
    )
    none = pl.lit(None, pl.Float64)
    if tokens is None:
        table = table.with_columns(none.alias(TOKENS))
    else:
        table = table.join(
            tokens.select("item_id", pl.col("tokens").alias(TOKENS)),
            on="item_id",
            how="left",
            validate="1:1",
        )
    if frequency is None:
        table = table.with_columns(none.alias(FREQUENCY))
    else:
        known = frequency.select("word", pl.col("per_million").log().alias(FREQUENCY))
        table = table.join(known, on="word", how="left", validate="m:1")
    return table.select(pl.col(name).cast(dtype) for name, dtype in _TRAITS.items()).sort("item_id")


def items_controls(scores: ListScores, traits: pl.DataFrame) -> pl.DataFrame:
    """Rank correlation of the items' percentiles with their length and their frequency.

    A model's percentile of an item is its mean over the prompts. The test takes the items as a
    random sample; "all models" is the mean of the models' percentiles.

    Args:
      scores: the list.
      traits: what `items_traits` returns.

    Returns:
      The table `items_controls.csv`: list, asked (the framing of the prompts, or one question where
      they have none), model, trait, n (items of which it is known), spearman, held (the trait that
      is held equal: frequency for length, length for frequency; "" where it is not known), partial
      (Spearman's rho with that trait held equal), p (two-sided, of partial).
    """
    known = traits.join(scores.items.select("item_id"), on="item_id", how="inner", validate="1:1")
    found = []
    for asked, at in views(scores):
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
                rho, _ = partial_spearman(x, y, np.empty((0, len(x))))
                cleared, p = partial_spearman(x, y, by)
                keys = (scores.name, asked, model, trait)
                found.append((*keys, len(x), rho, "".join(held), cleared, p))
    return pl.DataFrame(found, schema=_CONTROLS, orient="row")


def _known(traits: pl.DataFrame, trait: str, other: str) -> tuple[pl.DataFrame, list[str]]:
    """The items of which both traits are known, and the one to hold; else those of one trait.

    No items where too few have the trait, or all have the same.
    """
    for names in ([trait, other], [trait]):
        there = traits.drop_nulls(names)
        if there.height >= _LEAST and there[trait].n_unique() > 1:
            return there, names[1:]
    return traits.clear(), []


def items_controlled(scores: ListScores, traits: pl.DataFrame) -> pl.DataFrame:
    """Agreement of the models on one list, before and after length and frequency are held equal.

    Args:
      scores: the list.
      traits: what `items_traits` returns.

    Returns:
      The table `items_controlled.csv`: list, asked (as in `items_controls`), held (the traits that
      are held equal), models, pairs, n (items), spearman and partial (means over the pairs of
      models of the rank correlation of their mean percentiles, over the same items).
    """
    known = traits.join(scores.items.select("item_id"), on="item_id", how="inner", validate="1:1")
    there, _ = _known(known, FREQUENCY, LENGTH)
    held = [LENGTH, FREQUENCY] if there.height else [LENGTH]
    there = there if there.height else known
    chosen = scores.items["item_id"].is_in(there["item_id"].implode()).to_numpy()
    by = there.select(held).to_numpy().T
    found = []
    for asked, at in views(scores):
        models, means = scores.means(at)
        pairs = list(combinations(means[:, chosen], 2))
        if pairs:
            none = np.empty((0, int(chosen.sum())))
            numbers = [
                float(np.mean([partial_spearman(x, y, h)[0] for x, y in pairs])) for h in (none, by)
            ]
            counts = (len(models), len(pairs), int(chosen.sum()))
            found.append((scores.name, asked, " and ".join(held), *counts, *numbers))
    return pl.DataFrame(found, schema=_CONTROLLED, orient="row")


def views(scores: ListScores) -> list[tuple[str, Array]]:
    """The prompts of each framing, by its name; prompts without one, by their question."""
    framed = [(framing, scores.framed(framing)) for framing in (POSITIVE, NEGATIVE)]
    alone = [
        (question, at)
        for question, framing, at in scores.parts()
        if not framing and question != ALL
    ]
    return [(name, at) for name, at in framed if len(at)] + alone[:SOME]


def _traits(study: Study, name: str) -> pl.DataFrame:
    items = study.tables["items_points", name].select(*ITEM).unique("item_id").sort("item_id")
    cut = [
        study.run.replies(items_list, model, prompt).select("item_id", "tokens")
        for model, (items_list, prompt) in _first(study, name).items()
    ]
    tokens = None
    if cut:
        each = pl.concat(cut).group_by("item_id", maintain_order=True)
        tokens = each.agg(pl.col("tokens").mean())
    try:
        frequency = lexicons.frequency(study.options.frequency)
    except lexicons.LexiconError:
        frequency = None
    return items_traits(items, tokens, frequency)


def _first(study: Study, name: str) -> dict[str, tuple[str, str]]:
    """Language model -> the list and a prompt under which it scored the list."""
    keys = reversed(list(study.run.item_logprobs))
    return {model: (items, prompt) for items, model, prompt in keys if items == name}


def _controls(study: Study) -> pl.DataFrame:
    frames = [
        items_controls(scores, study.tables["items_traits", scores.name])
        for scores in every_list(study)
    ]
    each = required(pl.concat(frames), f"Fewer than {_LEAST} items of a list differ in length.")
    together = (pl.col("model") == ALL_MODELS).alias("together")
    return with_q(each.with_columns(together), within=["list", "together"]).drop("together")


def _controlled(study: Study) -> pl.DataFrame:
    _ = study.tables["items_controls"]
    frames = [
        items_controlled(scores, study.tables["items_traits", scores.name])
        for scores in every_list(study)
    ]
    return required(pl.concat(frames), "Agreement takes two models.")


_SHOWN = {LENGTH: "length in characters", TOKENS: "length in tokens", FREQUENCY: "frequency"}


@style.styled
def correlations(
    table: pl.DataFrame, names: Mapping[str, str], traits: Sequence[str]
) -> style.Figure:
    """Partial rank correlation with each trait: one panel per trait, one row per model.

    Args:
      table: rows of `items_controls.csv` of one list.
      names: slug -> nickname, in the order of the rows; other entries of `model` follow.
      traits: the traits, from the left.
    """
    there = table["model"].unique(maintain_order=True).to_list()
    order = [m for m in names if m in there] + [m for m in there if m not in names]
    looks = style.looks(table["asked"].unique(maintain_order=True))
    figure = style.canvas(2.6 * len(traits) + 1.8, 0.3 * len(order) + 1.3)
    axes = figure.subplots(1, len(traits), sharey=True, squeeze=False)[0]
    for ax, trait in zip(axes, traits, strict=True):
        for row in table.filter(trait=trait).iter_rows(named=True):
            colour, marker = looks[row["asked"]]
            fill = colour if row["q"] is not None and row["q"] < ALPHA else "white"
            at = order.index(row["model"])
            ax.plot(row["partial"], at, marker, color=colour, markerfacecolor=fill, markersize=5.5)
        ax.axvline(0, color=style.INK, linewidth=0.8)
        ax.set_title(_SHOWN[trait], loc="left", fontsize=9, fontweight="bold")
        ax.grid(axis="x", color=style.GRID, linewidth=0.7)
        ax.set_axisbelow(True)
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(order)), [style.name(names.get(m, m), 28) for m in order])
    axes[0].set_ylim(len(order) - 0.5, -0.5)
    figure.supxlabel("partial Spearman’s ρ with the item’s percentile", fontsize=9)
    style.legend(figure, looks)
    return figure


def section(study: Study) -> Section:
    """Each list: the correlations, and the agreement that is left without them."""
    made = study.tables
    controls = made.get("items_controls")
    blocks: list[Block] = notes([made.reason("items_controls")])
    for name in lists_in(controls):
        own = made["items_controls"].filter(list=name)
        traits = own["trait"].unique(maintain_order=True).to_list()
        caption = (
            "Right of zero, longer or commoner items stand higher. Frequency is held equal for "
            "length, and length for frequency, where the frequency of enough items is known. "
            "Filled: q < .05."
        )
        draw = partial(correlations, own, study.names, traits)
        blocks += [
            Heading(name),
            Picture(f"items_controls_{name}", caption, draw),
            *rows(own.filter(model=ALL_MODELS), _COLUMNS, "items_controls.csv", unfolded=True),
        ]
        left = made.get("items_controlled")
        if left is not None:
            title = f"{name}: agreement with length and frequency held equal"
            own = left.filter(list=name)
            blocks += rows(own, _LEFT, "items_controlled.csv", title, unfolded=True)
    return Section(
        id="items_controls",
        title="Length and frequency on lists",
        label="Length on lists",
        lead="Do models prefer long items, or common words? The rank correlation of an item’s "
        "percentile with its length and its frequency, each with the other held equal.",
        blocks=blocks,
        caveats=(
            "Long and rare words mean other things than short and common ones: a correlation is "
            "no proof that the model counts letters.",
            "The test takes the items as a random sample of such items.",
        ),
        findings=findings(controls),
    )


def findings(controls: pl.DataFrame | None) -> list[Finding]:
    """Whether the models together go by length or frequency, q < .05.

    Args:
      controls: `items_controls` with q; None gives no finding.
    """
    if controls is None:
        return []
    certain = significant(controls).filter(model=ALL_MODELS)
    texts = {
        (name, trait): preferred(certain.filter(list=name, trait=trait))
        for name in lists_in(certain)
        for trait in _SAID
    }
    return [
        Finding(text=text, picture=f"items_controls_{name}")
        for (name, _), text in texts.items()
        if text
    ]


def preferred(certain: pl.DataFrame) -> str:
    """Where longer or commoner items stand, in words; "" for no rows.

    Args:
      certain: rows of `items_controls` of one list and trait, of all models.
    """
    each = []
    for row in certain.iter_rows(named=True):
        asked = ASKED_FOR.get(row["asked"], f"“{row['asked']}”")
        where = "higher" if row["partial"] > 0 else "lower"
        each.append(
            f"{where} when asked for {asked} (partial ρ = {decimals(row['partial'])}, {row['n']:,} "
            f"items, {q_value(row['q'])})"
        )
    if not each:
        return ""
    which, other = _SAID[certain["trait"][0]]
    held = f", {other} held equal" if all(certain["held"] != "") else ""
    name = certain["list"][0]
    return f"{which} items of “{name}” stand {' and '.join(each)} in the mean of the models{held}."


_SAID = {LENGTH: ("Longer", "frequency"), FREQUENCY: ("Commoner", "length")}
_COLUMNS: tuple[Column, ...] = (
    ("asked", "asked", "text"),
    ("trait", "trait", "text"),
    ("n", "items", "count"),
    ("spearman", "Spearman’s ρ", "fixed"),
    ("held", "held equal", "text"),
    ("partial", "partial ρ", "fixed"),
    *P_AND_Q,
)
_LEFT: tuple[Column, ...] = (
    ("asked", "asked", "text"),
    ("held", "held equal", "text"),
    ("n", "items", "count"),
    ("pairs", "pairs of models", "count"),
    ("spearman", "mean ρ", "fixed"),
    ("partial", "mean partial ρ", "fixed"),
)
