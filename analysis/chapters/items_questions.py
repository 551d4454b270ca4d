"""A list under many prompts, read by question: the wordings of one question together.

Part of the chapter `items`; `analysis.words.questions` says what a question is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.columns import LIST, PROMPT, Column, P, Spec, q
from analysis.measures.list_scores import ALL, ListScores, every_list
from analysis.sentences import listed
from analysis.significant_effects import significant
from analysis.statistics import Array
from analysis.statistics.permutation_tests import mean_place_test
from analysis.study import Study, Table, required, table
from engine import display

SOME = 8  # Questions of a list up to which each has a table of its own.
_NAMED = 3  # Items that a finding names at each end.
QUESTION, FRAMING = Column("question"), Column("framing")
ITEM_ID, ITEM = Column("item_id", "count", "item id", dtype=pl.UInt32), Column("item", "token")
PROMPTS = Spec(
    "items_prompts",
    (
        LIST,
        PROMPT,
        QUESTION.but(help="what the prompt asks for"),
        FRAMING.but(help="`positive`, `negative` or empty"),
        Column("wording", help="the text, with `…` for what is asked for"),
    ),
)
QUESTIONS = Spec(
    "items_questions",
    (
        *(LIST, QUESTION, FRAMING),
        Column("prompts", "count", "wordings", "wordings"),
        *(ITEM_ID, ITEM),
        Column("n", "count", "models", "models"),
        Column("mean_percentile", "share"),
        Column("lowest", "share"),
        Column("highest", "share", help="over the models"),
        Column(
            "wording_spread", "share", "spread over wordings", "their deviation, mean over models"
        ),
        P.but(help="against models whose orders have nothing in common"),
        q("list", "question"),
    ),
    page="item n mean_percentile lowest highest wording_spread p q",
)


def tables(study: Study) -> Iterator[Table]:
    """items_prompts.csv and items_questions.csv."""
    yield table(PROMPTS.name, make=partial(_prompts, study))
    yield table(QUESTIONS.name, make=partial(_questions, study))


def items_questions(scores: ListScores, rng: np.random.Generator, draws: int) -> pl.DataFrame:
    """Where each item of one list stands under each question: the table `QUESTIONS`.

    A model's percentile of an item is its mean over the wordings of the question. From the highest
    mean down, then by item_id; p is two-sided, of `mean_place_test`.
    """
    frames = []
    for question, framing, at in scores.parts():
        models, means = scores.means(at)
        if question == ALL or not models:
            continue
        same = {"list": scores.name, "question": question, "framing": framing}
        numbers = {
            "mean_percentile": means.mean(axis=0),
            "lowest": means.min(axis=0),
            "highest": means.max(axis=0),
            "wording_spread": _wording_spread(scores, at),
            "p": mean_place_test(means, rng, draws),
        }
        each = scores.items.with_columns(
            **{key: pl.Series(values, dtype=pl.Float64) for key, values in numbers.items()}
        ).with_columns(pl.col("wording_spread").fill_nan(None))
        place = pl.col("mean_percentile").round(12)
        own = QUESTIONS.frame(each, **same, prompts=len(at), n=len(models))
        frames.append(own.sort(place, "item_id", descending=[True, False]))
    return QUESTIONS.concat(frames)


def _wording_spread(scores: ListScores, at: Array) -> Array:
    """Deviation of each item's percentiles over the prompts `at`, mean over the models; [N]."""
    spreads = [
        scores.percentiles[m, at[known]].std(axis=0, ddof=1)
        for m, known in enumerate(scores.known[:, at])
        if known.sum() > 1
    ]
    return np.mean(spreads, axis=0) if spreads else np.full(scores.items.height, np.nan)


def _prompts(study: Study) -> pl.DataFrame:
    return pl.concat(
        PROMPTS.frame(scores.prompts, list=scores.name) for scores in every_list(study)
    )


def _questions(study: Study) -> pl.DataFrame:
    rng, draws = np.random.default_rng(study.options.seed), study.options.permutations
    frames = [items_questions(scores, rng, draws) for scores in every_list(study)]
    return required(pl.concat(frames), "No model has an order of the items of a list.")


def ends_beyond_chance(part: pl.DataFrame) -> str:
    """The items with q < .05 under every question of `part`, in a sentence.

    "" where there is none; `part` are rows of `QUESTIONS` of one list.
    """
    asked = part["question"].unique(maintain_order=True).to_list()
    certain = significant(part).with_columns(high=pl.col("mean_percentile") > 0.5)
    each = certain.group_by("item_id", "item", "high", maintain_order=True).agg(
        asked=pl.len(), mean=pl.col("mean_percentile").mean()
    )
    each = each.filter(asked=len(asked)).sort("mean", "item_id", descending=[True, False])
    ends = {
        "highest": each.filter(high=True).head(_NAMED),
        "lowest": each.filter(high=False).tail(_NAMED).reverse(),
    }
    named = {end: items for end, items in ends.items() if items.height}
    if not named:
        return ""
    models = part.select(pl.col("n").max()).item()
    said = " and ".join(
        f"{listed([f'“{display.plain(item, 40)}”' for item in items['item']])} {end}"
        for end, items in named.items()
    )
    return (
        f"Asked for {listed([f'“{name}”' for name in asked])}, the {models} models together rate "
        f"{said} of the list “{part['list'][0]}”."
    )


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


def shown_items(standing: pl.DataFrame, count: int) -> list[pl.DataFrame]:
    """The items to show of a long list: highest, most disputed and lowest, `count` of each.

    Args:
      standing: what `over` returns of one list.
      count: items in each group.

    Returns:
      The groups, each from the highest mean down. Disputed are those of the rest whose lowest and
      highest percentile are furthest apart; where no item of the rest varies, that group is left
      out. A list of at most three times `count` items is one group.
    """
    if standing.height <= 3 * count:
        return [standing]
    width = (pl.col("highest") - pl.col("lowest")).round(12)
    rest = standing[count:-count].with_row_index("at").filter(width > 0)
    widest = rest.sort(width, "at", descending=[True, False]).head(count)
    groups = [standing.head(count), widest.sort("at").drop("at"), standing.tail(count)]
    return [group for group in groups if group.height]
