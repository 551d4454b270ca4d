"""Models against people who ranked the same items (EloEverything, Fig 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import (
    INTERVAL,
    KENDALL,
    LIST,
    MODEL,
    P_AND_Q,
    PROMPT,
    SPEARMAN,
    Block,
    Column,
    Files,
    Finding,
    Heading,
    Picture,
    Section,
    Text,
    notes,
    rows,
)
from analysis.chapters import humans_by_question
from analysis.chapters.agreement import kendall_matrix
from analysis.chapters.items import ROWS_SHOWN
from analysis.charts.heat_map import heat_map
from analysis.ends import head_and_tail
from analysis.figures import human_ranks
from analysis.measures.human_agreement import LIST as KEYS
from analysis.measures.human_agreement import (
    humans_correlation,
    humans_gap,
    humans_ranks,
)
from analysis.sentences import decimals
from analysis.significant_effects import ALPHA, significant
from analysis.statistics import ranks, regression
from analysis.statistics.inference import with_q
from analysis.study import Absent, Study, Table, table
from engine import display
from engine.runs.schema import Columns

EVERY_PROMPT = True  # see analysis/report/few_prompts.py

_DRAWS = 999  # Shuffles of a list; `options.permutations` where that is lower.
_FIT: Columns = {
    **KEYS,
    **dict.fromkeys(("n", "left_out"), pl.Int64),
    **dict.fromkeys(
        ("intercept", "slope", "gap_pearson", "nearest", "chance_median", "chance_95"), pl.Float64
    ),
}


def tables(study: Study) -> Iterator[Table]:
    """humans_correlation.csv, humans_gap.csv, humans_fit.csv, humans_kendall_<list>_<prompt>.csv.

    For the figures, by list and prompt: ("humans", …), ("humans_ranks", …), ("humans_chance", …).
    """
    made = study.tables
    for key in humans_by_question.compared(study):
        yield table("humans", *key, make=partial(_ranked_by_people, study, key), file=False)
    for key, sides in made.of("humans").items():
        yield table("humans_ranks", *key, make=partial(humans_ranks, sides), file=False)
        yield table("humans_chance", *key, make=partial(_chance, study, key), file=False)
        yield table("humans_kendall", *key, make=partial(humans_kendall, sides))
    yield table("humans_correlation", make=partial(_correlations, study))
    yield table("humans_gap", make=partial(_gaps, study))
    yield table("humans_fit", make=partial(_fits, study))


def humans_kendall(sides: pl.DataFrame) -> pl.DataFrame:
    """Kendall's tau-b between people and models, and among models: a square table."""
    return kendall_matrix(sides.drop("item_id", "matches"))


def _ranked_by_people(study: Study, key: tuple[str, str]) -> pl.DataFrame:
    least = study.options.humans_matches
    sides = humans_by_question.sides(study, key, least)
    if sides is None:
        raise Absent(_UNKNOWN.format(key[0]))
    if not sides.height:
        raise Absent(f"No item of {key[0]} was compared by people {least} times or more.")
    return sides


_UNKNOWN = "No human ranks of the items are known ({})."


def _chance(study: Study, key: tuple[str, ...]) -> pl.DataFrame:
    draws = min(_DRAWS, study.options.permutations)
    rng = np.random.default_rng(study.options.seed)
    return humans_chance(study.tables["humans_ranks", *key], rng, draws)


def humans_chance(ranked: pl.DataFrame, rng: np.random.Generator, draws: int) -> pl.DataFrame:
    """`regression.largest_by_chance` of a list, the column `nearest`.

    What people add is shuffled inside fifths of the items by how often people compared them.

    Args:
      ranked: what `humans_ranks` returns.
      rng: draws the permutations.
      draws: number of permutations.
    """
    matches = ranked["matches"].cast(pl.Float64).fill_null(0.0).to_numpy()
    bands = np.searchsorted(np.quantile(matches, (0.2, 0.4, 0.6, 0.8)), matches)
    largest = regression.largest_by_chance(
        ranked.select(ranked.columns[4:]).to_numpy().T,
        ranked["human_rank"].to_numpy(),
        bands,
        rng,
        draws,
    )
    return pl.DataFrame({"nearest": largest}, schema={"nearest": pl.Float64})


def _correlations(study: Study) -> pl.DataFrame:
    known = _known(study, "humans")
    draws = study.options.bootstraps
    return with_q(
        pl.concat(
            humans_correlation(sides, *key, np.random.default_rng(study.options.seed), draws)
            for key, sides in known.items()
        )
    )


def _gaps(study: Study) -> pl.DataFrame:
    quirk = study.options.humans_in_median
    known = _known(study, "humans_ranks")
    chance = study.tables.of("humans_chance")
    return pl.concat(
        humans_gap(ranked, *key, chance[key]["nearest"].to_numpy(), quirk)
        for key, ranked in known.items()
    )


def _fits(study: Study) -> pl.DataFrame:
    """The regression of each list, and how large a residual no special item would have."""
    each = []
    for key in _known(study, "humans_ranks"):
        gaps = study.tables["humans_gap"].filter(list=key[0], prompt=key[1])
        largest = study.tables["humans_chance", *key]["nearest"]
        human, model = gaps["human_rank"].to_numpy(), gaps["model_rank"].to_numpy()
        everything = humans_by_question.sides(study, key)
        left_out = 0 if everything is None else everything.height - gaps.height
        nearest = float(np.abs(gaps["nearest"].to_numpy()).max())
        chance = [largest.quantile(level, "linear") for level in (0.5, 0.95)]
        numbers = (*regression.line(model, human), ranks.pearson(model - human, human), nearest)
        each.append((*key, gaps.height, left_out, *numbers, *chance))
    return pl.DataFrame(each, schema=_FIT, orient="row")


def _known(study: Study, name: str) -> dict[tuple[str, str], pl.DataFrame]:
    """(list, prompt) -> the table `name` of it."""
    known = {(items, prompt): frame for (items, prompt), frame in study.tables.of(name).items()}
    if not known:
        raise Absent(" ".join(_unknown(study)) or "No list of items was scored.")
    return known


def _unknown(study: Study) -> list[str]:
    """Why lists are not compared with people."""
    reasons = {key: why for key, why in study.tables.absent.items() if key[0] == "humans"}
    without = {items for (_, items, _), why in reasons.items() if why == _UNKNOWN.format(items)}
    other = dict.fromkeys(why for (_, items, _), why in reasons.items() if items not in without)
    return [*([_UNKNOWN.format(", ".join(sorted(without)))] if without else []), *other]


def _figures(
    study: Study, items: str, prompt: str, ranked: pl.DataFrame
) -> dict[str, partial[Any]]:
    """Kind of figure -> how it is drawn, for one list and prompt."""
    made, names = study.tables, study.names
    part = made["humans_correlation"].filter(list=items, prompt=prompt)
    gaps = made["humans_gap"].filter(list=items, prompt=prompt)
    best = ranked.sort("human_rank")["item"].head(3)
    apart = gaps.sort("residual", "item", descending=[True, False])["item"]
    chosen = list(dict.fromkeys([*best, *apart.head(4), *apart.tail(3)]))
    return {
        "correlation": partial(human_ranks.correlation_bars, part, names),
        "gap": partial(human_ranks.dumbbells, gaps, ROWS_SHOWN),
        "ranks": partial(human_ranks.trajectories, ranked, names, chosen),
        "kendall": partial(heat_map, made["humans_kendall", items, prompt], names, "Kendall’s τ"),
    }


_CAPTIONS = {
    "correlation": "1 would be the people’s own order, 0 no relation to it. The lines are 95% "
    "intervals over the items.",
    "gap": "The items that the models together rank most unlike what the people’s rank predicts. "
    "The bar is that prediction; in brackets, the item’s place by its raw gap.",
    "ranks": "One line per item, from the people’s rank through every model’s. Below, the first "
    "thousand ranks on a logarithmic scale.",
    "kendall": "Kendall’s τ-b of every two orders of the items.",
}


def section(study: Study) -> Section:
    """Each list under each prompt, then the correlations of all."""
    made = study.tables
    blocks: list[Block] = notes(_unknown(study) or [made.reason("humans_correlation")])
    for (items, prompt), ranked in made.of("humans_ranks").items():
        figures = _figures(study, items, prompt, ranked)
        gaps = made["humans_gap"].filter(list=items, prompt=prompt)
        gaps = gaps.sort("residual", "item", descending=[True, False])
        blocks += [
            Heading(f"{items}, prompt “{prompt}”"),
            *_left_out(study, items, prompt),
            *(
                Picture(f"humans_{name}_{items}_{prompt}", _CAPTIONS[name], draw)
                for name, draw in figures.items()
            ),
            *rows(head_and_tail(gaps, ROWS_SHOWN), _GAPS, "humans_gap.csv"),
            Files([f"humans_kendall_{items}_{prompt}.csv"]),
        ]
    blocks += rows(made.get("humans_fit"), _FITS, "humans_fit.csv", "Regression of the gaps")
    correlations = made.get("humans_correlation")
    blocks += rows(correlations, _CORRELATIONS, "humans_correlation.csv")
    blocks += [Text(_HOW, "how")] if correlations is not None else []
    return Section(
        id="humans",
        title="Against people",
        label="People",
        lead="Where people have ranked the same items, how close do models come, and what do they "
        "rank differently? A positive gap means that the models rank an item lower than people "
        "do; the residual is what is left of it when regression to the mean is taken out.",
        blocks=blocks,
        findings=[
            *agreement_findings(correlations, study.names),
            *item_findings(made.get("humans_gap")),
        ],
        caveats=(
            "The people are those who voted on one web site; they stand for nobody else.",
            "The models’ rank is a median: it may be far from every single model’s rank.",
            "Intervals are over the items, not over people: they do not say what other people "
            "would have chosen.",
        ),
    )


_HOW = (
    "Models and people agree in part, so models must rank lower what people rank first and higher "
    "what they rank last: raw gaps mostly say where people rank an item. The residual is the "
    "models’ rank less the least-squares line on the people’s rank. “Nearest” is the residual of "
    "the model that is nearest to its own line, where all models stand on one side of theirs; its "
    "p is corrected for all items of the list and comes from draws in which what people add to "
    "the models’ common order is shuffled over items that people compared about as often. "
    "q is the p-value of ρ corrected over all models, lists and prompts, which are one family."
)


def _left_out(study: Study, items: str, prompt: str) -> list[Block]:
    fit = study.tables["humans_fit"].row(
        by_predicate=(pl.col("list") == items) & (pl.col("prompt") == prompt), named=True
    )
    least = study.options.humans_matches
    count, of = fit["left_out"], fit["left_out"] + fit["n"]
    said = (
        f"{count:,} of {of:,} items, which people compared fewer than {least} times, are left out."
    )
    return [Text(said, "note")] if count else []


def agreement_findings(
    correlations: pl.DataFrame | None, names: Mapping[str, str]
) -> Iterator[Finding]:
    """One sentence for each list and prompt where a model surely ranks as people do, or against.

    Args:
      correlations: `humans_correlation.csv`, or None.
      names: slug -> nickname.
    """
    if correlations is None:
        return
    for (items, prompt), part in correlations.group_by("list", "prompt", maintain_order=True):
        certain = significant(part)["spearman"]
        if not len(certain):
            continue
        above, below = int((certain > 0).sum()), int((certain < 0).sum())
        each = part.filter(pl.col("spearman").is_not_nan()).sort("spearman", "model")
        ends = [each.row(0, named=True), each.row(-1, named=True)]
        said = [_with_interval(row, names[row["model"]]) for row in ends[: each.height]]
        signs = [f"above 0 for {above}"] if above else []
        signs += [f"below 0 for {below}"] if below else []
        text = (
            f"Spearman’s ρ with people on the {part['n'][0]:,} items of “{items}” under “{prompt}” "
            f"is {' and '.join(signs)} of {each.height} models (q < .05): {' to '.join(said)}."
        )
        yield Finding(text=text, picture=f"humans_correlation_{items}_{prompt}")


def item_findings(gaps: pl.DataFrame | None) -> Iterator[Finding]:
    """A sentence for each of the first items that every model surely ranks apart from people.

    Args:
      gaps: `humans_gap.csv`, or None.
    """
    if gaps is None:
        return
    lists = gaps.partition_by("list", "prompt", maintain_order=True)
    for part in lists:
        certain = part.filter(pl.col("p_adjusted") < ALPHA / len(lists))
        for row in certain.sort("p_adjusted", "item").head(3).iter_rows(named=True):
            picture = f"humans_gap_{row['list']}_{row['prompt']}"
            yield Finding(text=_apart(row, part.height), picture=picture)


def _with_interval(row: dict[str, Any], name: str) -> str:  # Any: cells of a table
    rho, low, high = (decimals(row[key]) for key in ("spearman", "ci_low", "ci_high"))
    return f"{rho} ({name}; 95% {low} to {high})"


def _apart(row: dict[str, Any], items: int) -> str:  # Any: cells of a table
    item = display.plain(row["item"])
    way = "lower" if row["nearest"] > 0 else "higher"
    return (
        f"Every model ranks “{item}” {way} than people’s rank predicts (people: place "
        f"{row['human_rank']:,.0f} of {items:,}; median of the models: {row['model_rank']:,.0f}), "
        f"the nearest of them by {abs(row['nearest']):,.0f} places: further than chance takes any "
        f"item of the list (p = {row['p_adjusted']:.3f}, corrected for all items)."
    )


_CORRELATIONS: tuple[Column, ...] = (
    LIST,
    PROMPT,
    MODEL,
    SPEARMAN,
    *INTERVAL,
    *P_AND_Q,
    KENDALL,
    ("n", "items", "count"),
)
_GAPS: tuple[Column, ...] = (
    ("item", "item", "token"),
    ("human_rank", "people’s rank", "count"),
    ("model_rank", "models’ rank", "count"),
    ("gap", "gap", "count"),
    ("gap_place", "place by gap", "count"),
    ("residual", "residual", "count"),
    ("residual_place", "place by residual", "count"),
    ("nearest", "nearest", "count"),
    ("p_adjusted", "p (corrected)", "p"),
    ("matches", "comparisons", "count"),
)
_FITS: tuple[Column, ...] = (
    LIST,
    PROMPT,
    ("n", "items", "count"),
    ("left_out", "left out", "count"),
    ("intercept", "intercept", "count"),
    ("slope", "slope", "fixed"),
    ("gap_pearson", "r of gap and people’s rank", "fixed"),
    ("nearest", "largest “nearest”", "count"),
    ("chance_median", "by chance, median", "count"),
    ("chance_95", "by chance, 95%", "count"),
)
