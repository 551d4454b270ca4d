"""Models against people who ranked the same items (EloEverything, Fig 5).

A list under a few prompts is compared under each; under many prompts, by question: a model is then
compared by its mean percentiles over the wordings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Files, Finding, Heading, Picture, Text, notes
from analysis.chapters.agreement import kendall_matrix
from analysis.chapters.items import FEW, ROWS_SHOWN, file_name
from analysis.charts.estimates import estimates
from analysis.charts.heat_map import heat_map
from analysis.charts.look import Chart
from analysis.columns import KENDALL, SPEARMAN
from analysis.ends import head_and_tail
from analysis.measures.human_agreement import (
    CORRELATION,
    GAP,
    beside,
    humans_correlation,
    humans_gap,
    humans_ranks,
    side_by_side,
)
from analysis.measures.list_scores import scores_of
from analysis.sentences import ALPHA, part_of, significant, unclear
from analysis.statistics import regression
from analysis.study import Absent, Analysis, Study, Table, table
from engine import display

_DRAWS = 999  # Shuffles of a list; `options.permutations` where that is lower.
_UNKNOWN = "No human ranks of the items are known ({})."


def _tables(study: Study) -> Iterator[Table]:
    """For the charts, of each list and prompt: "humans", "humans_ranks" and "humans_chance"."""
    made = study.tables
    for key in compared(study):
        yield table("humans", *key, make=partial(_ranked_by_people, study, key), file=False)
    for key, ranked in made.of("humans").items():
        yield table("humans_ranks", *key, make=partial(humans_ranks, ranked), file=False)
        yield table("humans_chance", *key, make=partial(_chance, study, key), file=False)
        yield table("humans_kendall", *key, make=partial(humans_kendall, ranked))
    yield table(CORRELATION.name, make=partial(_correlations, study))
    yield table(GAP.name, make=partial(_gaps, study))


def compared(study: Study) -> Iterator[tuple[str, str]]:
    """List and prompt of each comparison; of a list under many prompts, list and question."""
    for name in study.run.item_lists():
        prompts = [prompt for items, prompt in study.run.lists() if items == name]
        if len(prompts) > FEW and study.tables.get("items_points", name) is not None:
            for question, _, _ in scores_of(study, name).questions():
                yield name, file_name(question)
        else:
            yield from ((name, prompt) for prompt in prompts)


def sides(study: Study, key: tuple[str, str], least_matches: int = 0) -> pl.DataFrame | None:
    """People beside the models, as `side_by_side` has them; None where people ranked nothing."""
    name, prompt = key
    if key in study.run.lists():
        return side_by_side(study.run, name, prompt, study.models, least_matches)
    people, scores = study.run.humans(name), scores_of(study, name)
    if people is None:
        return None
    places = {file_name(question): at for question, _, at in scores.questions()}
    return beside(people, scores.table(places[prompt]), least_matches)


def humans_kendall(ranked: pl.DataFrame) -> pl.DataFrame:
    """Kendall's tau-b between people and models, and among models: a square table."""
    return kendall_matrix(ranked.drop("item_id", "matches"))


def _ranked_by_people(study: Study, key: tuple[str, str]) -> pl.DataFrame:
    least = study.options.humans_matches
    ranked = sides(study, key, least)
    if ranked is None:
        raise Absent(_UNKNOWN.format(key[0]))
    if not ranked.height:
        raise Absent(f"No item of {key[0]} was compared by people {least} times or more.")
    return ranked


def _chance(study: Study, key: tuple[str, ...]) -> pl.DataFrame:
    draws = min(_DRAWS, study.options.permutations)
    rng = np.random.default_rng(study.options.seed)
    return humans_chance(study.tables["humans_ranks", *key], rng, draws)


def humans_chance(ranked: pl.DataFrame, rng: np.random.Generator, draws: int) -> pl.DataFrame:
    """`regression.largest_by_chance` of a list, the column `nearest`.

    What people add is shuffled inside fifths of the items by how often people compared them;
    `ranked` is what `humans_ranks` returns.
    """
    matches = ranked["matches"].cast(pl.Float64).fill_null(0.0).to_numpy()
    bands = np.searchsorted(np.quantile(matches, (0.2, 0.4, 0.6, 0.8)), matches)
    models, human = ranked.select(ranked.columns[4:]).to_numpy().T, ranked["human_rank"].to_numpy()
    largest = regression.largest_by_chance(models, human, bands, rng, draws)
    return pl.DataFrame({"nearest": largest}, schema={"nearest": pl.Float64})


def _correlations(study: Study) -> pl.DataFrame:
    seed, draws = study.options.seed, study.options.bootstraps
    frames = (
        humans_correlation(ranked, *key, np.random.default_rng(seed), draws)
        for key, ranked in _known(study, "humans").items()
    )
    return CORRELATION.frame(pl.concat(frames))


def _gaps(study: Study) -> pl.DataFrame:
    quirk, chance = study.options.humans_in_median, study.tables.of("humans_chance")
    return pl.concat(
        humans_gap(ranked, *key, chance[key]["nearest"].to_numpy(), quirk)
        for key, ranked in _known(study, "humans_ranks").items()
    )


def _known(study: Study, name: str) -> dict[tuple[str, str], pl.DataFrame]:
    """(list, prompt) -> the table `name` of it."""
    known = {(key[0], key[1]): frame for key, frame in study.tables.of(name).items()}
    if not known:
        raise Absent(" ".join(_unknown(study)) or "No list of items was scored.")
    return known


def _unknown(study: Study) -> list[str]:
    """Why lists are not compared with people."""
    reasons = {key: why for key, why in study.tables.absent.items() if key[0] == "humans"}
    without = {items for (_, items, _), why in reasons.items() if why == _UNKNOWN.format(items)}
    other = dict.fromkeys(why for (_, items, _), why in reasons.items() if items not in without)
    return [*([_UNKNOWN.format(", ".join(sorted(without)))] if without else []), *other]


def _drawn(study: Study) -> Iterator[Block]:
    """Each list under each prompt."""
    made = study.tables
    yield from notes(_unknown(study) or [made.reason(CORRELATION.name)])
    for items, prompt in made.of("humans_ranks"):
        gaps, correlations = (
            made[spec.name].filter(list=items, prompt=prompt) for spec in (GAP, CORRELATION)
        )
        gaps = gaps.sort("residual", "item", descending=[True, False])
        yield Heading(f"{items}, asked {_called(study, prompt)}")
        everything = sides(study, (items, prompt))
        if everything is not None and (left := everything.height - gaps.height):
            yield Text(
                f"{left:,} of {everything.height:,} items, which people compared fewer than "
                f"{study.options.humans_matches} times, are left out.",
                "note",
            )
        matrix = made["humans_kendall", items, prompt]
        draws = {
            "correlation": partial(correlation, correlations, study.names),
            "kendall": partial(heat_map, matrix, study.names, "Kendall’s τ"),
        }
        for name, draw in draws.items():
            yield Picture(f"humans_{name}_{items}_{prompt}", _CAPTIONS[name], draw)
        yield from GAP.rows(head_and_tail(gaps, ROWS_SHOWN))
        yield Files([f"humans_kendall_{items}_{prompt}.csv"])
    yield from CORRELATION.rows(made.get(CORRELATION.name))
    yield from [Text(_HOW, "how")] * (made.get(GAP.name) is not None)


_CAPTIONS = {
    "correlation": "1 would be the people’s own order, 0 no relation to it. The lines are 95% "
    "intervals over the items.",
    "kendall": "Kendall’s τ-b of every two orders of the items.",
}
_HOW = (
    "Raw gaps mostly say where people rank an item: orders that agree in part regress to the mean. "
    "The residual is the models’ rank less the least-squares line on the people’s. “Nearest” is "
    "that of the model nearest to its own line, where all models stand on one side of theirs; its "
    "p is corrected for all items of the list and comes from draws in which what people add to "
    "the models’ common order is shuffled over items that people compared about as often. "
    "q is the p-value of ρ corrected over all models, lists and prompts, which are one family."
)


def _called(study: Study, prompt: str) -> str:
    """How the page calls a prompt, or a question."""
    return study.prompt_names.get(prompt, f"for “{prompt}”")


def correlation(table: pl.DataFrame, names: Mapping[str, str]) -> Chart:
    """Rank correlations of each model with the people, best first; of one list and prompt."""
    rho, tau = SPEARMAN.title, KENDALL.title
    best = table.sort("spearman", descending=True, nulls_last=True, maintain_order=True)
    first = best.select("model", "ci_low", "ci_high", kind=pl.lit(rho), value="spearman")
    second = best.select("model", kind=pl.lit(tau), value="kendall")
    correlations = pl.concat([first, second], how="diagonal")
    label = "correlation with people"
    return estimates(correlations, names, label, value="value", colour="kind", kinds=(rho, tau))


def _told(study: Study) -> Iterator[Finding]:
    correlations = study.tables[CORRELATION.name]
    prompt_names = {prompt: _called(study, prompt) for prompt in correlations["prompt"].unique()}
    yield from agreement_findings(correlations, prompt_names)
    yield from item_findings(study.tables[GAP.name])


def agreement_findings(
    correlations: pl.DataFrame, prompt_names: Mapping[str, str]
) -> Iterator[Finding]:
    """In how many models an order like people's, or its reverse, is sure."""
    for (items, prompt), part in correlations.group_by("list", "prompt", maintain_order=True):
        certain = significant(part)["spearman"]
        above, below = int((certain > 0).sum()), int((certain < 0).sum())
        if not above and not below:
            continue
        verb = "orders" if (above or below) == 1 else "order"
        done = f"{verb} “{items}” in part {'as people do' if above else 'in reverse'}"
        also = f", and {below} in reverse" if above and below else ""
        ordered = part.filter(pl.col("spearman").is_not_nan()).height
        models = part_of(above or below, ordered, "model")
        text = f"Asked {prompt_names[str(prompt)]}, {models} {done}{also}."
        yield Finding(text=text, picture=f"humans_correlation_{items}_{prompt}")


def item_findings(gaps: pl.DataFrame) -> Iterator[Finding]:
    """A sentence for each of the first items that every model surely ranks apart from people."""
    lists = gaps.partition_by("list", "prompt", maintain_order=True)
    for part in lists:
        certain = part.filter(pl.col("p_adjusted") < ALPHA / len(lists))
        for row in certain.sort("p_adjusted", "item").head(3).iter_rows(named=True):
            yield Finding(text=_apart(row, part.height))


def _apart(row: dict[str, Any], items: int) -> str:  # Any: cells of a table
    item = display.plain(row["item"])
    way = "lower" if row["nearest"] > 0 else "higher"
    return (
        f"Every model ranks “{item}” {way} than people’s rank predicts: people place it at "
        f"{row['human_rank']:,.0f} of {items:,}, and the models’ median is "
        f"{row['model_rank']:,.0f}. Even the nearest model is {abs(row['nearest']):,.0f} places "
        f"from it (p = {row['p_adjusted']:.3f}, corrected for all items)."
    )


ANALYSIS = Analysis(
    id="humans",
    title="Against people",
    label="People",
    lead="Where people have ranked the same items, how close do models come, and what do they rank "
    "differently? A positive gap means that the models rank an item lower than people do; the "
    "residual is what is left of it when regression to the mean is taken out.",
    make=_tables,
    parts=(_drawn,),
    told=(_told,),
    described=lambda study: unclear(
        study.tables[CORRELATION.name], "correlations of a model with people"
    ),
    caveats=lambda study: (
        "The people are those who voted on one web site; they stand for nobody else.",
        "The models’ rank is a median: it may be far from every single model’s rank.",
        "Intervals are over the items, not over people: they do not say what other people would "
        "have chosen.",
    ),
    every_prompt=True,
)
