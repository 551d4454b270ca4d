"""A list under many prompts, read by question: the wordings of one question together.

Part of the chapter `items`; `analysis.words.questions` says what a question is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import P_AND_Q, Block, Column, Finding, Heading, Picture, rows
from analysis.ends import head_and_tail
from analysis.figures.standings import shown_items, standings
from analysis.measures.list_scores import ALL, ITEM, ListScores, every_list
from analysis.sentences import listed
from analysis.significant_effects import significant
from analysis.statistics import Array
from analysis.statistics.inference import with_q
from analysis.statistics.permutation_tests import mean_place_test
from analysis.study import Study, Table, required, table
from analysis.words.questions import ASKED_FOR, POSITIVE
from engine import display
from engine.runs.schema import Columns

SOME = 8  # Questions of a list up to which each has a table or a figure of its own.
_NAMED = 3  # Items that a finding names at each end.
_PROMPTS: Columns = dict.fromkeys(("list", "prompt", "question", "framing", "wording"), pl.String)
_QUESTIONS: Columns = {
    **dict.fromkeys(("list", "question", "framing"), pl.String),
    "prompts": pl.Int64,
    **ITEM,
    "n": pl.Int64,
    **dict.fromkeys(
        ("mean_percentile", "lowest", "highest", "wording_spread", "p", "q"), pl.Float64
    ),
}


def tables(study: Study) -> Iterator[Table]:
    """items_prompts.csv and items_questions.csv."""
    yield table("items_prompts", make=partial(_prompts, study))
    yield table("items_questions", make=partial(_questions, study))


def items_questions(scores: ListScores, rng: np.random.Generator, draws: int) -> pl.DataFrame:
    """Where each item of one list stands under each question.

    A model's percentile of an item is its mean over the wordings of the question.

    Args:
      scores: the list.
      rng: draws the null of p.
      draws: as in `mean_place_test`.

    Returns:
      The table `items_questions.csv`: list, question, framing, prompts (wordings), item_id, item,
      n (models), mean_percentile, lowest and highest (over the models), wording_spread (standard
      deviation of a model's percentiles over the wordings, mean over the models; null for one
      wording), p (two-sided: whether models whose orders have nothing in common would put the item
      so high or low in the mean), q (family: the items of the list under the question). By
      question as in `scores`, from the highest mean down, then by item_id.
    """
    frames = [pl.DataFrame(schema=_QUESTIONS)]
    for question, framing, at in scores.parts():
        models, means = scores.means(at)
        if question == ALL or not models:
            continue
        keys = (("list", scores.name), ("question", question), ("framing", framing))
        numbers = {
            "mean_percentile": means.mean(axis=0),
            "lowest": means.min(axis=0),
            "highest": means.max(axis=0),
            "wording_spread": _wording_spread(scores, at),
            "p": mean_place_test(means, rng, draws),
        }
        each = scores.items.with_columns(
            **{key: pl.lit(value) for key, value in keys},
            prompts=pl.lit(len(at), pl.Int64),
            n=pl.lit(len(models), pl.Int64),
            **{key: pl.Series(values, dtype=pl.Float64) for key, values in numbers.items()},
        ).with_columns(pl.col("wording_spread").fill_nan(None))
        place = pl.col("mean_percentile").round(12)
        each = with_q(each).sort(place, "item_id", descending=[True, False])
        frames.append(each.select(list(_QUESTIONS)))
    return pl.concat(frames)


def _wording_spread(scores: ListScores, at: Array) -> Array:
    """Deviation of each item's percentiles over the prompts `at`, mean over the models; [N]."""
    spreads = [
        scores.percentiles[m, at[known]].std(axis=0, ddof=1)
        for m, known in enumerate(scores.known[:, at])
        if known.sum() > 1
    ]
    return np.mean(spreads, axis=0) if spreads else np.full(scores.items.height, np.nan)


def _prompts(study: Study) -> pl.DataFrame:
    """Question, framing and wording of the prompts of each list: `items_prompts.csv`."""
    frames = [
        scores.prompts.with_columns(list=pl.lit(scores.name)).select(list(_PROMPTS))
        for scores in every_list(study)
    ]
    return pl.concat(frames)


def _questions(study: Study) -> pl.DataFrame:
    rng, draws = np.random.default_rng(study.options.seed), study.options.permutations
    frames = [items_questions(scores, rng, draws) for scores in every_list(study)]
    return required(pl.concat(frames), "No model has an order of the items of a list.")


def findings(study: Study, few: int) -> list[Finding]:
    """The items of each list that the models together put first and last, beyond chance.

    Items count that have q < .05 under every positive question, or, where the framing of the
    prompts is not known, under the list's first question.

    Args:
      study: the run and its tables.
      few: number of prompts of a list up to which each has a figure of its own.
    """
    standing, prompts = (study.tables.get(f"items_{name}") for name in ("questions", "prompts"))
    if standing is None or prompts is None:
        return []
    found = []
    for name in map(str, standing["list"].unique(maintain_order=True)):
        own = standing.filter(list=name)
        part = own.filter(framing=POSITIVE)
        if not part.height:
            part = own.filter(question=own["question"][0])
        of_list = prompts.filter(list=name)
        first = of_list.filter(question=part["question"][0])["prompt"][0]
        stem = f"standing_{name}_{first}" if of_list.height <= few else f"prompts_{name}"
        text = ends_beyond_chance(part)
        found += [Finding(text=text, picture=f"items_{stem}")] if text else []
    return found


def ends_beyond_chance(part: pl.DataFrame) -> str:
    """The items with q < .05 under every question of `part`, in words; "" where there are none.

    Args:
      part: rows of `items_questions` of one list.
    """
    asked = part["question"].unique(maintain_order=True).to_list()
    certain = significant(part).with_columns(high=pl.col("mean_percentile") > 0.5)
    each = certain.group_by("item_id", "item", "high", maintain_order=True).agg(
        asked=pl.len(), mean=pl.col("mean_percentile").mean()
    )
    each = each.filter(asked=len(asked)).sort("mean", "item_id", descending=[True, False])
    ends = (
        _named(each.filter(high=True).head(_NAMED), "highest"),
        _named(each.filter(high=False).tail(_NAMED).reverse(), "lowest"),
    )
    if not any(ends):
        return ""
    models = part.select(pl.col("n").max()).item()
    return (
        f"Asked for {listed([f'“{name}”' for name in asked])}, the {models} models together put "
        f"{' and '.join(filter(None, ends))} in the list “{part['list'][0]}”. Models whose orders "
        "have nothing in common would not put them there (q < .05 for each)."
    )


def _named(items: pl.DataFrame, end: str) -> str:
    names = [f"“{display.plain(item, 40)}”" for item in items["item"]]
    shares = listed([f"{100 * mean:.1f}" for mean in items["mean"]] or [""])
    return f"{listed(names)} {end} (mean percentiles {shares})" if names else ""


def blocks(study: Study, scores: ListScores, shown: int) -> list[Block]:
    """One list under many prompts: by question, and model by model for each framing.

    Args:
      study: the run and its tables.
      scores: the list.
      shown: rows at each end of a table.
    """
    name, top = scores.name, study.settings.figure_top
    standing = study.tables["items_questions"].filter(list=name)
    counts = standing.select("question", "prompts").unique(maintain_order=True)
    questions = {str(c): f"{c!s} ({n})" for c, n in counts.iter_rows()}
    groups = shown_items(over(standing, "mean_percentile"), top)
    draw = partial(standings, standing, "question", "mean_percentile", groups, questions)
    caption = (
        "One row per item, from the highest mean down; one column per question, with its number "
        "of wordings: the mean over wordings and models. A long list is shown in three groups: "
        "high whatever is asked, changed most by the question, and low whatever is asked."
    )
    made: list[Block] = [
        Heading(name, f"{scores.prompts.height} prompts, {len(questions)} questions"),
        Picture(f"items_prompts_{name}", caption, draw),
    ]
    for framing in (*ASKED_FOR, ""):
        at = scores.framed(framing)
        if len(at):
            made.append(_by_model(study, scores, at, framing))
    made += ends(study, name, shown)
    return [*made, *rows(counts, _COUNTS, "items_prompts.csv", f"{name}: questions")]


def ends(study: Study, name: str, shown: int) -> list[Block]:
    """The first and last items of a list under each of the first questions, as tables."""
    standing = study.tables.get("items_questions")
    if standing is None:
        return []
    made: list[Block] = []
    own = standing.filter(list=name)
    for question in own["question"].unique(maintain_order=True).head(SOME):
        both = head_and_tail(own.filter(question=question), shown)
        title = f"{name}: “{question}”"
        made += rows(both, _QUESTION_COLUMNS, "items_questions.csv", title)
    return made


def _by_model(study: Study, scores: ListScores, at: Array, framing: str) -> Picture:
    """Where the items stand with every model over the prompts `at`."""
    models, means = scores.means(at)
    cells = pl.concat(
        scores.items.with_columns(
            model=pl.lit(model), percentile=pl.Series(values, dtype=pl.Float64)
        )
        for model, values in zip(models, means, strict=True)
    )
    groups = shown_items(over(cells, "percentile"), study.settings.figure_top)
    asked = f", asked for {ASKED_FOR[framing]}" if framing else ""
    caption = (
        f"The models{asked}: each one’s mean over the {len(at)} prompts. "
        "Disputed items, in the middle, are those on which models differ most."
    )
    stem = "_".join(filter(None, ("items_models", scores.name, framing)))
    draw = partial(standings, cells, "model", "percentile", groups, study.names)
    return Picture(stem, caption, draw)


def over(cells: pl.DataFrame, value: str) -> pl.DataFrame:
    """item_id, item, mean, lowest and highest of `value`; from the highest mean down.

    Percentiles are compared because the rewards of two models have no common unit. Means that
    differ only by rounding are ties, which go to the lower item_id.
    """
    values = pl.col(value)
    each = cells.group_by("item_id", "item", maintain_order=True).agg(
        mean=values.mean(), lowest=values.min(), highest=values.max()
    )
    return each.sort(pl.col("mean").round(12), "item_id", descending=[True, False])


_QUESTION_COLUMNS: tuple[Column, ...] = (
    ("item", "item", "token"),
    ("n", "models", "count"),
    ("mean_percentile", "mean percentile", "share"),
    ("lowest", "lowest", "share"),
    ("highest", "highest", "share"),
    ("wording_spread", "spread over wordings", "share"),
    *P_AND_Q,
)
_COUNTS: tuple[Column, ...] = (
    ("question", "question", "text"),
    ("prompts", "wordings", "count"),
)
