"""Models against people who ranked the same items (EloEverything, Fig 5)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import (
    KENDALL,
    LIST,
    MODEL,
    PROMPT,
    SPEARMAN,
    Block,
    Column,
    Heading,
    Picture,
    Section,
    notes,
    rows,
)
from analysis.chapters.agreement import kendall_matrix
from analysis.chapters.items import ROWS_SHOWN, lists_of_items
from analysis.ends import head_and_tail
from analysis.figures import style
from analysis.figures.heat_map import heat_map
from analysis.run import Run
from analysis.statistics import ranks
from analysis.study import Absent, Study, Table, table
from engine.runs.schema import Columns

HUMAN = "human"
_LIST: Columns = {"list": pl.String, "prompt": pl.String}
_CORRELATION: Columns = {**_LIST, "model": pl.String, "spearman": pl.Float64, "kendall": pl.Float64}


def tables(study: Study) -> Iterator[Table]:
    """humans_correlation.csv and humans_gap.csv.

    For the figures, by list and prompt: ("humans", …), ("humans_ranks", …), ("humans_kendall", …).
    """
    names = lists_of_items(study.run)
    made = study.tables
    for key in (key for key in study.run.lists() if key[0] in names):
        yield table("humans", *key, make=partial(_ranked_by_people, study, key), file=False)
    for key, sides in made.of("humans").items():
        yield table("humans_ranks", *key, make=partial(humans_ranks, sides), file=False)
        yield table("humans_kendall", *key, make=partial(humans_kendall, sides), file=False)
    yield table("humans_correlation", make=partial(_correlations, study))
    yield table("humans_gap", make=partial(_gaps, study))


def side_by_side(run: Run, items: str, prompt: str, models: Sequence[str]) -> pl.DataFrame | None:
    """Human scores and rewards of one list under one prompt, one row per item.

    Returns:
      item_id, item, elo_rank (1 is the best), human (elo_score: higher is better), and one column
      per model; sorted by item_id. None where the list has no human scores.
    """
    people = run.humans(items)
    scored = [m for m in models if (items, m, prompt) in run.items]
    if people is None or not scored:
        return None
    scores = run.item_scores(items, prompt, scored)
    human = people.select("item_id", "elo_rank", human="elo_score")
    joined = scores.join(human, on="item_id", how="inner", validate="1:1")
    return joined.select("item_id", "item", "elo_rank", HUMAN, *scored).sort("item_id")


def humans_correlation(sides: pl.DataFrame, items: str, prompt: str) -> pl.DataFrame:
    """Rank correlation of each model with the people.

    Args:
      sides: what `side_by_side` returns.
      items: name of the list.
      prompt: prompt id.

    Returns:
      The table `humans_correlation.csv`: list, prompt, model, spearman, kendall (tau-b).
      Spearman's takes the list's own ranks, and Kendall's the rounded Elo points with their ties,
      because these give the published values; the other choice changes either by at most 0.0004.
    """
    human, listed = sides[HUMAN].to_numpy(), -sides["elo_rank"].cast(pl.Float64).to_numpy()
    each = [
        (
            *(items, prompt, model),
            ranks.spearman(listed, sides[model].to_numpy()),
            ranks.kendall_tau(human, sides[model].to_numpy()),
        )
        for model in sides.columns[4:]
    ]
    return pl.DataFrame(each, schema=_CORRELATION, orient="row")


def humans_kendall(sides: pl.DataFrame) -> pl.DataFrame:
    """Kendall's tau-b between people and models, and among models: a square table."""
    return kendall_matrix(sides.drop("item_id", "elo_rank"))


def humans_ranks(sides: pl.DataFrame) -> pl.DataFrame:
    """Rank of every item for people and models: 1 is the best, ties share their mean rank.

    Returns:
      item_id, item, human_rank, and one column per model; sorted by item_id.
    """
    numbers = {
        "human_rank" if name == HUMAN else name: ranks.average_ranks(-sides[name].to_numpy())
        for name in sides.columns[3:]
    }
    return sides.select("item_id", "item").with_columns(
        **{name: pl.Series(values, dtype=pl.Float64) for name, values in numbers.items()}
    )


def humans_gap(
    ranked: pl.DataFrame, items: str, prompt: str, humans_in_median: bool = False
) -> pl.DataFrame:
    """How far the models' median rank of each item is from the people's.

    Args:
      ranked: what `humans_ranks` returns.
      items: name of the list.
      prompt: prompt id.
      humans_in_median: the quirk of the released code: the median runs over the models and the
        people. Only to reproduce the paper's Fig 5B.

    Returns:
      The table `humans_gap.csv`: list, prompt, item, human_rank, model_rank (median of the
      models' ranks), gap (model_rank - human_rank: positive where models rank the item lower), by
      falling gap, then by item.
    """
    columns = ranked.columns[3:] + (["human_rank"] if humans_in_median else [])
    median = np.median(ranked.select(columns).to_numpy(), axis=1)
    gaps = ranked.select(
        pl.lit(items).alias("list"),
        pl.lit(prompt).alias("prompt"),
        "item",
        "human_rank",
        model_rank=pl.Series(median, dtype=pl.Float64),
    )
    gaps = gaps.with_columns(gap=pl.col("model_rank") - pl.col("human_rank"))
    return gaps.sort("gap", "item", descending=[True, False])


def _ranked_by_people(study: Study, key: tuple[str, str]) -> pl.DataFrame:
    sides = side_by_side(study.run, *key, study.models)
    if sides is None or not sides.height:
        raise Absent(_UNKNOWN.format(key[0]))
    return sides


_UNKNOWN = "No human ranks of the items are known ({})."


def _correlations(study: Study) -> pl.DataFrame:
    known = _known(study, "humans")
    each = [humans_correlation(sides, *key) for key, sides in known.items()]
    return pl.concat(each)


def _gaps(study: Study) -> pl.DataFrame:
    quirk = study.options.humans_in_median
    known = _known(study, "humans_ranks")
    return pl.concat(humans_gap(ranked, *key, quirk) for key, ranked in known.items())


def _known(study: Study, name: str) -> dict[tuple[str, str], pl.DataFrame]:
    """(list, prompt) -> the table `name` of it."""
    known = {(items, prompt): frame for (items, prompt), frame in study.tables.of(name).items()}
    if not known:
        raise Absent(_unknown(study) or "No list of items was scored.")
    return known


def _unknown(study: Study) -> str | None:
    """Which lists have no human ranks; None where all have."""
    keys = (key for key in study.tables.absent if key[0] == "humans")
    names = ", ".join(sorted({items for _, items, _ in keys}))
    return _UNKNOWN.format(names) if names else None


_INSET = 1000  # Ranks of the lower panel.


@style.styled
def correlation_bars(table: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """Rank correlation of each model with the people, best first.

    Args:
      table: rows of `humans_correlation.csv` for one list and prompt.
      names: slug -> nickname.
    """
    table = table.sort("spearman", "model", descending=[True, False], nulls_last=True)
    figure = style.canvas(5.4, 0.3 * table.height + 0.9)
    ax = figure.subplots()
    colours = style.colours(names)
    for at, (model, rho, tau) in enumerate(table.select("model", "spearman", "kendall").rows()):
        if rho is not None and math.isfinite(rho):
            ax.barh(at, rho, color=colours[model], height=0.66)
            ax.plot(tau, at, "D", color="white", markeredgecolor=style.INK, markersize=4.5)
            text = style.minus(f"{rho:.2f}")
            ax.text(max(rho, 0) + 0.01, at, text, va="center", fontsize=8)
    ax.set_yticks(range(table.height), [style.name(names[m], 28) for m in table["model"]])
    ax.invert_yaxis()
    ax.axvline(0, color=style.INK, linewidth=0.8)
    ax.margins(x=0.12)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("Spearman’s ρ with the people (bar), Kendall’s τ (diamond)")
    return figure


@style.styled
def dumbbells(gaps: pl.DataFrame, count: int) -> style.Figure:
    """The items that the models rank most unlike the people: both ranks, joined by a line.

    Args:
      gaps: rows of `humans_gap.csv` for one list and prompt.
      count: items at each end.
    """
    gaps = gaps.sort("gap", "item", descending=[True, False])
    count = min(count, (gaps.height + 1) // 2)
    figure = style.canvas(7.2, 0.25 * 2 * count + 1.5)
    ends = (
        (gaps.head(count), "the models rank these lower than people do"),
        (gaps.tail(count)[::-1], "and these higher"),
    )
    for ax, (part, said), colour in zip(
        figure.subplots(2, 1, sharex=True), ends, (style.BOTTOM, style.TOP), strict=True
    ):
        _dumbbells(ax, part, colour)
        ax.set_title(said, loc="left", fontsize=9, fontweight="bold", color=colour)
    figure.supxlabel("rank (1 is best): ring people, dot median of the models", fontsize=9)
    return figure


def _dumbbells(ax: style.Axes, part: pl.DataFrame, colour: str) -> None:
    for at, (human, model) in enumerate(part.select("human_rank", "model_rank").iter_rows()):
        ax.plot([human, model], [at, at], color=colour, linewidth=1.6, alpha=0.6)
        ax.plot(human, at, "o", color="white", markeredgecolor=style.INK, markersize=5.5)
        ax.plot(model, at, "o", color=colour, markersize=5.5)
    ax.set_yticks(range(part.height), [style.token(item, 34) for item in part["item"]])
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=style.GRID, linewidth=0.7)
    ax.set_axisbelow(True)


@style.styled
def trajectories(
    ranked: pl.DataFrame, names: Mapping[str, str], items: Sequence[str]
) -> style.Figure:
    """The rank of some items for people and for each model; below, the first 1,000 ranks.

    Args:
      ranked: item_id, item, human_rank, then one column per model with its rank (1 is best).
      names: slug -> nickname, in the order of the columns of the figure.
      items: the items that are drawn and named.
    """
    models = [model for model in names if model in ranked.columns]
    columns = ["human_rank", *models]
    chosen = ranked.filter(pl.col("item").is_in(list(items))).unique("item").sort("human_rank")
    figure = style.canvas(0.72 * len(columns) + 3.4, 6.6)
    whole, inset = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    looks = style.looks(chosen["item"].to_list())
    for ax in (whole, inset):
        for at, row in enumerate(chosen.to_dicts()):
            colour, marker = looks[row["item"]]
            places = [row[column] for column in columns]
            line = "-" if at < 7 else "--"
            label = style.token(row["item"], 26)
            ax.plot(places, line, marker=marker, color=colour, markersize=4.5, lw=1.3, label=label)
        ax.grid(color=style.GRID, linewidth=0.7)
        ax.axvline(0.5, color=style.FAINT, linewidth=0.8, linestyle=":")
    whole.set_ylim(ranked.height * 1.02, -0.02 * ranked.height)
    inset.set_yscale("log")
    inset.set_ylim(min(_INSET, ranked.height) * 1.1, 0.9)
    labels = [HUMAN, *(style.name(names[model], 18) for model in models)]
    inset.set_xticks(range(len(columns)), labels, rotation=45, ha="right", rotation_mode="anchor")
    whole.set_ylabel("rank (1 is best)")
    inset.set_ylabel("the first 1,000, log scale")
    whole.legend(loc="center left", bbox_to_anchor=(1.01, 0.3), frameon=False, fontsize=8)
    return figure


def _figures(
    study: Study, items: str, prompt: str, ranked: pl.DataFrame
) -> dict[str, partial[style.Figure]]:
    """Kind of figure -> how it is drawn, for one list and prompt."""
    made, names = study.tables, study.names
    part = made["humans_correlation"].filter(list=items, prompt=prompt)
    gaps = made["humans_gap"].filter(list=items, prompt=prompt)
    best = ranked.sort("human_rank")["item"].head(3)
    apart = gaps.sort("gap", "item", descending=[True, False])["item"]
    chosen = list(dict.fromkeys([*best, *apart.head(4), *apart.tail(3)]))
    return {
        "correlation": partial(correlation_bars, part, names),
        "gap": partial(dumbbells, gaps, ROWS_SHOWN),
        "ranks": partial(trajectories, ranked, names, chosen),
        "kendall": partial(heat_map, made["humans_kendall", items, prompt], names, "Kendall’s τ"),
    }


def section(study: Study) -> Section:
    """Each list under each prompt, then the correlations of all."""
    made = study.tables
    reason = made.reason("humans_correlation") or _unknown(study)
    blocks: list[Block] = notes([reason])
    for (items, prompt), ranked in made.of("humans_ranks").items():
        stem = f"{items}_{prompt}"
        captions = {
            "correlation": "1 would be the people’s own order, 0 no relation to it.",
            "gap": "The items that the models together rank most unlike the people.",
            "ranks": "One line per item, from the people’s rank through every model’s. Below, the "
            "first thousand ranks on a logarithmic scale.",
            "kendall": "Kendall’s τ-b of every two orders of the items.",
        }
        gaps = made["humans_gap"].filter(list=items, prompt=prompt).sort("gap", descending=True)
        blocks += [
            Heading(f"{items}, prompt “{prompt}”"),
            *(
                Picture(f"humans_{name}_{stem}", captions[name], draw)
                for name, draw in _figures(study, items, prompt, ranked).items()
            ),
            *rows(head_and_tail(gaps, ROWS_SHOWN), _GAPS, "humans_gap.csv"),
        ]
    correlations = made.get("humans_correlation")
    return Section(
        id="humans",
        title="Against people",
        label="People",
        lead="Where people have ranked the same items, how close do models come, and what do they "
        "rank differently? A positive gap means that the models rank an item lower than people do.",
        blocks=[*blocks, *rows(correlations, _CORRELATIONS, "humans_correlation.csv")],
        caveats=(
            "The people are those who voted on one web site; they stand for nobody else.",
            "The models’ rank is a median: it may be far from every single model’s rank.",
        ),
    )


_CORRELATIONS: tuple[Column, ...] = (
    LIST,
    PROMPT,
    MODEL,
    SPEARMAN,
    KENDALL,
)
_GAPS: tuple[Column, ...] = (
    ("item", "item", "token"),
    ("human_rank", "people’s rank", "count"),
    ("model_rank", "models’ rank", "count"),
    ("gap", "gap", "count"),
)
