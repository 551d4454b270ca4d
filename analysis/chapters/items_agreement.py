"""How far the orders of a list agree: between models, and between the prompts of one model."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Heading, Picture, notes
from analysis.chapters import items_framing
from analysis.chapters.agreement import kendall_matrix
from analysis.chapters.blocs import BLOCS, PAIRS, blocs_table, kendall_pairs, with_nicknames
from analysis.chapters.items import FRAMING, QUESTION
from analysis.charts.heat_map import heat_map
from analysis.columns import LIST, Column, Spec, ends, several
from analysis.measures.list_scores import ListScores, every_list, names_of, of_list, sample
from analysis.sentences import listed
from analysis.statistics import Array, kendall
from analysis.statistics.kendall import FEWEST, Order, tau_b_matrix
from analysis.study import Analysis, Study, Table, required, table
from analysis.words.questions import ASKED_FOR, NEGATIVE, POSITIVE

_FRAMED = tuple(f"{framing} prompts" for framing in (POSITIVE, NEGATIVE))
ITEM_PAIRS = Spec(
    "items_pairs",
    (
        LIST,
        QUESTION.but(
            help="then `positive prompts`, `negative prompts` and `all prompts` where there are "
            "several"
        ),
        *(FRAMING, *several("model", "model_a model_b"), Column("prompts", "count")),
        Column("kendall", "fixed", help="mean of τ-b over the prompts"),
        *several("fixed", "kendall_spread", "standard deviation over them"),
        *several("fixed", "spearman spearman_spread"),
        Column(
            "kendall_of_means",
            "fixed",
            help="of the models' mean percentiles; "
            "this and the following of all prompts of a framing",
        ),
        *ends("fixed", "95 % for all pairs under the framing together, over items"),
        *(*several("share", "concordant discordant", "shares"), Column("stems", "count")),
    ),
)
AGREEMENT = Spec(
    "items_agreement",
    (
        *(LIST, QUESTION.but(help="as in items_pairs.csv"), FRAMING),
        *several("count", "prompts models pairs items"),
        Column("kendall", "fixed", "mean τ", "mean of τ-b over pairs and prompts"),
        *ends(
            "fixed",
            "95 %, over items; they reach 0 where two unrelated orders of as many items could give "
            "the mean",
        ),
        Column("lowest", "fixed", "lowest pair"),
        Column("highest", "fixed", "highest pair", "pair"),
        *several("fixed", "prompt_spread", "standard deviation over the prompts"),
        Column("spearman", "fixed", "mean ρ"),
    ),
    page="question prompts models kendall ci_low ci_high lowest highest prompt_spread spearman",
)
ITEM_BLOCS = Spec(
    "items_blocs",
    (LIST, FRAMING.but(title="asked"), *(column.but(help="") for column in BLOCS.columns)),
    page="framing relation pairs kendall ci_low ci_high models other_models",
    help="as in `blocs_<prompt>.csv`, from items_pairs.csv",
)


def _tables(study: Study) -> Iterator[Table]:
    yield table(ITEM_PAIRS.name, make=partial(_pairs, study))
    yield table(AGREEMENT.name, make=partial(_agreement, study))
    yield table(ITEM_BLOCS.name, make=partial(_blocs, study))
    yield from items_framing.tables(study)


def items_pairs(scores: ListScores) -> pl.DataFrame:
    """Agreement of every two models on one list, by question.

    Tau and rho are computed prompt by prompt and then averaged. Of all prompts of a framing the
    models' mean percentiles are compared too, with an interval.

    Returns:
      The table `ITEM_PAIRS`. `prompts` are those under which both models have an order; spreads are
      null for one prompt.
    """
    frames = []
    alone = len(list(scores.parts())) == 1
    for (question, framing, at), grouped in _by_question(scores, _by_prompt(scores)):
        framed = framing != "" if alone else question in _FRAMED
        ordered = _of_means(scores, at if framed else at[:0])
        both = ["model_a", "model_b"]
        joined = grouped.join(
            ordered, on=both, how="full", coalesce=True, validate="1:1", maintain_order="left_right"
        )
        counted = joined.with_columns(pl.col("prompts").fill_null(0))
        same = {"list": scores.name, "question": question, "framing": framing}
        frames.append(ITEM_PAIRS.frame(counted, **same))
    return ITEM_PAIRS.concat(frames)


def _by_question(
    scores: ListScores, each: pl.DataFrame
) -> Iterator[tuple[tuple[str, str, Array], pl.DataFrame]]:
    """Each part of the prompts, and the means of every two models over its prompts."""
    *parts, last = scores.parts()
    for part in (*parts, *(scores.framings() if parts else ()), last):
        pairs = each.filter(pl.col("prompt").is_in(part[2].tolist()))
        grouped = pairs.group_by("model_a", "model_b", maintain_order=True)
        both = pl.col("kendall", "spearman")
        count = pl.len().cast(pl.Int64).alias("prompts")
        yield part, grouped.agg(count, both.mean(), both.std().name.suffix("_spread"))


def _of_means(scores: ListScores, at: Array) -> pl.DataFrame:
    """`kendall_pairs` of the models' mean percentiles over the prompts `at`."""
    models, means = scores.means(at)
    pairs = PAIRS.frame([])
    if len(models) > 1:
        each = dict(zip(models, means, strict=True))
        matrix = kendall_matrix(pl.DataFrame({"token": scores.items["item"], **each}))
        orders = {model: Order.of(x) for model, x in each.items()}
        pairs = kendall_pairs(scores.items["item"], orders, matrix)
    return pairs.rename({"kendall": "kendall_of_means"})


def items_agreement(scores: ListScores, rng: np.random.Generator) -> pl.DataFrame:
    """Mean agreement of all pairs of models on one list, by question: the table `AGREEMENT`.

    Intervals take the items as a random sample, of which `rng` draws some of a long list; models
    and prompts are fixed. Lowest and highest are means over prompts of one pair.
    """
    each = _by_prompt(scores)
    shares = _shares(scores, rng)
    rows = []
    for (question, framing, at), pairs in _by_question(scores, each):
        known = [p for p in at.tolist() if p in shares]
        if not known:
            continue
        over = each.filter(pl.col("prompt").is_in(known)).group_by("prompt", maintain_order=True)
        means = over.agg(pl.col("kendall", "spearman").mean())
        value = float(means["kendall"].to_numpy().mean())
        share = np.mean([shares[p] for p in known], axis=0)
        tau = kendall.sum_interval(share, value, scores.items.height)
        models = {*pairs["model_a"], *pairs["model_b"]}
        counts = (len(known), len(models), pairs.height, scores.items.height)
        lowest, highest = pairs["kendall"].min(), pairs["kendall"].max()
        numbers = (*tau[:3], lowest, highest, means["kendall"].std())
        rho = means["spearman"].mean()
        rows.append((scores.name, question, framing, *counts, *numbers, rho))
    return AGREEMENT.frame(rows)


def items_blocs(scores: ListScores, pairs: pl.DataFrame) -> pl.DataFrame:
    """Blocs of models that order one list alike: the table `ITEM_BLOCS` of its `items_pairs`."""
    frames = []
    known = pairs.filter(pl.col("stems").is_not_null()).drop("kendall")
    known = known.rename({"kendall_of_means": "kendall"})
    for (framing,), framed in known.group_by("framing", maintain_order=True):
        there = {*framed["model_a"], *framed["model_b"]}
        blocs = blocs_table(framed, [model for model in scores.models if model in there])
        frames.append(ITEM_BLOCS.frame(blocs, list=scores.name, framing=framing))
    return ITEM_BLOCS.concat(frames)


def square(pairs: pl.DataFrame, question: str = "") -> pl.DataFrame:
    """Kendall's tau of rows of `ITEM_PAIRS` as a square table: model, then the models.

    Of one question, or of the last, which is all prompts.
    """
    of_question = pairs.filter(pl.col("prompts") > 0, question=question or pairs["question"][-1])
    both = pl.concat([of_question["model_a"], of_question["model_b"]]).unique(maintain_order=True)
    there = of_question.select(model="model_a", other="model_b", tau="kendall")
    mirrored = there.select(model="other", other="model", tau="tau")
    diagonal = pl.DataFrame({"model": both, "other": both, "tau": 1.0})
    cells = pl.concat([there, mirrored, diagonal])
    wide = cells.pivot("other", index="model", values="tau", sort_columns=False)
    return (
        both.to_frame("model").join(wide, on="model", maintain_order="left").select("model", *both)
    )


def _by_prompt(scores: ListScores) -> pl.DataFrame:
    """Prompt (its place), model_a, model_b, kendall, spearman: every pair that has an order."""
    rows = []
    for p in range(scores.prompts.height):
        known = np.flatnonzero(scores.known[:, p])
        if len(known) < 2:
            continue
        x = scores.percentiles[known, p]
        taus, rhos = tau_b_matrix(x), np.corrcoef(x)
        for i, j in itertools.combinations(range(len(known)), 2):
            names = (scores.models[known[i]], scores.models[known[j]])
            rows.append((p, *names, float(taus[i, j]), float(rhos[i, j])))
    names = ("prompt", "model_a", "model_b", "kendall", "spearman")
    types = (pl.Int64, pl.String, pl.String, pl.Float64, pl.Float64)
    return pl.DataFrame(rows, schema=dict(zip(names, types, strict=True)), orient="row")


def _shares(scores: ListScores, rng: np.random.Generator) -> dict[int, Array]:
    """Place of a prompt -> each item's share in the mean tau of the pairs of models under it."""
    at = sample(scores, rng)
    shares = {}
    for p in range(scores.prompts.height):
        known = np.flatnonzero(scores.known[:, p])
        if len(known) > 1:
            weights = np.ones((len(known), len(known))) - np.eye(len(known))
            x = scores.percentiles[known, p][:, at]
            shares[p] = kendall.contributions(x, weights[None] / weights.sum())[0]
    return shares


def _pairs(study: Study) -> pl.DataFrame:
    why = "Agreement on a list takes two models that scored it under one prompt."
    pairs = pl.concat(map(items_pairs, every_list(study)))
    required(pairs.filter(pl.col("prompts") > 0), why)
    return pairs


def _agreement(study: Study) -> pl.DataFrame:
    _ = study.tables[ITEM_PAIRS.name]
    rng = np.random.default_rng(study.options.seed)
    return pl.concat(items_agreement(scores, rng) for scores in every_list(study))


def _blocs(study: Study) -> pl.DataFrame:
    pairs = study.tables[ITEM_PAIRS.name]
    blocs = [items_blocs(each, pairs.filter(list=each.name)) for each in every_list(study)]
    why = "No two models scored a list under prompts whose framing is known."
    return required(pl.concat(blocs), why)


def file_name(question: str) -> str:
    """`question` as a part of a file's name."""
    return re.sub(r"[^\w.-]+", "_", question)


def _drawn(study: Study) -> Iterator[Block]:
    """Each list: heat maps of the models, then the prompts of each model."""
    specs = (ITEM_PAIRS, items_framing.BETWEEN, items_framing.PROMPT_KINDS)
    for name in names_of(study):
        if any(of_list(study, spec, name).height for spec in specs):
            yield from (Heading(name), *_of_models(study, name), *items_framing.drawn(study, name))
    yield from notes(study.tables.reason(spec.name) for spec in specs)


def _of_models(study: Study, name: str) -> Iterator[Block]:
    """A heat map of each framing, or of all prompts where none is known; then the numbers."""
    pairs = of_list(study, ITEM_PAIRS, name)
    parts = pairs["question"].unique(maintain_order=True).to_list()
    for part in [part for part in parts if part in _FRAMED] or parts[-1:]:
        purpose = f", asked for {ASKED_FOR[part.split()[0]]}" if part in _FRAMED else ""
        caption = f"Kendall’s τ-b of every two models{purpose}: the mean over the prompts."
        draw = partial(heat_map, square(pairs, part), study.names, "Kendall’s τ")
        yield Picture(_picture(name, part), caption, draw)
    yield from AGREEMENT.rows(of_list(study, AGREEMENT, name))
    blocs = of_list(study, ITEM_BLOCS, name)
    named = with_nicknames(blocs, study, "models", "other_models")
    yield from ITEM_BLOCS.rows(named, title=f"{name}: blocs")


def _picture(name: str, question: str) -> str:
    part = f"_{file_name(question)}" if question in _FRAMED else ""
    return f"items_kendall_{name}{part}"


def _told(study: Study) -> Iterator[Finding]:
    """Whether the models agree on each list, and what the framing does."""
    for name in names_of(study):
        if said := list(_said(study, name)):
            texts, pictures = zip(*said, strict=True)
            yield Finding(text=" ".join(texts), picture=pictures[-1])


def _said(study: Study, name: str) -> Iterator[tuple[str, str]]:
    """The sentences on a list, and the charts that show them."""
    pairs, blocs = (of_list(study, spec, name) for spec in (ITEM_PAIRS, ITEM_BLOCS))
    for row in framed_rows(of_list(study, AGREEMENT, name)):
        # A mean over models that oppose one another describes none of them.
        of, text = {"framing": row["framing"]}, ""
        if row["framing"]:
            text = opposition(pairs.filter(**of), blocs.filter(**of), study.names)
        if text := text or agreement_beyond_chance(row):
            yield text, _picture(name, row["question"])
    kinds = of_list(study, items_framing.PROMPT_KINDS, name)
    if text := items_framing.framing_beyond_chance(kinds):
        yield text, f"items_prompt_kinds_{name}"


def framed_rows(agreement: pl.DataFrame) -> list[dict[str, Any]]:  # Any: cells of a table
    """The rows of `AGREEMENT` of one list that sentences are about.

    One per framing, or the last where there is none: opposite framings cancel in a mean.
    """
    framed = agreement.filter(pl.col("question").is_in(_FRAMED))
    return (framed if framed.height else agreement.tail(1)).to_dicts()


def agreement_beyond_chance(row: Mapping[str, Any]) -> str:  # Any: cells of a table
    """Whether the models agree on a list.

    "" where the interval of their mean tau holds 0, and of fewer than 10 items; `row` is a row of
    `AGREEMENT`.
    """
    if row["items"] < FEWEST or not (row["ci_low"] > 0 or row["ci_high"] < 0):
        return ""
    start = f"Asked for {ASKED_FOR[row['framing']]}, the" if row["framing"] else "The"
    verb = "agree" if row["kendall"] > 0 else "disagree"
    return (
        f"{start} {row['models']} models {verb} more than chance on the order of “{row['list']}”."
    )


def opposition(pairs: pl.DataFrame, blocs: pl.DataFrame, names: Mapping[str, str]) -> str:
    """Which models order a list in opposite ways.

    "" where no interval is below 0, and of fewer than 10 items; `pairs` and `blocs` are rows of
    `ITEM_PAIRS` and `ITEM_BLOCS` of one framing.
    """
    if not pairs.filter(pl.col("ci_high") < 0, pl.col("stems") >= FEWEST).height:
        return ""
    opposed = blocs.filter(pl.col("relation").is_in(["opposed", "disagree"]))
    most = opposed.sort("kendall", "models", "other_models").head(1)
    ways = "largely" if "opposed" in most["relation"] else "partly"
    who = ""
    if most.height:
        sides = most.select("models", "other_models").row(0)
        who = f": {' against '.join(listed([names[m] for m in s.split()]) for s in sides)}"
    return (
        f"Asked for {ASKED_FOR[pairs['framing'][0]]}, some models order “{pairs['list'][0]}” in "
        f"{ways} opposite ways{who}."
    )


ANALYSIS = Analysis(
    id="items_agreement",
    title="Agreement on lists",
    lead="How alike do two models order the items of a list, and does one model order it by the "
    "question, by its wording, or alike whatever is asked? Kendall’s τ is computed under each "
    "prompt, or between two prompts of one model; then the mean is taken.",
    make=_tables,
    parts=(_drawn,),
    told=(_told,),
    caveats=lambda study: (
        "The intervals take the items as a sample of such items, and the prompts as they are. They "
        "say nothing about other questions or other models: those here share bases and data.",
    ),
    every_prompt=True,
)
