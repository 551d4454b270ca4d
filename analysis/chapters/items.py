"""Lists of replies: what each model rates first and last of them, and how alike models order them.

A list under more than a few prompts is read by question: the wordings of one question together
(`analysis.words.questions`). Opposite framings are kept apart, because their percentiles cancel.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Files, Finding, Heading, Picture, notes
from analysis.chapters import agreement
from analysis.chapters.agreement import kendall_matrix
from analysis.charts.cells import standings
from analysis.charts.estimates import estimates
from analysis.charts.heat_map import heat_map
from analysis.columns import LIST, MODEL, Column, P, Spec, ends, q, several
from analysis.ends import head_and_tail
from analysis.measures import list_scores
from analysis.measures.list_scores import (
    ListScores,
    every_list,
    incomparable,
    names_of,
    of_list,
    scores_of,
)
from analysis.sentences import count, decimals, listed, significant
from analysis.statistics import Array, kendall
from analysis.statistics.inference import Estimate
from analysis.statistics.kendall import FEWEST, Order, tau_b_matrix
from analysis.statistics.permutation_tests import mean_place_test
from analysis.study import Analysis, Study, Table, table
from analysis.words.questions import ASKED_FOR, POSITIVE
from engine import display

ALL_MODELS = "all models"
FEW = 3  # Prompts of a list up to which each has a figure of its own.
ROWS_SHOWN = 10  # Rows at each end of a list on the page; the file holds all.
_SOME = 8  # Questions of a list up to which each has a table of its own.
_NAMED = 3  # Items that a finding names at each end.
_SAMPLE = 1_000  # Items from which an interval is computed, drawn where a list is longer.
QUESTION, FRAMING = Column("question"), Column("framing", help="`positive`, `negative` or empty")
ITEM_ID, ITEM = Column("item_id", "count", "item id", dtype=pl.UInt32), Column("item", "token")
QUESTIONS = Spec(
    "items_questions",
    (
        *(LIST, QUESTION.but(help="what the prompts ask for"), FRAMING),
        *(Column("prompts", "count", "wordings", "wordings"), ITEM_ID, ITEM),
        Column("n", "count", "models", "models"),
        *several("share", "mean_percentile lowest highest", "over the models"),
        P.but(help="against models whose orders have nothing in common"),
        q("list", "question"),
    ),
    page="item n mean_percentile lowest highest p q",
)
PAIRS = Spec(
    "items_pairs",
    (
        *(LIST, QUESTION.but(help="or `positive prompts`, `negative prompts` of several"), FRAMING),
        *(column.but(help="") for column in agreement.PAIRS.columns),
    ),
    help="as in `kendall_pairs_<prompt>.csv`, of the models' mean percentiles of the items",
)
AGREEMENT = Spec(
    "items_agreement",
    (
        LIST,
        QUESTION.but(
            help="then `positive prompts`, `negative prompts` and `all prompts` where there are "
            "several"
        ),
        *(FRAMING.but(help=""), *several("count", "prompts models pairs items")),
        Column("kendall", "fixed", "mean τ", "mean of τ-b over pairs and prompts"),
        *ends(
            "fixed",
            "95 %, over items; they reach 0 where two unrelated orders of as many items could give "
            "the mean",
        ),
        Column("lowest", "fixed", "lowest pair"),
        Column("highest", "fixed", "highest pair", "pair"),
    ),
    page="question prompts models kendall ci_low ci_high lowest highest",
)
MODELS = Spec(
    "items_models",
    (
        *(LIST, MODEL.but(help="and `all models`"), Column("items", "count")),
        Column("pairs", "count", "pairs of prompts", "of a positive and a negative prompt"),
        Column("kendall", "fixed", "τ of opposite framings", "mean of τ-b over these pairs"),
        *ends("fixed", "95 %, over items; they reach 0 as in items_agreement.csv"),
    ),
    page="model kendall ci_low ci_high pairs",
)


def _tables(study: Study) -> Iterator[Table]:
    """The tables. For other chapters: ("items_points", list)."""
    run, draws = study.run, study.options.permutations
    for name in run.item_lists():
        make = partial(list_scores.items_points, run, name, study.models)
        why = f"No item of “{name}” was scored by every model of a prompt."
        yield table("items_points", name, make=make, file=False, why=why)
    unordered = "No model has an order of the items of a list."
    alone = "Agreement on a list takes two models that scored it under one prompt."

    def drawn(make: Callable[..., pl.DataFrame], *given: int) -> Callable[[], pl.DataFrame]:
        rng = np.random.default_rng(study.options.seed)
        return lambda: pl.concat(make(scores, rng, *given) for scores in every_list(study))

    yield table(QUESTIONS.name, make=drawn(items_questions, draws), why=unordered)
    yield table(PAIRS.name, make=lambda: pl.concat(map(items_pairs, every_list(study))), why=alone)
    yield table(AGREEMENT.name, make=drawn(items_agreement), why=alone)
    yield table(MODELS.name, make=drawn(items_models), why=unordered)


def items_questions(scores: ListScores, rng: np.random.Generator, draws: int) -> pl.DataFrame:
    """Where each item of one list stands under each question: the table `QUESTIONS`.

    A model's percentile of an item is its mean over the wordings of the question. From the highest
    mean down, then by item_id; p is two-sided, of `mean_place_test`.
    """
    frames = []
    for question, framing, at in scores.questions():
        models, means = scores.means(at)
        if not models:
            continue
        same = {"list": scores.name, "question": question, "framing": framing}
        numbers = {
            "mean_percentile": means.mean(axis=0),
            "lowest": means.min(axis=0),
            "highest": means.max(axis=0),
            "p": mean_place_test(means, rng, draws),
        }
        measured = scores.items.with_columns(
            **{key: pl.Series(values, dtype=pl.Float64) for key, values in numbers.items()}
        )
        place = pl.col("mean_percentile").round(12)
        rows = QUESTIONS.frame(measured, **same, prompts=len(at), n=len(models))
        frames.append(rows.sort(place, "item_id", descending=[True, False]))
    return QUESTIONS.concat(frames)


def items_pairs(scores: ListScores) -> pl.DataFrame:
    """Agreement of every two models on one list: the table `PAIRS`, view by view.

    Intervals hold for all pairs of a view together; forms of one word are resampled together.
    """
    frames = []
    for question, framing, at in scores.views():
        places = scores.table(at).drop("item_id")
        if places.width > 2:
            orders = {model: Order.of(places[model].to_numpy()) for model in places.columns[1:]}
            pairs = agreement.kendall_pairs(places["item"], orders, kendall_matrix(places))
            same = {"list": scores.name, "question": question, "framing": framing}
            frames.append(PAIRS.frame(pairs, **same))
    return PAIRS.concat(frames)


def items_agreement(scores: ListScores, rng: np.random.Generator) -> pl.DataFrame:
    """Mean agreement of all pairs of models on one list, by question: the table `AGREEMENT`.

    Tau is computed prompt by prompt, then averaged. Intervals take the items as a random sample, of
    which `rng` draws some of a long list; models and prompts are fixed. Lowest and highest are
    means over prompts of one pair.
    """
    sample, size = _sample(scores, rng), scores.items.height
    cells: list[tuple[int, str, str, float]] = []
    shares = {}  # Prompt -> what each item contributes to the mean tau of its pairs.
    for p, known in enumerate(scores.known.T):
        models, x = np.flatnonzero(known), scores.percentiles[known, p]
        if len(models) > 1:
            taus = tau_b_matrix(x)
            for i, j in itertools.combinations(range(len(models)), 2):
                pair = (scores.models[models[i]], scores.models[models[j]])
                cells.append((p, *pair, float(taus[i, j])))
            weights = np.ones(taus.shape) - np.eye(len(models))
            shares[p] = kendall.contributions(x[:, sample], weights[None] / weights.sum())[0]
    names = ("prompt", "model_a", "model_b", "kendall")
    by_prompt = pl.DataFrame(cells, schema=names, orient="row")
    rows = []
    for question, framing, at in scores.parts():
        if at := [p for p in at.tolist() if p in shares]:
            part = by_prompt.filter(pl.col("prompt").is_in(at))
            by_pair, means = (
                part.group_by(keys, maintain_order=True).agg(pl.col("kendall").mean())
                for keys in (["model_a", "model_b"], ["prompt"])
            )
            share, value = np.mean([shares[p] for p in at], axis=0), means["kendall"].to_numpy()
            tau = kendall.sum_interval(share, float(value.mean()), size)
            models = {*by_pair["model_a"], *by_pair["model_b"]}
            counts = (len(at), len(models), by_pair.height, size)
            ends_ = by_pair["kendall"].min(), by_pair["kendall"].max()
            rows.append((scores.name, question, framing, *counts, *tau[:3], *ends_))
    return AGREEMENT.frame(rows)


def _sample(scores: ListScores, rng: np.random.Generator) -> Array:
    """The items from which intervals are computed: all, or 1,000 drawn from a longer list."""
    size = scores.items.height
    return np.sort(rng.choice(size, _SAMPLE, replace=False)) if size > _SAMPLE else np.arange(size)


def items_models(scores: ListScores, rng: np.random.Generator) -> pl.DataFrame:
    """Model by model, whether it goes by the framing: the table `MODELS`.

    A model that follows the question has a negative tau between opposite framings. Its interval
    takes the items as a random sample, of which `rng` draws some of a long list. The row of all
    models is their mean, over those that have such a tau.
    """
    if not scores.known.any():
        return MODELS.frame([])
    sample, size = _sample(scores, rng), scores.items.height
    framing = scores.prompts["framing"].to_numpy()
    opposite = (framing[:, None] != framing) & (framing[:, None] != "") & (framing != "")
    rows, taus, shares = [], [], []
    for model, known, x in zip(scores.models, scores.known, scores.percentiles, strict=True):
        apart = opposite[np.ix_(known, known)]
        tau = Estimate(math.nan)
        if apart.any():
            weights = apart / apart.sum()
            taus.append(float((weights * tau_b_matrix(x[known])).sum()))
            shares.append(kendall.contributions(x[known][:, sample], weights[None])[0])
            tau = kendall.sum_interval(shares[-1], taus[-1], size)
        rows.append((model, int(apart.sum()) // 2, tau))
    mean = Estimate(math.nan)
    if taus:
        mean = kendall.sum_interval(np.mean(shares, axis=0), float(np.mean(taus)), size)
    rows.append((ALL_MODELS, sum(pairs for _, pairs, _ in rows), mean))
    return MODELS.frame((scores.name, model, size, pairs, *tau[:3]) for model, pairs, tau in rows)


def _drawn(study: Study) -> Iterator[Block]:
    """Each list: where its items stand, how alike models order it, and model by model."""
    lists = every_list(study)
    yield from notes(incomparable(study))
    for scores in lists:
        yield Heading(scores.name, count(scores.prompts.height, "prompt"))
        yield from _standing(study, scores)
        yield from _agreement(study, scores)
        yield from _model_by_model(study, scores.name)
    yield Files([f"{spec.name}.csv" for spec in (PAIRS,) if spec.name in study.tables.files])


def _standing(study: Study, scores: ListScores) -> Iterator[Block]:
    """Where the items stand: in each model under each question, or where there are many prompts."""
    name, standing = scores.name, of_list(study, QUESTIONS, scores.name)
    counts = standing.select("question", "prompts").unique(maintain_order=True)
    draw, views = partial(standings, count=study.settings.figure_top), [*scores.questions()]
    if scores.prompts.height > FEW and counts.height:
        columns = {question: f"{question} ({n})" for question, n in counts.iter_rows()}
        by_question = partial(draw, standing, "question", columns)
        yield Picture(f"items_prompts_{name}", _QUESTIONS, by_question)
        views = scores.views()[:_SOME]
    for part, framing, at in views:
        cells = scores.table(at).unpivot(
            index=["item_id", "item"], variable_name="model", value_name="mean_percentile"
        )
        if cells.height:
            caption = f"{_asked(study, part, framing, at)}. {_MODELS}"
            by_model = partial(draw, cells, "model", study.names)
            yield Picture(_stem("standing", name, part), caption, by_model)
    for question in counts["question"].head(_SOME):
        at_ends = head_and_tail(standing.filter(question=question), ROWS_SHOWN)
        yield from QUESTIONS.rows(at_ends, title=f"{name}: “{question}”")


_MODELS = (
    "One row per item, one column per model; of a long list the highest means, the items on which "
    "models differ most, and the lowest means."
)
_QUESTIONS = (
    "One row per item, one column per question with its number of wordings: the mean over wordings "
    "and models. Of a long list: high whatever is asked, changed most by the question, and low "
    "whatever is asked."
)


def _agreement(study: Study, scores: ListScores) -> Iterator[Block]:
    """A heat map of the models for each view of a list, and the numbers of every question."""
    name = scores.name
    for part, framing, at in scores.views()[:_SOME]:
        orders = scores.table(at).drop("item_id")
        if orders.width > 2:
            asked = _asked(study, part, framing, at)
            caption = f"{asked}. Kendall’s τ-b of every two models, by their mean percentiles."
            draw = partial(heat_map, kendall_matrix(orders), study.names, "Kendall’s τ")
            yield Picture(_stem("kendall", name, part), caption, draw)
    yield from AGREEMENT.rows(of_list(study, AGREEMENT, name), title=f"{name}: agreement")


def _model_by_model(study: Study, name: str) -> Iterator[Block]:
    """Tau of opposite framings with its interval, and the table `MODELS`."""
    models = of_list(study, MODELS, name)
    if models["pairs"].sum():
        names = {**study.names, ALL_MODELS: ALL_MODELS}
        label = "Kendall’s τ between opposite framings"
        draw = partial(estimates, models, names, label, value="kendall")
        yield Picture(f"items_framing_{name}", _FRAMING, draw)
    yield from MODELS.rows(models, title=f"{name}: model by model")


_FRAMING = (
    "How alike one model orders the items when asked for something good and for something bad, in "
    "any words. Below zero it follows the question. Lines are 95% intervals over the items."
)


def _asked(study: Study, part: str, framing: str, at: Array) -> str:
    """What the prompts `at` of a view ask for."""
    asked = study.prompt_names.get(part, f"for “{part}”")
    if part == f"{framing} prompts":
        asked = f"for {ASKED_FOR[framing]}"
    return f"Asked {asked} ({count(len(at), 'prompt')})"


def _stem(kind: str, name: str, part: str) -> str:
    return f"items_{kind}_{name}_{file_name(part)}"


def file_name(question: str) -> str:
    """`question` as a part of a file's name."""
    return re.sub(r"[^\w.-]+", "_", question)


def _told(study: Study) -> Iterator[Finding]:
    """Of each list the items at its ends, whether models agree, and what the framing does."""
    for name in names_of(study):
        scores, standing = scores_of(study, name), of_list(study, QUESTIONS, name)
        good = standing.filter(framing=POSITIVE)
        first = next(iter((good if good.height else standing)["question"]), "")
        asked = study.prompt_names.get(first, f"for “{first}”")
        if text := ends_beyond_chance(standing.filter(question=first), asked):
            many = scores.prompts.height > FEW
            stem = f"items_prompts_{name}" if many else _stem("standing", name, first)
            yield Finding(text=text, picture=stem)
        for part, _, _ in scores.views()[:2]:
            agreement, pairs = (
                of_list(study, spec, name).filter(question=part) for spec in (AGREEMENT, PAIRS)
            )
            if text := agreement_beyond_chance(agreement, pairs, study.names):
                yield Finding(text=text, picture=_stem("kendall", name, part))
        if text := framing_beyond_chance(of_list(study, MODELS, name)):
            yield Finding(text=text, picture=f"items_framing_{name}")


def ends_beyond_chance(part: pl.DataFrame, asked: str) -> str:
    """The items with q < .05 at both ends of a question, in a sentence; "" where there is none.

    Args:
      part: rows of `QUESTIONS` of one list and question.
      asked: what the page calls the question.
    """
    certain, place = significant(part), pl.col("mean_percentile")
    ends = {
        "highest": certain.filter(place > 0.5).head(_NAMED)["item"],
        "lowest": certain.filter(place < 0.5).tail(_NAMED).reverse()["item"],
    }
    clauses = [
        f"{listed([f'“{display.plain(item, 40)}”' for item in items])} {end}"
        for end, items in ends.items()
        if len(items)
    ]
    if not clauses:
        return ""
    models, name = part.select("n", "list").row(0)
    unsure = [f"; no item is surely {end}" for end, items in ends.items() if not len(items)]
    return (
        f"Asked {asked}, the {models} models together rate {' and '.join(clauses)} of the "
        f"list “{name}”{''.join(unsure)}."
    )


def agreement_beyond_chance(
    agreement: pl.DataFrame, pairs: pl.DataFrame, names: Mapping[str, str]
) -> str:
    """How many pairs of models disagree on the order of a list, or if none do, whether all agree.

    "" where neither is certain, and of fewer than 10 items. Tables are of one list and question.
    """
    if not agreement.height or agreement["items"][0] < FEWEST:
        return ""
    row = agreement.row(0, named=True)
    opposed = pairs.filter(pl.col("ci_high") < 0, pl.col("stems") >= FEWEST)
    start = f"Asked for {ASKED_FOR[row['framing']]}, " if row["framing"] else ""
    if opposed.height:
        most = opposed.sort("kendall").row(0, named=True)
        furthest = f"{names[most['model_a']]} and {names[most['model_b']]}"
        order = f"disagree more than chance on the order of “{row['list']}”"
        tau = f"(τ = {decimals(most['kendall'])})"
        if pairs.height == 1:
            return f"{start}{furthest} {order} {tau}."
        some = f"{opposed.height} of {pairs.height} pairs of models"
        return f"{start}{some} {order}, {furthest} most {tau}."
    if row["ci_low"] > 0:
        return (
            f"{start}{'the' if start else 'The'} {row['models']} models agree more than chance on "
            f"the order of “{row['list']}” (mean τ = {decimals(row['kendall'])})."
        )
    return ""


def framing_beyond_chance(models: pl.DataFrame) -> str:
    """What the opposite framing does to the order of a list.

    "" where the interval of the mean tau holds 0, and of fewer than 10 items; `models` are rows of
    `MODELS` of one list.
    """
    mean = models.filter(pl.col("items") >= FEWEST, model=ALL_MODELS)
    if not mean.height or not (mean["ci_low"][0] > 0 or mean["ci_high"][0] < 0):
        return ""
    framed = models.filter(pl.col("model") != ALL_MODELS, pl.col("pairs") > 0)
    below, above = (framed["ci_high"] < 0).sum(), (framed["ci_low"] > 0).sum()
    order = f"the order of “{models['list'][0]}” in part"
    done = f"the models together {'reverse' if mean['kendall'][0] < 0 else 'keep'} {order}"
    if below and above:  # Their mean says what none of them does.
        done = f"of {framed.height} models {below} reverse {order}, and {above} keep it"
    return f"Asked for something bad instead of something good, {done}."


ANALYSIS = Analysis(
    id="items",
    title="Lists of replies",
    label="Lists",
    lead="Which replies of a list do the models rate first and last, how alike do they order it, "
    "and does one model turn its order round when the opposite is asked? An item’s percentile is "
    "the share of the list that a model rates lower, counting half of what it rates alike.",
    make=_tables,
    parts=(_drawn,),
    told=(_told,),
    caveats=lambda study: (
        "A longer reply is another reply: models may go by length or spelling, not by meaning.",
        "An item with a middling mean may be first for some models and last for others.",
        "Intervals take the items as a sample of such items, and the prompts and models as given.",
    ),
    every_prompt=True,
)
